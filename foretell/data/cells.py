"""Tables before their columns are interpreted, and frames as such tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

import numpy as np
import pandas as pd

from foretell.data.errors import DataError
from foretell.data.numbers import MARKS, Mark, Numbers, find_mark, is_text, read_numbers
from foretell.data.problems import Problems


class ArrowFrame(Protocol):
    """A frame of polars or another library, or a table of Arrow."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...


@dataclass
class Cells:
    """A table with a name for every column.

    Attributes:
        frame: Rows of the table. Columns of a text file that do not hold numbers alone stay texts.
        decimal: Decimal mark of the texts.
        problems: Collector of the problems.
        read: Python code that reads the table as a frame of pandas.
        notes: Notes for the reader on how the table was read.
        may_miss: Whether the values that a cell lacks stay missing.
    """

    frame: pd.DataFrame
    decimal: Mark
    problems: Problems
    read: str = "frame.rename(columns=str)"
    notes: list[str] = field(default_factory=list)
    may_miss: bool = False

    def report_wrong(self, name: str, numbers: Numbers) -> None:
        """Add the wrong cells of a column of numbers to the problems."""
        wrong = np.flatnonzero(numbers.wrong)
        if len(wrong):
            column = self.frame[name]
            fill = "" if self.may_miss else " with --missing interpolate"
            self.problems.add(
                f"{str(column.iloc[wrong[0]])[:60]!r} is no finite number; correct it, or leave "
                f"the cell empty{fill}",
                column.index[wrong].to_numpy(),
                name,
            )


def of_frame(
    given: pd.DataFrame | ArrowFrame,
    decimal: Mark | None = None,
    name: str = "the frame",
) -> Cells:
    """The table of a frame.

    Args:
        given: A frame of pandas, or of a library with Arrow streams.
        decimal: Decimal mark of the texts; found if not given.
        name: Name of the frame in messages.

    Raises:
        DataError: two columns have the same name, or numbers can be read in two ways.
        TypeError: it is not a frame.
    """
    if isinstance(given, pd.DataFrame):
        frame = given
    elif isinstance(given, pd.Series) or not hasattr(given, "__arrow_c_stream__"):
        raise TypeError(f"expected a frame or a table of Arrow, got a {type(given).__name__}")
    else:
        frame = _of_stream(given, name)
    frame = _with_index(frame, name)
    frame.columns = pd.Index([plain_name(str(name)) for name in frame.columns])
    names = list(frame.columns)
    check_names(name, names, "")
    for column in names:
        frame[column] = _plain(frame[column])
    if decimal is None:
        texts = [frame[column] for column in names if _holds_texts(frame[column])]
        decimal = choose_mark(name, texts)
    return Cells(frame, decimal, Problems(name, "row", 0))


def from_arrow(given: ArrowFrame) -> pd.DataFrame:
    """A frame of pandas; its periods and intervals are restored.

    Raises:
        pyarrow.ArrowException: a column has a type that pandas cannot hold.
    """
    import pyarrow as pa

    # Registers the types of periods and intervals.
    import_module("pandas.core.arrays.arrow.extension_types")
    # Also applies the types to a table that was read before they were registered.
    table = pa.RecordBatchReader.from_stream(given).read_all()
    frame: pd.DataFrame = table.to_pandas()
    return frame


def _of_stream(given: ArrowFrame, name: str) -> pd.DataFrame:
    """Convert a frame to pandas; refuse columns of types that pandas lacks."""
    import pyarrow as pa

    try:
        return from_arrow(given)
    except pa.ArrowException as error:
        reason = str(error)
    odd = "a column"
    for column in getattr(given, "columns", ()):
        try:
            from_arrow(given.select([column]))  # type: ignore[attr-defined]
        except pa.ArrowException:
            odd = f"column {column!r}"
            break
    raise DataError(
        f"{name}: {odd} has a type that is not read ({reason}); cast it to a number of 64 bits or "
        "to a text, or leave it out"
    )


def _with_index(frame: pd.DataFrame, name: str) -> pd.DataFrame:
    """Turn the index into columns, without levels that a column repeats."""
    # Numbers without a name count the rows.
    if frame.index.name is None and pd.api.types.is_integer_dtype(frame.index):
        return frame.reset_index(drop=True)
    check_names(name, [str(each) for each in frame.columns], "")
    repeated = [i for i, level in enumerate(frame.index.names) if level in frame.columns]
    for place in reversed(repeated):
        level = frame.index.names[place]
        if not _are_equal(frame.index.get_level_values(place), frame[level]):
            raise DataError(
                f"{name}: a level of the index and a column are called {level!r}, and differ; "
                "rename one, or leave the index out, such as by frame.reset_index(drop=True)"
            )
        if frame.index.nlevels == 1:
            return frame.reset_index(drop=True)
        frame = frame.droplevel(place)
    return frame.reset_index()


def _are_equal(level: pd.Index, column: pd.Series) -> bool:
    """Whether a level of an index equals a column, or the times in a column of texts."""
    if level.equals(pd.Index(column)):
        return True
    if not isinstance(level, pd.DatetimeIndex):
        return False
    times = pd.to_datetime(column, errors="coerce", utc=True, format="ISO8601")
    return pd.to_datetime(level, utc=True).equals(pd.Index(times))


def _plain(column: pd.Series) -> pd.Series:
    """A column with Arrow types, intervals and nested cells replaced by plain ones."""
    if isinstance(column.dtype, pd.ArrowDtype):
        import pyarrow as pa

        column = pa.array(column).to_pandas().set_axis(column.index)
    if isinstance(column.dtype, pd.IntervalDtype):
        column = pd.Series(column.array.left, column.index)
    if column.dtype.kind == "c":
        column = column.map(str)
    if column.dtype == object:
        nested = column.map(lambda cell: isinstance(cell, list | tuple | dict | set | np.ndarray))
        if nested.any():
            column = column.where(~nested, column.map(str))
    return column


def _holds_texts(column: pd.Series) -> bool:
    return is_text(column) and any(isinstance(cell, str) for cell in column)


def plain_name(name: str) -> str:
    """A column's name in one line."""
    return " ".join(part.strip() for part in name.splitlines()) if "\n" in name else name


def check_names(file: str, names: Sequence[str], place: str) -> None:
    """Refuse two columns of one name."""
    for i, name in enumerate(names):
        if name and name in names[:i]:
            raise DataError(f"{file}: {place}two columns are called {name!r}; rename one")


def choose_mark(file: str, columns: list[pd.Series], *, has_points: bool = False) -> Mark:
    """The decimal mark of columns of texts.

    Args:
        file: Name of the file in messages.
        columns: Columns that may hold numbers.
        has_points: Whether other columns were written with points.

    Raises:
        DataError: both marks fit and give different numbers.
    """
    found = find_mark(columns)
    if found is not None:
        return found
    both = _both_ways(columns)
    if has_points or both is None:
        return "."
    raise DataError(f"{file}: {both}; --decimal . or --decimal , sets the mark")


def _both_ways(columns: list[pd.Series]) -> str | None:
    """A message on a number that the two marks read differently; None if there is no such one."""
    for cells in columns:
        found = [read_numbers(cells, mark).values for mark in MARKS]
        differs = np.flatnonzero(~((found[0] == found[1]) | np.isnan(found[0] + found[1])))
        if len(differs):
            row = differs[0]
            return (
                f"numbers such as {cells.iloc[row]!r} can be read as {found[0][row]:.10g} and as "
                f"{found[1][row]:.10g}"
            )
    return None
