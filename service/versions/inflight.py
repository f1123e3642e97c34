"""Which requests are being answered: what they may hold is not taken away before they end."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class InFlight:
    """The requests that have begun and not ended; threads may share it.

    A request looks a model up once and uses it until it ends. A model that can no longer be looked
    up is therefore unused as soon as every request that had begun by then has ended, however many
    have begun since.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._requests: set[object] = set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """A request, from before it looks anything up."""
        request = object()
        with self._changed:
            self._requests.add(request)
        try:
            yield
        finally:
            with self._changed:
                self._requests.discard(request)
                self._changed.notify_all()

    def settle(self, timeout: float) -> bool:
        """Wait until every request that has begun has ended.

        Args:
            timeout: Most seconds to wait.

        Returns:
            Whether they have.
        """
        with self._changed:
            begun = frozenset(self._requests)
            return self._changed.wait_for(lambda: self._requests.isdisjoint(begun), timeout)
