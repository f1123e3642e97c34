from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import uvloop

from foretell.service.http.sockets import Acceptor, listen
from foretell.service.metrics import Metrics

CALLERS = 50


def test_all_who_wait_are_connected_at_once() -> None:
    connected: list[asyncio.BaseTransport] = []

    class Connection(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            connected.append(transport)

    async def connect() -> int:
        loop = asyncio.get_running_loop()
        with ExitStack() as stack:
            [listener] = listen("127.0.0.1", 0)
            stack.enter_context(listener)
            server = await loop.create_server(Connection, sock=listener)
            acceptor = Acceptor([listener], Connection, Metrics())
            for _ in range(CALLERS):
                stack.enter_context(socket.create_connection(listener.getsockname()))
            turns = 0
            while len(connected) < CALLERS:
                await asyncio.sleep(0)
                turns += 1
            await acceptor.close()
            stack.enter_context(socket.create_connection(listener.getsockname()))
            while len(connected) == CALLERS:
                await asyncio.sleep(0)
            for transport in connected:
                transport.close()
            server.close()
            await server.wait_closed()
        return turns

    # The loop hears of them in one turn; to connect them takes a few more.
    assert uvloop.run(asyncio.wait_for(connect(), 30)) < CALLERS / 2
