"""Which deadline is the next."""

from __future__ import annotations

import heapq
import itertools
import math
from typing import Generic, TypeVar

_Item = TypeVar("_Item")

# Tickets of what was taken out, which are not worth being cleared away.
_FEW = 64


class Deadlines(Generic[_Item]):
    """Items with deadlines, most of which are taken out long before."""

    def __init__(self) -> None:
        self._items: dict[int, _Item] = {}
        self._heap: list[tuple[float, int]] = []
        self._tickets = itertools.count()

    @property
    def first(self) -> float:
        """The next deadline; infinity without any."""
        while self._heap and self._heap[0][1] not in self._items:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else math.inf

    def add(self, deadline: float, item: _Item) -> int:
        """Put an item in; returns its ticket."""
        ticket = next(self._tickets)
        self._items[ticket] = item
        heapq.heappush(self._heap, (deadline, ticket))
        return ticket

    def discard(self, ticket: int) -> None:
        """Take an item out, if it is still there."""
        self._items.pop(ticket, None)
        # The heap keeps the tickets: without this, for as long as the deadlines are away.
        if len(self._heap) > 2 * len(self._items) + _FEW:
            self._heap = [entry for entry in self._heap if entry[1] in self._items]
            heapq.heapify(self._heap)

    def pop(self, now: float) -> list[_Item]:
        """Take out the items whose deadlines have passed, the earliest first."""
        items = []
        while self.first <= now:
            items.append(self._items.pop(heapq.heappop(self._heap)[1]))
        return items
