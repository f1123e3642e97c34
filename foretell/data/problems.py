"""All that is wrong with a file, in one message."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.data.errors import DataError

_MOST = 20
_MOST_ROWS = 4

Rows = Sequence[int] | NDArray[np.integer]


class Problems:
    """Collects what is wrong, to be told at once.

    Args:
        name: Of the file.
        word: What a row is called: `line` or `row`.
        first: What the first row is called.

    Attributes:
        name: Of the file.
        found: What was added.
    """

    def __init__(self, name: str, word: str, first: int) -> None:
        self.name = name
        self._word = word
        self._first = first
        self.found: list[str] = []

    def of_the_same_file(self) -> Problems:
        """A list of its own, without any."""
        return Problems(self.name, self._word, self._first)

    def add(self, message: str, rows: Rows = (), column: str | None = None) -> None:
        """Add one.

        Args:
            message: What is wrong there, and the remedy.
            rows: Where, in the order of the file; the first few are named.
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
        """Stop where there are any.

        Raises:
            DataError: names them.
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
