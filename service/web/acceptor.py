"""Connects many callers at once."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any

from foretell.service.web.sockets import accept_all

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
