"""Errors of forecasts of whole tables."""

from __future__ import annotations


class BatchError(ValueError):
    """A table cannot be forecast, or not here; the message names the place."""


class RowError(BatchError):
    """A row that cannot be read.

    Args:
        place: The file.
        row: Of what was read, from 0.
        said: Why.
    """

    def __init__(self, place: str, row: int, said: str) -> None:
        super().__init__(place, row, said)
        self._place, self._row, self._said = place, row, said

    def __str__(self) -> str:
        return f"{self._place}: row {self._row} (from 0): {self._said}"

    def after(self, rows: int) -> RowError:
        """The same where so many rows come before what was read."""
        return RowError(self._place, self._row + rows, self._said)
