"""How many bytes of requests the server holds at a time, over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from foretell.service.errors import BuffersFullError, TooLargeError

_RETRY_SECONDS = 1


class BodyBudget:
    """Bytes that all requests share, for their bodies and while large ones are read.

    For use on the event loop alone.

    Args:
        limit: Most bytes held at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """One request's share, given back at the end.

        Yields:
            Takes that many bytes more, or gives them back if they are less than none; raises
            `BuffersFullError` if they are not to be had now, `TooLargeError` if they never are.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if taken + count > self._limit:
                raise TooLargeError(
                    f"to read the request would take about {taken + count} bytes, and the server "
                    f"may hold {self._limit} (max_buffered_bytes); send it in parts, or in binary"
                )
            if self._held + count > self._limit:
                raise BuffersFullError(
                    f"the server holds {self._held} bytes of requests and may hold {self._limit}",
                    retry_after=_RETRY_SECONDS,
                )
            taken += count
            self._held += count

        try:
            yield take
        finally:
            self._held -= taken
