"""Whose turn it is: by the seconds that each has had."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

_One = TypeVar("_One", bound=Hashable)


class Turns(Generic[_One]):
    """Shares seconds evenly among those who wait.

    The next is who has had least, of several the one whose turn was longest ago. Nobody saves up by
    not waiting: who comes back counts as having had what the last one had whose turn it was.
    """

    def __init__(self) -> None:
        self._waiting: dict[_One, None] = {}
        self._had: dict[_One, float] = {}
        self._least = 0.0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, one: _One) -> None:
        """One waits, perhaps already."""
        if one not in self._waiting:
            self._waiting[one] = None
            self._had[one] = max(self._had.get(one, 0.0), self._least)

    def leave(self, one: _One) -> None:
        """One does not wait any more, or never did."""
        self._waiting.pop(one, None)

    def next(self) -> _One:
        """Whose turn it is of those who wait; there must be some."""
        one = min(self._waiting, key=self._had.__getitem__)
        self._least = max(self._least, self._had[one])
        self._waiting[one] = self._waiting.pop(one)
        return one

    def charge(self, one: _One, seconds: float) -> None:
        """One has had more, or less than was charged before; who is forgotten owes nothing."""
        if one in self._had:
            self._had[one] += seconds

    def forget(self, one: _One) -> None:
        """One does not come again."""
        self._waiting.pop(one, None)
        self._had.pop(one, None)
