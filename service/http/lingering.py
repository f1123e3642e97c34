"""The end of a connection whose caller may still be sending."""

from __future__ import annotations

import asyncio

# Whoever sends so much more does not look for an answer.
_MOST_BYTES = 256 * 1024 * 1024


class Lingering:
    """Says that nothing more will be sent, and drops what still comes until the caller closes, too.

    Were the connection closed at once, the kernel would answer what comes with a reset, by which
    the caller may lose the answer.

    Args:
        transport: Of the connection; it is reading.
        loop: It is on.
        seconds: After which the connection is closed, whatever the caller does.
    """

    def __init__(
        self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._bytes = 0
        self._timer = loop.call_later(seconds, transport.close)
        transport.write_eof()

    def hurry(self, seconds: float) -> None:
        """Close the connection after that many seconds."""
        self.cancel()
        self._timer = self._loop.call_later(seconds, self._transport.close)

    def cancel(self) -> None:
        """The connection is closed."""
        self._timer.cancel()

    def drop(self, count: int) -> None:
        """So many bytes more have come."""
        self._bytes += count
        if self._bytes > _MOST_BYTES:
            self._transport.close()
