"""Conversion of frames to Arrow tables for the server, and of its tables back to frames."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa

from foretell.bundle.nearness import nearest
from foretell.client.errors import InvalidInputError

Frame = TypeVar("Frame")
Restore = Callable[[pa.Table], Any]

# Column names of the server.
ID, TIME = "unique_id", "ds"
# Usual names of columns of times, in lower case.
_TIMES = {"date", "datetime", "time", "timestamp"}
# Message for a frame that Arrow cannot read.
_EXPECTED = (
    "expected a DataFrame of pandas or polars, a pyarrow Table, or another table that Arrow reads"
)


@dataclass(frozen=True)
class Given(Generic[Frame]):
    """A caller's frame, ready to be sent.

    Attributes:
        table: Columns `unique_id`, `ds` if there are times, and the caller's other columns.
        id_column: The caller's column of series names; None for one series without a name.
        time_column: The caller's column of times; None without times.
        restore: Converts a table with the caller's column names to the caller's kind of frame.
    """

    table: pa.Table
    id_column: str | None
    time_column: str | None
    restore: Restore

    def back(self, answer: pa.Table) -> Frame:
        """The answer with the kind, names, types and index of the caller's frame."""
        if self.id_column is None:
            answer = answer.drop_columns([ID])
        names = {ID: self.id_column, TIME: self.time_column}
        answer = answer.rename_columns([names.get(name) or name for name in answer.column_names])
        return cast("Frame", self.restore(answer.replace_schema_metadata(None)))

    def named(self, place: str | None) -> str | None:
        """A place of the request, with the caller's column names."""
        if place is None:
            return None
        found = re.match(rf"({ID}|{TIME})(?=$|\[|=)", place)
        if found is None:
            return place.removeprefix("options.").removeprefix("query.")
        name = {ID: self.id_column, TIME: self.time_column or TIME}[found[0]]
        return None if name is None else name + place[found.end() :]


def read(frame: Frame, id_column: str | None, time_column: str | None) -> Given[Frame]:
    """Find the series and the times of a frame.

    Args:
        frame: Rows of one series, or of many in long form; in order of time.
        id_column: Column of series names; `unique_id` by default. Without it, all rows are of one
            series.
        time_column: Column of times; by default the index of pandas if it has times, `ds`, or the
            only column of times.

    Raises:
        InvalidInputError: the frame cannot be read, or lacks these columns.
    """
    table, restore = _to_table(frame, [id_column or ID, time_column or TIME])
    names = table.column_names
    for name in (id_column, time_column):
        if name is not None:
            check_column(name, names)
    series = id_column or (ID if ID in names else None)
    time = time_column or _times_of(table, {series})
    renamed = {series: ID, time: TIME}
    for name, wanted in ((series, ID), (time, TIME)):
        if name not in (None, wanted) and wanted in names:
            raise InvalidInputError(
                f"the column {name} would get this name, which the frame has; drop or rename it",
                place=wanted,
            )
    table = table.rename_columns([renamed.get(name, name) for name in names])
    if series is None:
        only = pa.DictionaryArray.from_arrays(pa.array([0] * table.num_rows, pa.int8()), [""])
        table = table.append_column(ID, only)
    return Given(table, series, time, restore)


def check_column(name: str, names: list[str]) -> None:
    """Check that a frame has one column of a name.

    Raises:
        InvalidInputError: it has none, or several.
    """
    if names.count(name) != 1:
        meant = nearest(name, [each for each in names if each != name])
        hint = f"; did you mean {meant!r}?" if meant else ""
        found = ", ".join(names[:20]) or "none"
        raise InvalidInputError(
            f"expected one column of this name; the frame has {found}{hint}", place=name
        )


def _times_of(table: pa.Table, others: set[str | None]) -> str | None:
    if TIME in table.column_names:
        return TIME
    kinds = {field.name: field.type for field in table.schema if field.name not in others}
    found = [name for name, kind in kinds.items() if is_time(kind)]
    # A column of another type: the server's error explains how to convert it.
    found = found or [name for name in kinds if name.lower() in _TIMES]
    if len(found) > 1:
        raise InvalidInputError(
            f"columns of times: {', '.join(found[:20])}; choose one with time_column=…",
            place="time_column",
        )
    return found[0] if found else None


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of this type contains times."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _to_table(frame: object, wanted: Iterable[str]) -> tuple[pa.Table, Restore]:
    """All columns of a frame, and a function that converts a table to such a frame.

    Args:
        frame: The frame.
        wanted: Names of columns that may be levels of an index.
    """
    try:
        if "pandas" in sys.modules:
            import pandas as pd

            if isinstance(frame, pd.DataFrame):
                from foretell.client import pandas_frames

                return pandas_frames.to_table(frame, wanted)
        polars = sys.modules.get("polars")
        if polars is not None and isinstance(frame, polars.DataFrame):
            # The stream of polars has string views, which fewer functions of Arrow support.
            return frame.to_arrow(), _PolarsFrame(frame)
        if not hasattr(frame, "__arrow_c_stream__"):
            raise TypeError(type(frame).__qualname__)
        table = pa.table(frame)
    except (pa.ArrowException, TypeError, ValueError) as error:
        hint = next(
            (
                f"; convert it: .{method}()"
                for method in ("collect", "to_frame")
                if hasattr(frame, method)
            ),
            "",
        )
        raise InvalidInputError(f"{_EXPECTED}: {error}{hint}", place="frame") from None
    return table, lambda answer: as_given(answer, table.schema)


def as_given(answer: pa.Table, schema: pa.Schema) -> pa.Table:
    """Cast the columns of an answer to the types of the caller's columns.

    Forecasts get the type of their channel if it is floating, otherwise float64.
    """
    columns = []
    for name, column in zip(answer.column_names, answer.columns, strict=True):
        kind = column.type
        if pa.types.is_floating(kind):
            channel = channel_of(name, schema.names)
            given = schema.field(channel).type if channel else None
            kind = given if given is not None and pa.types.is_floating(given) else pa.float64()
        elif name in schema.names:
            kind = schema.field(name).type
        # Arrow casts only strings to dictionaries, so other columns are encoded first.
        encoded = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
        columns.append(encoded.cast(kind))
    return pa.table(columns, answer.column_names)


def channel_of(name: str, known: Iterable[str]) -> str | None:
    """The known column of a column of an answer: the same name, or the name before `_q<level>`."""
    return next((each for each in (name, name.rpartition("_q")[0]) if each in known), None)


class _PolarsFrame:
    """Converts tables to polars frames like the given one."""

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 - polars need not be installed
        self._kind = type(frame)
        self._schema = frame.schema

    def __call__(self, answer: pa.Table) -> Any:  # noqa: ANN401
        made = self._kind(answer)
        kinds = {}
        for name, kind in made.schema.items():
            channel = channel_of(name, self._schema)
            is_number = kind.is_float()
            if channel and (not is_number or self._schema[channel].is_float()):
                kinds[name] = self._schema[channel]
            elif is_number:
                kinds[name] = sys.modules["polars"].Float64
        return made.cast(kinds)
