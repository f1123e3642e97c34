"""HTTP/1.1 on a connection: uvicorn's protocol, with limits that keep clients from blocking it.

All uses and changes of uvicorn's protocol are in this file.
"""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import metadata
from typing import Any

import httptools
import orjson
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from foretell.service.errors import StartError, error_body, error_fields
from foretell.service.http.client import EXTENSION, WHOLE, ClientConnection
from foretell.service.metrics import Metrics

# The headers that clients and proxies send take a few kilobytes.
_MAX_HEADER_BYTES = 64 * 1024
# Header bytes are counted after each piece of this size.
_PIECE_BYTES = 8 * 1024
_RETRY_AFTER_SECONDS = 1
# When the server stops, connections that are idle or wait for the client's close have this time.
_LAST_SECONDS = 1.0
# A client that sends more than this after its answer does not read the answer.
_MAX_DROPPED_BYTES = 256 * 1024 * 1024
# Refused connections that may stay open until the client closes them: each takes a file.
MOST_REFUSED = 8

# `Connection` and `Parser` change private interfaces of these versions.
_WRITTEN_FOR = {"uvicorn": "0.54", "httptools": "0.9"}


class Parser(httptools.HttpRequestParser):
    """Reads requests that offer an upgrade, as Java and curl send, like any other request.

    llhttp ends such a request after its head and takes the rest for the other protocol. But the
    rest is the request's body, so the head is read a second time, without the offer. So the
    connection gets the head twice; the first time `should_upgrade` is true, and it must not start
    an answer.
    """

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._connection = connection
        # As in uvicorn: bytes after the last request of a connection are not an error.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Read received bytes, or raise HttpParserError."""
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:
                (end,) = offer.args
            if self._connection.has_ended:
                return
            head = self._head_without_offer()
            # llhttp reads nothing after the last request of a connection, so a new parser starts.
            Parser.__init__(self, self._connection)
            super().feed_data(head)
            rest = rest[end:]

    def _head_without_offer(self) -> bytes:
        target, version = self._connection.url, self.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.get_method(), target, version)]
        lines += [b"%b: %b" % line for line in self._connection.headers if line[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


@dataclass(frozen=True)
class Limits:
    """Limits of connections; connections to `free_port`, if set, do not count.

    A client has `seconds` to send the headers of a request, or the rest of a body after its answer.
    It has the same time to read a part of an answer, and to close a connection that the server has
    ended early.
    """

    connections: int
    seconds: float
    free_port: int | None = None


class Connection(HttpToolsProtocol):
    """HTTP/1.1 on one connection; reading a body has a deadline of its own."""

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
        # The target of the latest request, as far as it has arrived.
        self.url = b""
        self.is_too_many = False
        self._limits = limits
        self._metrics = metrics
        self._stopping = False
        # Set when invalid bytes follow requests that are not answered yet.
        self._is_refused = False
        self._previous: RequestResponseCycle | None = None
        # Bytes since the last piece of a body: headers, but also trailers and chunk sizes.
        self._header_bytes = 0
        # Bytes to come of a body with a Content-Length.
        self._body_bytes = 0
        # The scope of the latest request that has arrived as a whole.
        self._complete_scope: object = ()
        # The scope that `check` last waited for, and since when.
        self._waiting_for: object = None
        self._waiting_since: float | None = None
        self._acknowledged_bytes = 0
        self._acknowledged_since: float | None = None
        # Closes an ended connection if the client does not.
        self._close_timer: asyncio.TimerHandle | None = None
        self._dropped_bytes = 0
        # Whether the server has ended its side of the connection.
        self._is_closed = False
        # The head of an answer, while it waits for the body, and the handle that sends it at the
        # latest.
        self._held = b""
        self._flush_handle: asyncio.Handle | None = None
        self._written_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._client = ClientConnection(self.flow.resume_reading)
        limits = self._limits
        is_free = self.server is not None and self.server[1] == limits.free_port
        excess = len(self.connections) - limits.connections
        if not is_free and excess > 0 and self._refused() < excess:
            self.is_too_many = True
            self._refuse("too_many", HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """Call the watchers of the client."""
        super().connection_lost(exc)
        if self._close_timer is not None:
            self._close_timer.cancel()
        self._client.disconnect()

    def data_received(self, data: bytes) -> None:
        """Read received bytes, or drop them if the connection has ended."""
        if self._close_timer is not None:
            self._dropped_bytes += len(data)
            if self._dropped_bytes > _MAX_DROPPED_BYTES:
                self.transport.close()
            return
        start = 0
        while start < len(data) and not self._is_refused:
            # There are no headers before the end of a body.
            piece = data[start : start + max(_PIECE_BYTES, self._body_bytes)]
            start += len(piece)
            self._header_bytes += len(piece)
            super().data_received(piece)
            if self._header_bytes > _MAX_HEADER_BYTES:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse("headers", status, f"at most {_MAX_HEADER_BYTES} bytes of headers")
            if self._is_closed or self.transport.is_closing():
                return

    @property
    def has_ended(self) -> bool:
        return self._is_refused or self.is_closing()

    def send_400_response(self, msg: str) -> None:
        self._refuse("malformed", HTTPStatus.BAD_REQUEST, msg)

    def shutdown(self) -> None:
        """Close after the current answer, or in a second if the connection is idle.

        In this second requests are still answered: a client that has just sent one cannot know
        whether a retry is safe.
        """
        self._stopping = True
        if self._close_timer is not None:
            self._linger()
        elif self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(_LAST_SECONDS, self._close_if_idle)

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            # The parser reads the head again, without the offer; after CONNECT reading stops.
            if self.parser.get_method() == b"CONNECT":
                self._refuse("connect", HTTPStatus.BAD_REQUEST, "this server is not a proxy")
            return
        # The previous answer may have set this timer before its request was complete.
        self._unset_keepalive_if_required()
        self._previous = self.cycle
        super().on_headers_complete()
        self._body_bytes = int(dict(self.headers).get(b"content-length", 0))
        # The parser adds trailers to this list, which are not headers of the request.
        self.headers = []
        # The answering task has not run yet.
        self.cycle.transport = self  # type: ignore[assignment]
        self.scope["extensions"] = {EXTENSION: self._client}  # type: ignore[dict-item]
        if self._stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        super().on_body(body)
        self._header_bytes = 0
        self._body_bytes -= len(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._complete_scope = self.scope
        self._header_bytes = 0
        self.scope["extensions"][WHOLE] = {}
        if self.cycle.response_complete and not self.is_closing():
            # The answer was sent before the request was complete, and later bytes stopped its
            # keep-alive timer.
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def on_response_complete(self) -> None:
        if not self._is_closed:
            super().on_response_complete()

    def write(self, data: bytes) -> None:
        """Write a part of an answer; the request's cycle uses this connection as its transport.

        uvicorn writes the head and then the body. Separate writes would each be a system call, a
        packet and a wake-up of the client. So the first part waits for the second, until the event
        loop's next turn at most.
        """
        if self._flush_handle is None:
            self._held = data
            self._flush_handle = self.loop.call_soon(self.flush)
        else:
            self.flush(data)

    def flush(self, *more: bytes) -> None:
        """Write the held part, and then `more`."""
        if self._flush_handle is None:
            return
        parts = (self._held, *more)
        self._flush_handle.cancel()
        self._flush_handle, self._held = None, b""
        if not (self._is_closed or self.transport.is_closing()):
            self._written_bytes += sum(map(len, parts))
            self.transport.writelines(parts)

    def is_closing(self) -> bool:
        return self._is_closed or self.transport.is_closing()

    def close(self) -> None:
        """End the connection once everything is written."""
        self.flush()
        if self.is_closing():
            return
        self._is_closed = True
        all_read = self._complete_scope is self.scope and not (self._is_refused or self.pipeline)
        if all_read or (self.is_too_many and self._refused() > MOST_REFUSED):
            self.transport.close()
            return
        # The kernel answers bytes after the close with a reset, which could lose the answer. So
        # only the server's side is closed, and later bytes are dropped.
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._linger()

    def check(self, now: float) -> None:
        """Cut the connection off if its client is too slow; called about once a second."""
        # Between requests and at the end of a connection other timers run.
        idle = self.timeout_keep_alive_task is not None or self._close_timer is not None
        if idle or self._is_answering():
            self._waiting_since = None
        elif self._waiting_since is None or self._waiting_for is not self.scope:
            self._waiting_for, self._waiting_since = self.scope, now
        elif now - self._waiting_since > self._limits.seconds:
            self._cut_off("slow_request")
        if not self.transport.get_write_buffer_size():
            self._acknowledged_since = None
            return
        # The kernel reads from the buffer only once it has sent most of its own bytes, which may be
        # megabytes: they count, too.
        queued = array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, queued)
        acknowledged = self._written_bytes - self.transport.get_write_buffer_size() - queued[0]
        if self._acknowledged_since is None or acknowledged > self._acknowledged_bytes:
            self._acknowledged_bytes, self._acknowledged_since = acknowledged, now
        elif now - self._acknowledged_since > self._limits.seconds:
            self._cut_off("slow_reader")

    def _close_if_idle(self) -> None:
        if not self._is_answering():
            self.flush()
            self.transport.close()

    def _linger(self) -> None:
        """Close the connection after a time, even if the client does not."""
        if self._close_timer is not None:
            self._close_timer.cancel()
        seconds = self._limits.seconds
        seconds = min(seconds, _LAST_SECONDS) if self._stopping else seconds
        self._close_timer = self.loop.call_later(seconds, self.transport.close)

    def _refused(self) -> int:
        """Number of open connections that were refused as too many."""
        return sum(getattr(each, "is_too_many", False) for each in self.connections)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _cut_off(self, reason: str) -> None:
        self._metrics.cut_off(reason)
        self.transport.abort()

    def _refuse(self, reason: str, status: HTTPStatus, message: str) -> None:
        if self.has_ended:
            return
        self._metrics.cut_off(reason)
        # The cycle of the invalid request if its headers were valid, else of the previous one.
        cycle: RequestResponseCycle | None = self.cycle
        previous, current = cycle, None
        if cycle is not None and cycle.scope is self.scope:
            previous, current = self._previous, cycle
        if previous is not None and not previous.response_complete:
            # The client would take the error for the answer to the previous request. So the
            # connection ends after that answer.
            previous.keep_alive = False
            self._is_refused = True
            return
        if current is not None and current.response_started:
            self.transport.abort()
            return
        path = self.url.partition(b"?")[0].decode("latin-1")
        body = orjson.dumps(error_body(path, error_fields(status, reason, message)))
        lines = [
            f"HTTP/1.1 {status} {status.phrase}",
            "content-type: application/json",
            f"content-length: {len(body)}",
            "connection: close",
        ]
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            lines.append(f"retry-after: {_RETRY_AFTER_SECONDS}")
        self.write("\r\n".join([*lines, "", ""]).encode() + body)
        self.close()


def protocol(limits: Limits, metrics: Metrics) -> Callable[..., Connection]:
    """The factory of the protocol of each connection, for uvicorn's `Config`."""
    # With other versions the limits might not work, or requests get lost.
    for library, version in _WRITTEN_FOR.items():
        installed = metadata.version(library)
        if installed.rpartition(".")[0] != version:
            raise StartError(
                f"{library} {installed} is installed, and this server is written for {version}: "
                f"pip install '{library}=={version}.*'"
            )
    return partial(Connection, limits, metrics)
