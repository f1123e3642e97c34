"""Listens on addresses, and accepts connections."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import islice
from typing import Any, NamedTuple

from foretell.service.errors import StartError
from foretell.service.metrics import Metrics

_logger = logging.getLogger(__name__)

# Other names of `::`.
_ALL = {"", "*"}
# Other programs may take a port between the sockets of its addresses.
_TRIES = 10
# No more files, or no more memory for sockets.
_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}
_PAUSE_SECONDS = 1.0
# Connections that are not served yet: each takes a file, even until it is refused.
_MOST_CONNECTING = 16


class _Address(NamedTuple):
    family: socket.AddressFamily
    host: str
    dual_stack: bool = False


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of a host: a socket each, or one for all of IPv4 and IPv6.

    `::` in any form, `*` and an empty host stand for all addresses of both, `0.0.0.0` for all of
    IPv4. Port 0 is a free port, the same for all addresses. StartError: it cannot listen.
    """
    [sockets] = reserve(host, port, 1)
    try:
        for each in sockets:
            each.listen()
    except OSError as error:
        for each in sockets:
            each.close()
        raise _refusal(host, port, error) from error
    return sockets


def reserve(host: str, port: int, count: int) -> list[list[socket.socket]]:
    """Bind the addresses of a host for several processes, which listen themselves.

    The kernel spreads connections evenly over separate sockets, but not over processes that share a
    socket. Each process gets a socket for each address. Otherwise as `listen`.
    """
    try:
        addresses = _addresses(host)
        for left in reversed(range(_TRIES)):
            try:
                return _bind(addresses, port, count)
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
    name = "::" if host in _ALL else host.removeprefix("[").removesuffix("]")
    infos = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = []
    for address in dict.fromkeys(_address(str(info[4][0])) for info in infos):
        try:
            _free_port(address)
            addresses.append(address)
        except OSError as error:
            # A name may have an address of a protocol that this machine has switched off.
            failure = error
    if not addresses:
        raise failure
    return addresses


def _address(host: str) -> _Address:
    """The form of an address on this machine, where one socket may serve both protocols."""
    ip = ip_address(host)
    # Not its own property, which in Python 3.14 holds for ::ffff:0.0.0.0, too.
    if isinstance(ip, IPv6Address) and int(ip) == 0:
        if socket.has_dualstack_ipv6():
            return _Address(socket.AF_INET6, "::", dual_stack=True)
        ip = IPv4Address(0)
    if isinstance(ip, IPv6Address):
        ip = ip.ipv4_mapped or ip
    family = socket.AF_INET if isinstance(ip, IPv4Address) else socket.AF_INET6
    return _Address(family, str(ip))


def _open(address: _Address) -> socket.socket:
    opened = socket.socket(address.family)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if address.family == socket.AF_INET6:
        opened.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not address.dual_stack))
    return opened


def _free_port(address: _Address) -> int:
    with _open(address) as free:
        free.bind((address.host, 0))
        return int(free.getsockname()[1])


def _bind(addresses: Sequence[_Address], port: int, count: int) -> list[list[socket.socket]]:
    # A socket with a port that it chose itself loses the port when it stops listening.
    port = port or _free_port(addresses[0])
    groups: list[list[socket.socket]] = [[] for _ in range(count)]
    with ExitStack() as stack:
        for address in addresses:
            for group in groups:
                bound = stack.enter_context(_open(address))
                # The first one is bound without SO_REUSEPORT, as it could share another server's
                # address.
                if group is not groups[0]:
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                bound.bind((address.host, port))
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                group.append(bound)
        stack.pop_all()
    return groups


def _refusal(host: str, port: int, error: OSError) -> StartError:
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


def accept_all(listener: socket.socket) -> Iterator[socket.socket]:
    """Accept waiting connections on a non-blocking listener; OSError at a shortage of files."""
    while True:
        try:
            connection = listener.accept()[0]
        except ConnectionAbortedError:
            continue
        except OSError as error:
            if error.errno in _SHORTAGES:
                raise
            return
        yield connection


class Acceptor:
    """Accepts connections for the running loop, beside the loop itself.

    uvloop accepts one connection a turn: with long turns, a new client would wait for many of them.
    The listeners do not block.
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
        # The loop allows only one reader of a descriptor.
        self._listeners = [listener.dup() for listener in listeners]
        for listener in self._listeners:
            self._begin(listener)

    async def close(self) -> None:
        """Stop accepting, and wait until the accepted connections are connected."""
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
            room = max(0, _MOST_CONNECTING - len(self._connecting))
            for accepted in islice(accept_all(listener), room):
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
