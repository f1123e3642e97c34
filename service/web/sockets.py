"""The addresses a server listens on."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from foretell.service.errors import StartError


def listen(host: str, port: int) -> socket.socket:
    """Take connections to an address.

    Args:
        host: Name or address.
        port: 0 takes a free one.

    Raises:
        StartError: the address is taken, or is none of this machine.
    """
    try:
        return socket.create_server((host, port), family=_family(host))
    except OSError as error:
        raise _refusal(host, port, error) from error


def reserve(host: str, port: int, count: int) -> list[socket.socket]:
    """Take an address for several processes; nobody connects to it until they listen.

    The kernel deals connections out evenly to sockets of their own, which processes that accept
    from one socket do not.

    Args:
        host: Name or address.
        port: 0 takes a free one.
        count: How many sockets.

    Raises:
        StartError: as for `listen`.
    """
    taken: list[socket.socket] = []
    try:
        if not port:
            # A socket that chose its port by itself gives it up when it listens no more.
            with socket.create_server((host, 0), family=_family(host)) as found:
                port = found.getsockname()[1]
        for _ in range(count):
            one = socket.socket(_family(host))
            taken.append(one)
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if one.family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            if one is taken[0]:
                # Not before: it would be bound next to the processes of another server.
                one.bind((host, port))
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            else:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
                one.bind((host, port))
    except OSError as error:
        for one in taken:
            one.close()
        raise _refusal(host, port, error) from error
    return taken


def accept_all(listener: socket.socket, most: int | None = None) -> list[socket.socket]:
    """The connections that nobody has accepted yet.

    Args:
        listener: Does not block.
        most: Most of them; None for all.
    """
    accepted: list[socket.socket] = []
    while len(accepted) != most:
        try:
            accepted.append(listener.accept()[0])
        except ConnectionAbortedError:
            continue
        except OSError:
            # There is none, or no file for it.
            break
    return accepted


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _refusal(host: str, port: int, error: OSError) -> StartError:
    return StartError(f"cannot listen on {host}:{port}: {error.strerror or error}")


_logger = logging.getLogger(__name__)

# A turn. Those who are too many take a file each until they are told so.
_MOST = 128


class Acceptor:
    """Accepts connections for the running loop, next to the loop itself.

    uvloop accepts one connection a turn: when all are busy and a turn takes long, a new caller
    would wait for many turns.

    Args:
        listeners: They do not block.
        connection: Makes what serves a connection.
    """

    def __init__(
        self, listeners: Sequence[socket.socket], connection: Callable[[], asyncio.Protocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._connection = connection
        self._connecting: set[asyncio.Future[Any]] = set()
        # The loop lets nobody else look at a descriptor of its own.
        self._listeners = [listener.dup() for listener in listeners]
        for listener in self._listeners:
            self._loop.add_reader(listener, self._accept, listener)

    async def close(self) -> None:
        """Accept no more, and wait for those who were."""
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        self._listeners.clear()
        await asyncio.gather(*self._connecting, return_exceptions=True)

    def _accept(self, listener: socket.socket) -> None:
        for accepted in accept_all(listener, _MOST):
            connecting = asyncio.ensure_future(
                self._loop.connect_accepted_socket(self._connection, accepted)
            )
            self._connecting.add(connecting)
            connecting.add_done_callback(self._connected)

    def _connected(self, connecting: asyncio.Future[Any]) -> None:
        self._connecting.discard(connecting)
        if not connecting.cancelled() and (error := connecting.exception()):
            _logger.debug("a connection was lost at once: %s", error)
