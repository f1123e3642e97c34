"""A connection without a network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from foretell.service.http.protocol import Connection, Limits
from foretell.service.metrics import Metrics

# Method, path and body.
Request = tuple[str, str, bytes]


class Wire(asyncio.Transport):
    """A transport that records writes.

    Attributes:
        sent: Bytes of each write.
        reading: Whether reading is not paused.
        ended: Whether `write_eof` or `close` was called.
    """

    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.reading = True
        self.ended = False
        self._closed = False

    @property
    def written(self) -> bytes:
        """All bytes that were written."""
        return b"".join(self.sent)

    def write(self, data: Any) -> None:
        assert not self.ended
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True

    def write_eof(self) -> None:
        self.ended = True

    def close(self) -> None:
        self.ended = self._closed = True

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return self._closed


async def no_content(scope: Any, receive: Any, send: Any) -> None:
    """An application with empty answers."""
    await send({"type": "http.response.start", "status": 204, "headers": []})
    await send({"type": "http.response.body", "body": b""})


def unconnected(app: Any, metrics: Metrics) -> Connection:
    """A connection of an application, for use on a loop."""
    config = uvicorn.Config(app, ws="none", log_config=None, access_log=False)
    return Connection(Limits(8, 60), metrics, config, ServerState(), {})


def opened(app: Any, wire: Wire, metrics: Metrics | None = None) -> Connection:
    """A connection to an application; for use on a loop."""
    connection = unconnected(app, metrics or Metrics())
    connection.connection_made(wire)
    return connection


async def settled(connection: Connection, turns: int = 10_000) -> None:
    """Run the event loop until the application is done, for this number of turns at most."""
    while connection.tasks and turns:
        await asyncio.sleep(0)
        turns -= 1


async def talk(
    app: Any, pieces: Iterable[bytes], metrics: Metrics | None = None, wire: Wire | None = None
) -> Wire:
    """Send pieces to an application one after another, and then close the connection."""
    wire = wire or Wire()
    connection = opened(app, wire, metrics)
    for piece in pieces:
        if not wire.is_closing():
            connection.data_received(piece)
            await settled(connection, 5)
    if not wire.is_closing():
        await settled(connection)
    connection.connection_lost(ConnectionResetError())
    await settled(connection, 5)
    assert not connection.tasks
    return wire


async def exchange(
    pieces: Iterable[bytes], metrics: Metrics | None = None
) -> tuple[list[Request], Wire]:
    """The requests that an application gets, and the transport of its answers."""
    seen: list[Request] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = b""
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message["body"]
            more = message["more_body"]
        assert b"upgrade" not in dict(scope["headers"])
        seen.append((scope["method"], scope["path"], body))
        await no_content(scope, receive, send)

    return seen, await talk(app, pieces, metrics)
