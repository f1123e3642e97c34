"""How answers go out: the head of one together with its body."""

from __future__ import annotations

import asyncio


class Writing:
    """What an answer is written to: a transport, of which it needs no more than is here.

    Answers come in pieces, the head first and the body right after it. Every piece of its own is a
    system call and a packet, and wakes the caller: so the first one waits for the second, but no
    longer than until the loop's next turn.

    Args:
        transport: Of the connection.
        loop: It is on.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
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
        """Write what is held, and close the connection."""
        self.flush()
        self._transport.close()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._transport.is_closing()

    def _send(self, *more: bytes) -> None:
        pieces = (self._held, *more)
        if self._turn is not None:
            self._turn.cancel()
        self._turn, self._held = None, b""
        if not self._transport.is_closing():
            self._transport.writelines(pieces)
