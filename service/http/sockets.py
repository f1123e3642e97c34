"""The addresses a server listens on, and how it accepts connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

from foretell.service.errors import StartError
from foretell.service.metrics import Metrics

# Further names of `::`.
_EVERY = {"", "*"}
# What other programs may take between the sockets of one port.
_TRIES = 10


@dataclass(frozen=True)
class _Address:
    family: socket.AddressFamily
    host: str
    both: bool = False

    def socket(self) -> socket.socket:
        """A socket of the address's protocol; of both protocols for `both`."""
        opened = socket.socket(self.family)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self.family == socket.AF_INET6:
            opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not self.both))
        return opened

    def free_port(self) -> int:
        """A port that nothing is bound to at the moment.

        Raises:
            OSError: the address is none of this machine.
        """
        with self.socket() as one:
            one.bind((self.host, 0))
            port: int = one.getsockname()[1]
        return port


def listen(host: str, port: int) -> list[socket.socket]:
    """Listens on every address of a host.

    Args:
        host: Name or address. `::` in any form, `*` and nothing stand for all addresses of IPv4 and
            IPv6, `0.0.0.0` for those of IPv4.
        port: 0 takes a free one, the same for all addresses.

    Returns:
        A socket for each address; one socket for all addresses of IPv4 and IPv6.

    Raises:
        StartError: an address is taken, or is none of this machine, or the host can be none.
    """
    [sockets] = reserve(host, port, 1)
    for one in sockets:
        try:
            one.listen()
        except OSError as error:
            _close(sockets)
            raise _refusal(host, port, error) from error
    return sockets


def reserve(host: str, port: int, count: int) -> list[list[socket.socket]]:
    """Takes the addresses of a host for several processes; nobody connects until they listen.

    The kernel deals connections out evenly to sockets of their own, which processes that accept
    from one socket do not.

    Args:
        host: As for `listen`.
        port: As for `listen`.
        count: How many processes.

    Returns:
        For each process a socket for each address.

    Raises:
        StartError: as for `listen`.
    """
    try:
        addresses = _addresses(host)
        for left in reversed(range(_TRIES)):
            try:
                return _reserve(addresses, port, count)
            except OSError as error:
                # The port that was free at one address is taken at another one.
                if port or error.errno != errno.EADDRINUSE or not left:
                    raise
    except UnicodeError:
        raise StartError(
            f"cannot listen on {host}:{port}: no host can have this name: between its dots are 1 "
            "to 63 letters, digits and hyphens"
        ) from None
    except OSError as error:
        raise _refusal(host, port, error) from error
    raise AssertionError


def _addresses(host: str) -> list[_Address]:
    name = "::" if host in _EVERY else host.removeprefix("[").removesuffix("]")
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    own = []
    for address in dict.fromkeys(_address(str(place[0])) for *_, place in found):
        try:
            address.free_port()
            own.append(address)
        except OSError as error:
            # A name may have an address of a protocol that this machine has switched off.
            foreign = error
    if not own:
        raise foreign
    return own


def _address(host: str) -> _Address:
    """One of those that a name has, in whatever form."""
    found = ip_address(host)
    if isinstance(found, IPv6Address):
        if found.is_unspecified and socket.has_dualstack_ipv6():
            return _Address(socket.AF_INET6, "::", both=True)
        found = IPv4Address(0) if found.is_unspecified else found.ipv4_mapped or found
    family = socket.AF_INET if isinstance(found, IPv4Address) else socket.AF_INET6
    return _Address(family, str(found))


def _reserve(addresses: list[_Address], port: int, count: int) -> list[list[socket.socket]]:
    # A socket that chose its port by itself gives it up when it listens no more.
    port = port or addresses[0].free_port()
    groups: list[list[socket.socket]] = []
    try:
        # Not at once: those that were bound are closed if a later one fails.
        groups.extend(_bind(address, port, count) for address in addresses)
    except OSError:
        _close([one for group in groups for one in group])
        raise
    return [list(of_one) for of_one in zip(*groups, strict=True)]


def _bind(address: _Address, port: int, count: int) -> list[socket.socket]:
    bound: list[socket.socket] = []
    try:
        for _ in range(count):
            one = address.socket()
            bound.append(one)
            # The first one is bound without: it would share the address of another server.
            if one is not bound[0]:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            one.bind((address.host, port))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    except OSError:
        _close(bound)
        raise
    return bound


def _close(sockets: list[socket.socket]) -> None:
    for one in sockets:
        one.close()


def _refusal(host: str, port: int, error: OSError) -> StartError:
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


_logger = logging.getLogger(__name__)

# No more files, or no more memory for sockets.
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_SECONDS = 1.0
# Connections that are not served yet: each takes a file, if only until it is refused.
_MOST = 16


def accept_all(listener: socket.socket, most: int | None = None) -> Iterator[socket.socket]:
    """Accepts the connections that wait.

    Args:
        listener: Does not block.
        most: Most of them; None for all.

    Raises:
        OSError: the process or the system has no file or memory for another one.
    """
    accepted = 0
    while accepted != most:
        try:
            connection = listener.accept()[0]
        except ConnectionAbortedError:
            continue
        except OSError as error:
            if error.errno in _SHORTAGES:
                raise
            return
        accepted += 1
        yield connection


class Acceptor:
    """Accepts connections for the running loop, next to the loop itself.

    uvloop accepts one connection a turn: when all are busy and a turn takes long, a new caller
    would wait for many turns.

    Args:
        listeners: They do not block.
        connection: Makes what serves a connection.
        metrics: Counts connections that are lost before they are served.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        connection: Callable[[], asyncio.Protocol],
        metrics: Metrics,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._metrics = metrics
        self._connecting: set[asyncio.Future[Any]] = set()
        # The loop lets nobody else look at a descriptor of its own.
        self._listeners = [listener.dup() for listener in listeners]
        for listener in self._listeners:
            self._begin(listener)

    async def close(self) -> None:
        """Accept no more, and wait for those who were."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _begin(self, listener: socket.socket) -> None:
        if listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        try:
            for accepted in accept_all(listener, max(0, _MOST - len(self._connecting))):
                connecting = asyncio.ensure_future(
                    self._loop.connect_accepted_socket(self._connection, accepted)
                )
                self._connecting.add(connecting)
                connecting.add_done_callback(self._connected)
        except OSError as error:
            # The listener stays readable: without a pause the loop would do nothing else.
            _logger.warning(
                "accepts no connections for %g s: %s; raise the limit of open files (ulimit -n)",
                _PAUSE_SECONDS,
                error.strerror,
            )
            self._loop.remove_reader(listener)
            self._loop.call_later(_PAUSE_SECONDS, self._begin, listener)

    def _connected(self, connecting: asyncio.Future[Any]) -> None:
        self._connecting.discard(connecting)
        if not connecting.cancelled() and (error := connecting.exception()):
            self._metrics.cut_off("lost")
            _logger.warning("a connection was lost before it was served: %s", error)
