"""What answers are written to, and how much of it callers have taken."""

from __future__ import annotations

import asyncio
import fcntl
import termios
from array import array
from collections.abc import Callable
from contextlib import suppress


class Writing:
    """What an answer is written to: a transport, of which it needs no more than is here.

    Answers come in pieces, the head first and the body right after it. Every piece of its own is a
    system call and a packet, and wakes the caller: so the first one waits for the second, but no
    longer than until the loop's next turn.

    Args:
        transport: Of the connection.
        loop: It is on.
        end: Ends the connection when all is written.
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
        self._written = 0
        self._held = b""
        self._turn: asyncio.Handle | None = None

    def write(self, data: bytes) -> None:
        """Write a piece, or hold it for the next one; in vain once the connection is closed."""
        if self._turn is None:
            self._held = data
            self._turn = self._loop.call_soon(self.flush)
        else:
            self._send(data)

    def flush(self) -> None:
        """Write what is held."""
        if self._turn is not None:
            self._send()

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
    def taken(self) -> int:
        """Bytes that the caller's machine has confirmed.

        The transport's buffer alone does not tell: the kernel takes more from it only once it has
        sent much of what it holds itself, which may be megabytes.
        """
        queued = array("i", [0])
        with suppress(OSError):
            fcntl.ioctl(self._transport.get_extra_info("socket"), termios.TIOCOUTQ, queued)
        return self._written - self._transport.get_write_buffer_size() - queued[0]

    def _send(self, *more: bytes) -> None:
        pieces = (self._held, *more)
        if self._turn is not None:
            self._turn.cancel()
        self._turn, self._held = None, b""
        if not self.is_closing():
            self._written += sum(map(len, pieces))
            self._transport.writelines(pieces)
