"""The bytes of a connection: a parser of requests, and the transport that answers go to."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

import httptools

if TYPE_CHECKING:
    from foretell.service.http.protocol import Connection


class Parser(httptools.HttpRequestParser):
    """Reads a request that offers an upgrade, as Java's and curl's do, like any other request.

    llhttp ends such a request after its head and takes what follows for the other protocol. But the
    request's body follows: the head is read a second time, without the offer.

    Args:
        connection: Receives the callbacks. The head of an offer is reported twice; the first time
            `should_upgrade` is true, and the connection must not start an answer. Nothing is read
            once `connection.has_ended`.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._begin()

    def feed_data(self, data: bytes | bytearray | memoryview | array[int]) -> None:
        """Read received bytes.

        Raises:
            HttpParserError: they are no HTTP request.
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
            head = self._head_without_offer()
            # llhttp reads nothing after the last request of a connection, so start anew.
            self._begin()
            super().feed_data(head)
            rest = rest[end:]

    def _begin(self) -> None:
        super().__init__(self._connection)
        # As in uvicorn: bytes after the last request of a connection are no error.
        self.set_dangerous_leniencies(lenient_data_after_close=True)

    def _head_without_offer(self) -> bytes:
        target, version = self._connection.url, self.get_http_version().encode()
        lines = [b"%b %b HTTP/%b" % (self.get_method(), target, version)]
        lines += [b"%b: %b" % line for line in self._connection.headers if line[0] != b"upgrade"]
        return b"\r\n".join([*lines, b"", b""])


class CoalescingTransport:
    """Sends the head and the body of an answer together.

    uvicorn writes the head first and the body right after it; each write of its own would be a
    system call, a packet and a wake-up of the client. So the first piece waits for the second, but
    no longer than until the event loop's next turn. It has no more of a transport than uvicorn's
    request cycle needs.

    Args:
        transport: Of the connection.
        loop: The event loop.
        end: Ends the connection, called by `close` when everything is written.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        end: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._end = end
        self._has_ended = False
        self._written_bytes = 0
        self._held = b""
        self._flush_handle: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Write a piece, or hold it for the next one; nothing is sent on a closed connection."""
        if self._flush_handle is None:
            self._held = data
            self._flush_handle = self._loop.call_soon(self.flush)
        else:
            self.flush(data)

    def flush(self, *more: bytes) -> None:
        """Write what is held, and then `more`."""
        if self._flush_handle is None:
            return
        pieces = (self._held, *more)
        self._flush_handle.cancel()
        self._flush_handle, self._held = None, b""
        if not self.is_closing():
            self._written_bytes += sum(map(len, pieces))
            self._transport.writelines(pieces)

    def close(self) -> None:
        """Write what is held, and end the connection."""
        self.flush()
        if not self.is_closing():
            self._has_ended = True
            self._end()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._has_ended or self._transport.is_closing()

    @property
    def acknowledged_bytes(self) -> int:
        """Bytes that the client's machine has acknowledged.

        The transport's buffer alone does not tell: the kernel takes more from it only once it has
        sent most of what it holds itself, which may be megabytes.
        """
        queued = array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self._transport.get_extra_info("socket"), termios.TIOCOUTQ, queued)
        return self._written_bytes - self._transport.get_write_buffer_size() - queued[0]
