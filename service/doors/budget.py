"""How many bytes of request bodies the server holds at a time, over all requests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from foretell.service.errors import BuffersFullError

_RETRY_SECONDS = 1


class BodyBudget:
    """Bytes that the bodies of all requests share; for use on the event loop alone.

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
            Takes that many bytes more; raises `BuffersFullError` if they are not to be had.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
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
