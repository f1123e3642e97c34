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


class RepeatedError(BatchError):
    """Rows of a series do not follow each other.

    Args:
        name: The series.
        row: Of all rows, from 0: where it begins again.

    Attributes:
        row: The same.
    """

    def __init__(self, name: object, row: int) -> None:
        super().__init__(name, row)
        self._name, self.row = name, row

    def at(self, place: str, row: int, column: str) -> BatchError:
        """The same with the file, the row of it, and what it calls the column of names."""
        return BatchError(
            f"{place}: the rows of series {self._name!r} do not follow each other: it begins again "
            f"at row {row} (from 0); sort the table by {column} and time"
        )
