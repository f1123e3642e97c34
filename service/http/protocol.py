"""Connections that nobody can hold for ever: bounded in number, and in how slow they may be.

All that is taken of uvicorn's protocol, and changed, is here.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from importlib import metadata
from typing import Any

import httptools
import orjson
from starlette.requests import Request
from starlette.types import Receive
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from foretell.service.errors import StartError, error_body, error_fields
from foretell.service.http.lingering import Lingering
from foretell.service.http.writing import Writing
from foretell.service.metrics import Metrics


class Parser(httptools.HttpRequestParser):
    """Reads requests that offer another protocol, as Java's and curl's do, like any others.

    To llhttp such a request ends with its head, and what follows is in the other protocol. But its
    body follows: the head is read a second time, without the offer.

    Args:
        connection: Told what is read. Of an offer it is told twice; the first time, when
            `should_upgrade` says so, it is to begin nothing. Once it has ended nothing is read.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begin()

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Read what came.

        Raises:
            HttpParserError: it is no request.
        """
        rest = memoryview(data)
        while rest:
            try:
                super().feed_data(rest)
                return
            except httptools.HttpParserUpgrade as offer:
                (end,) = offer.args
            if self._connection.has_ended:
                return
            head = self._plain_head()
            # After the last request of a connection llhttp reads nothing, not even its head.
            self._begin()
            super().feed_data(head)
            rest = rest[end:]

    def _begin(self) -> None:
        super().__init__(self._connection)
        # As uvicorn has it: to go on sending after the last request is no error.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def _plain_head(self) -> bytes:
        target, version = self._connection.url, self.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.get_method(), target, version)]
        lines += [b"%b: %b" % line for line in self._connection.headers if line[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


# In the scope of a request, among what servers offer beyond ASGI.
EXTENSION = "foretell.caller"
# Likewise, from when all of the request's body is here.
WHOLE = "foretell.whole"

Watcher = Callable[[], None]


class ClientConnection:
    """The caller at the other end of a connection; for use on the event loop alone.

    Args:
        listen: Has the server read on, which may have paused when it had enough of a body: the end
            of a connection is something that is read.

    Attributes:
        gone: Whether it hung up.
    """

    def __init__(self, listen: Callable[[], None]) -> None:
        self.gone = False
        self._listen = listen
        self._watchers: set[Watcher] = set()

    @property
    def watched(self) -> bool:
        """Whether anybody would be told."""
        return bool(self._watchers)

    def watch(self, watcher: Watcher) -> None:
        """Have a function called when the caller hangs up, or at once if it has."""
        self._watchers.add(watcher)
        if self.gone:
            watcher()
        else:
            self._listen()

    def unwatch(self, watcher: Watcher) -> None:
        """Have it called no more."""
        self._watchers.discard(watcher)

    def disconnect(self) -> None:
        """The caller is gone."""
        self.gone = True
        for watcher in tuple(self._watchers):
            watcher()


class _Reached(ClientConnection):
    """A caller of whom no more is known than ASGI tells, which takes a task to listen.

    Args:
        receive: Of a request whose body was read.
    """

    def __init__(self, receive: Receive) -> None:
        super().__init__(self._begin)
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def unwatch(self, watcher: Watcher) -> None:
        super().unwatch(watcher)
        if self._task is not None and not self.watched:
            self._task.cancel()
            self._task = None

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.disconnect()


def connection_of(request: Request) -> ClientConnection:
    """The caller of a request whose body was read."""
    caller: ClientConnection | None = request.scope.get("extensions", {}).get(EXTENSION)
    return _Reached(request.receive) if caller is None else caller


# The headers that clients and proxies send take a few kilobytes.
_MOST_HEADER_BYTES = 64 * 1024
# What is read before the headers are measured again.
_PIECE_BYTES = 8 * 1024
# After which a connection may be one too many no more.
_RETRY_SECONDS = 1
# From the beginning of the server's end to the close of a connection that nothing comes on, or that
# is over but for its close.
_LAST_SECONDS = 1.0
# Connections over the limit that are refused and not closed at once: each takes a file.
MOST_REFUSED = 8


@dataclass(frozen=True)
class Limits:
    """What every connection keeps to.

    Attributes:
        connections: Most that are open at a time.
        seconds: Time a caller has to send the headers of a request, or the rest of a body that the
            answer did not wait for, and to take something of an answer; and to close a connection
            that the server has ended while something was still to come.
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
        # Whether what has come is no request, of which the answers before it are not to know.
        self._refused = False
        self._before: RequestResponseCycle | None = None
        # Since the last of a body or the end of a request: trailers and chunk sizes are among them.
        self._header_bytes = 0
        # What is to come of a body whose length was told.
        self._body_bytes = 0
        self._owed: object = None
        self._owed_since: float | None = None
        self._taken = 0
        self._taken_since: float | None = None
        # Whether nothing has come of another request than those that are here as a whole.
        self._is_whole = False
        self.is_too_many = False
        self._lingering: Lingering | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve a connection, or refuse it."""
        super().connection_made(transport)
        self._writing = Writing(transport, self.loop, self._end)
        self._caller = ClientConnection(self.flow.resume_reading)
        limits = self._limits
        is_free = self.server is not None and self.server[1] == limits.free_port
        self.is_too_many = not is_free and self._served() > limits.connections
        if self.is_too_many:
            self._refuse("too_many", HTTPStatus.SERVICE_UNAVAILABLE, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        """The caller, or the server, has ended the connection."""
        super().connection_lost(exc)
        if self._lingering is not None:
            self._lingering.cancel()
        self._caller.disconnect()

    def data_received(self, data: bytes) -> None:
        """Read what came of a request."""
        if self._lingering is not None:
            self._lingering.drop(len(data))
            return
        start = 0
        while start < len(data) and not self._refused:
            # There are no headers before the end of a body.
            piece = data[start : start + max(_PIECE_BYTES, self._body_bytes)]
            start += len(piece)
            self._header_bytes += len(piece)
            super().data_received(piece)
            if self._header_bytes > _MOST_HEADER_BYTES:
                status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                self._refuse("headers", status, f"at most {_MOST_HEADER_BYTES} bytes of headers")
            if self._writing.is_closing():
                return

    @property
    def has_ended(self) -> bool:
        """Whether nothing more is read."""
        return self._refused or self._writing.is_closing()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        self._refuse("malformed", HTTPStatus.BAD_REQUEST, msg)

    def shutdown(self) -> None:
        """Begin to stop: answer what comes in a moment more, and then close.

        A caller who has just begun to send could not know whether he may try again.
        """
        self._stopping = True
        if self._lingering is not None:
            self._lingering.hurry(_LAST_SECONDS)
        elif self._is_answering():
            self.cycle.keep_alive = False
        else:
            self.loop.call_later(_LAST_SECONDS, self._close_if_idle)

    def on_message_begin(self) -> None:
        """The first of a request is here."""
        super().on_message_begin()
        self._is_whole = False

    def on_headers_complete(self) -> None:
        """A request can be answered."""
        if self.parser.should_upgrade():
            # An offer is read again without it; behind this there is nothing to read.
            if self.parser.get_method() == b"CONNECT":
                self._refuse("connect", HTTPStatus.BAD_REQUEST, "this server is no proxy")
            return
        # One that began when an answer was there before its request ended.
        self._unset_keepalive_if_required()
        self._before = self.cycle
        super().on_headers_complete()
        self._body_bytes = int(dict(self.headers).get(b"content-length", 0))
        # Those that follow a body are nobody's.
        self.headers = []
        # The task that answers has not run yet.
        self.cycle.transport = self._writing  # type: ignore[assignment]
        self.scope["extensions"] = {EXTENSION: self._caller}  # type: ignore[dict-item]
        if self._stopping:
            self.cycle.keep_alive = False

    def on_body(self, body: bytes) -> None:
        """Some of a request's body is here."""
        if self.cycle.body or self.cycle.response_complete:
            if type(self.cycle.body) is bytes:  # type: ignore[comparison-overlap]
                # Each further piece would copy all that is there.
                self.cycle.body = bytearray(self.cycle.body)
            super().on_body(body)
        else:
            # uvicorn would put it into an array, of which it then makes bytes again.
            self.cycle.body = body  # type: ignore[assignment]
            super().on_body(b"")
        self._header_bytes = 0
        self._body_bytes -= len(body)

    def on_message_complete(self) -> None:
        """All of a request is here."""
        if not self.parser.should_upgrade():
            super().on_message_complete()
            self._is_whole = True
            self._header_bytes = 0
            self.scope["extensions"][WHOLE] = {}
            if self.cycle.response_complete and not self._writing.is_closing():
                # What came since the answer has stopped the clock that it had set.
                self.timeout_keep_alive_task = self.loop.call_later(
                    self.timeout_keep_alive, self.timeout_keep_alive_handler
                )

    def on_response_complete(self) -> None:
        """All of an answer is written, and the next request can be answered, if there is one."""
        if not self._writing.is_closing():
            super().on_response_complete()

    def check(self, now: float) -> None:
        """Cut the connection off if its caller is too slow; to be called about once a second.

        Args:
            now: On the loop's clock.
        """
        # Between requests another timer runs, until anything arrives, and at the end.
        idle = self.timeout_keep_alive_task is not None or self._lingering is not None
        if idle or self._is_answering():
            self._owed_since = None
        elif self._owed_since is None or self._owed is not self.scope:
            self._owed, self._owed_since = self.scope, now
        elif now - self._owed_since > self._limits.seconds:
            self._cut_off("slow_request")
        if not self.transport.get_write_buffer_size():
            self._taken_since = None
        elif self._taken_since is None or self._writing.taken > self._taken:
            self._taken, self._taken_since = self._writing.taken, now
        elif now - self._taken_since > self._limits.seconds:
            self._cut_off("slow_reader")

    def _close_if_idle(self) -> None:
        if not self._is_answering():
            self._writing.flush()
            self.transport.close()

    def _end(self) -> None:
        is_read = self._is_whole and not self._refused and not self.pipeline
        is_more = self.is_too_many and len(self.connections) - self._served() > MOST_REFUSED
        if is_read or is_more:
            self.transport.close()
            return
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        seconds = self._limits.seconds
        if self._stopping:
            seconds = min(seconds, _LAST_SECONDS)
        self._lingering = Lingering(self.transport, self.loop, seconds)

    def _served(self) -> int:
        """Open connections but those that were too many and wait for their callers to close."""
        count = len(self.connections)
        if count <= self._limits.connections:
            return count
        own = (each for each in self.connections if isinstance(each, Connection))
        return count - sum(connection.is_too_many for connection in own)

    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _cut_off(self, reason: str) -> None:
        self._metrics.cut_off(reason)
        self.transport.abort()

    def _refuse(self, reason: str, status: HTTPStatus, message: str) -> None:
        if self.has_ended:
            return
        before: RequestResponseCycle | None = self.cycle
        own = None
        if before is not None and before.scope is self.scope:
            before, own = self._before, before
        if before is not None and not before.response_complete:
            # What it would be answered would be read as the answer of the request before it, with
            # whose own answer the connection ends.
            before.keep_alive = False
            self._refused = True
            self._metrics.cut_off(reason)
            return
        if own is not None and own.response_started:
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


# What `Connection` and `Parser` change is no public interface of theirs.
_WRITTEN_FOR = {"uvicorn": "0.54", "httptools": "0.9"}


def protocol(limits: Limits, metrics: Metrics) -> Callable[..., Connection]:
    """What speaks HTTP on the server's connections.

    Args:
        limits: As for `Connection`.
        metrics: Likewise.

    Raises:
        StartError: a library has another version than the one that this was written for. It might
            keep connections to no limits, or lose requests.
    """
    for library, version in _WRITTEN_FOR.items():
        installed = metadata.version(library)
        if installed.rpartition(".")[0] != version:
            raise StartError(
                f"{library} {installed} is installed, and this server is written for {version}: "
                f"pip install '{library}=={version}.*'"
            )
    return partial(Connection, limits, metrics)
