"""Connections that nobody can hold for ever: bounded in number, and in how slow they may be."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any

import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from foretell.service.errors import error_body, error_fields
from foretell.service.metrics import Metrics
from foretell.service.web.callers import EXTENSION, Caller
from foretell.service.web.parser import Parser
from foretell.service.web.writing import Writing

# The headers that clients and proxies send take a few kilobytes.
_MOST_HEADER_BYTES = 64 * 1024
# What is read before the headers are measured again.
_PIECE_BYTES = 8 * 1024
# After which a connection may be one too many no more.
_RETRY_SECONDS = 1
# From the beginning of the end to the close of a connection nothing came on.
_LINGER_SECONDS = 1.0


@dataclass(frozen=True)
class Limits:
    """What every connection keeps to.

    Attributes:
        connections: Most that are open at a time.
        seconds: Time a caller has to send the headers of a request, or the rest of a body that the
            answer did not wait for, and to take something of an answer.
        free_port: A port of the server whose connections are never too many, if there is one.
    """

    connections: int
    seconds: float
    free_port: int | None = None


class Connection(HttpToolsProtocol):
    """HTTP/1.1 over one connection.

    How long a body may take is not known here: the door that reads it has a deadline.

    Args:
        limits: What it keeps to.
        metrics: Where it is counted if it does not.
        config: As for the class it extends, like the arguments that follow.
    """

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.parser = Parser(self)
        # Of the latest request, as far as it has come.
        self.url = b""
        self._limits = limits
        self._metrics = metrics
        self._stopping = False
        # Since the last of a body or the end of a request: trailers and chunk sizes are among them.
        self._header_bytes = 0
        self._owed: object = None
        self._owed_since: float | None = None
        self._unsent = 0
        self._unsent_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a connection, or refuse it."""
        super().connection_made(transport)
        self._writing = Writing(transport, self.loop)
        self._caller = Caller(self.flow.resume_reading)
        limits = self._limits
        is_free = self.server is not None and self.server[1] == limits.free_port
        if len(self.connections) > limits.connections and not is_free:
            self._refuse("too_many", HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller, or the server, has ended the connection."""
        super().connection_lost(exc)
        self._caller.hang_up()

    def data_received(self, data: bytes) -> None:
        """Read what came of a request."""
        # What cannot be read is answered past it, and may end the connection.
        self._writing.flush()
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            self._header_bytes += len(piece)
            super().data_received(piece)
            if self._header_bytes > _MOST_HEADER_BYTES:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse("headers", status, f"at most {_MOST_HEADER_BYTES} bytes of headers")
            if self.transport.is_closing():
                return

    def shutdown(self) -> None:
        """Begin to stop: answer what comes in a moment more, and then close.

        A caller who has just begun to send could not know whether he may try again.
        """
        self._stopping = True
        if self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(_LINGER_SECONDS, self._close_if_idle)

    def on_headers_complete(self) -> None:
        """A request can be answered."""
        if self.parser.should_upgrade():
            # An offer is read again without it; behind this there is nothing to read.
            if self.parser.get_method() == b"CONNECT":
                self._refuse("connect", HTTPStatus.BAD_REQUEST, "this server is no proxy")
            return
        super().on_headers_complete()
        # Those that follow a body are nobody's.
        self.headers = []
        # The task that answers has not run yet.
        self.cycle.transport = self._writing  # type: ignore[assignment]
        self.scope["extensions"] = {EXTENSION: self._caller}  # type: ignore[dict-item]
        if self._stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Some of a request's body is here."""
        super().on_body(body)
        self._header_bytes = 0

    def on_message_complete(self) -> None:
        """All of a request is here."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._header_bytes = 0

    def check(self, now: float) -> None:
        """Cut the connection off if its caller is too slow; to be called about once a second.

        Args:
            now: On the loop's clock.
        """
        # Between requests another timer runs, until anything arrives.
        idle = self.timeout_keep_alive_task is not None
        if idle or self._is_answering():
            self._owed_since = None
        elif self._owed_since is None or self._owed is not self.scope:
            self._owed, self._owed_since = self.scope, now
        elif now - self._owed_since > self._limits.seconds:
            self._cut_off("slow_request")
        unsent = self.transport.get_write_buffer_size()
        if not unsent or unsent != self._unsent:
            self._unsent, self._unsent_since = unsent, now
        elif now - self._unsent_since > self._limits.seconds:
            self._cut_off("slow_reader")

    def _close_if_idle(self) -> None:
        if not self._is_answering():
            self._writing.close()

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _has_begun_to_answer(self) -> bool:
        """Whether the latest request has some of its answer, or an earlier one only some of it."""
        return (
            self.cycle is not None
            and self.cycle.response_started
            and (self.cycle.scope is self.scope or not self.cycle.response_complete)
        )

    def _cut_off(self, reason: str) -> None:
        self._metrics.cut_off(reason)
        self.transport.abort()

    def _refuse(self, reason: str, status: HTTPStatus, message: str) -> None:
        if self.transport.is_closing():
            return
        if self._has_begun_to_answer():
            self._cut_off(reason)
            return
        self._metrics.cut_off(reason)
        path = self.url.partition(b"?")[0].decode("latin-1")
        body = orjson.dumps(error_body(path, error_fields(status, reason, message)))
        lines = [
            f"HTTP/1.1 {status} {status.phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            lines.append(f"retry-after: {_RETRY_SECONDS}")
        self._writing.write("\r\n".join([*lines, "", ""]).encode() + body)
        self._writing.close()
