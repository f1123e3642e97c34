"""All problems of a file in one message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError

_MOST = 20
_MOST_ROWS = 4

Rows = Sequence[int] | NDArray[np.integer]


class Problems:
    """Collects problems and raises them together.

    Args:
        name: Name of the file.
        word: Word for a row, `line` or `row`.
        first: Number of the first row in messages.

    Attributes:
        name: Name of the file.
        found: Problems found so far.
    """

    def __init__(self, name: str, word: str, first: int) -> None:
        self.name = name
        self._word = word
        self._first = first
        self.found: list[str] = []

    def of_the_same_file(self) -> Problems:
        """An empty collection for the same file."""
        return Problems(self.name, self._word, self._first)

    def add(self, message: str, rows: Rows = (), column: str | None = None) -> None:
        """Add a problem.

        Args:
            message: Message with the remedy.
            rows: Rows in the order of the file; the message names the first few.
            column: Name of the column.
        """
        place = []
        if len(rows):
            named = [str(int(row) + self._first) for row in rows[:_MOST_ROWS]]
            more = len(rows) - len(named)
            plural = "s" if len(rows) > 1 else ""
            place.append(f"{self._word}{plural} {_joined(named, more)}")
        if column is not None:
            place.append(f"column {column!r}")
        self.found.append(": ".join([", ".join(place), message] if place else [message]))

    def check(self) -> None:
        """Raise the problems, if there are any.

        Raises:
            DataError: lists the problems.
        """
        if len(self.found) == 1:
            raise DataError(f"{self.name}: {self.found[0]}")
        if self.found:
            listed = [f"\n  {one}" for one in self.found[:_MOST]]
            if (more := len(self.found) - _MOST) > 0:
                listed.append(f"\n  and {more} more")
            raise DataError(f"{self.name}: {len(self.found)} problems:{''.join(listed)}")


def _joined(named: list[str], more: int) -> str:
    if more:
        return f"{', '.join(named)} and {more} more"
    return " and ".join([", ".join(named[:-1]), named[-1]] if named[:-1] else named)
