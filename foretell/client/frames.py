"""From a caller's frame to the table that is sent, and from the answer's back to such a frame."""

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

# As the server names them.
ID, TIME = "unique_id", "ds"
# What columns of times are called, in small letters.
_TIMES = {"date", "datetime", "time", "timestamp"}
# What becomes of a frame that is none of those with more in them than Arrow knows.
_EXPECTED = (
    "expected a DataFrame of pandas or polars, a pyarrow Table, or another table that Arrow reads"
)


@dataclass(frozen=True)
class Given(Generic[Frame]):
    """A caller's frame, ready to be sent.

    Attributes:
        table: `unique_id`, `ds` if there are times, and the caller's other columns.
        id_column: What the caller calls the series; None where there is one without a name.
        time_column: What the caller calls the times; None where there are none.
        restore: Makes the caller's kind of frame of a table with the caller's names.
    """

    table: pa.Table
    id_column: str | None
    time_column: str | None
    restore: Restore

    def back(self, answer: pa.Table) -> Frame:
        """The answer, as the caller's frame is: its kind, names, types and index."""
        if self.id_column is None:
            answer = answer.drop_columns([ID])
        names = {ID: self.id_column, TIME: self.time_column}
        answer = answer.rename_columns([names.get(name) or name for name in answer.column_names])
        return cast("Frame", self.restore(answer.replace_schema_metadata(None)))

    def named(self, place: str | None) -> str | None:
        """A place in what was sent, as the caller knows it."""
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
        frame: Rows of one series, or in long form of many; in order of time.
        id_column: Names the series; `unique_id` where there is such a column. Without one all rows
            are of one series.
        time_column: Holds the times; the index of pandas if it has times, `ds`, or the only column
            with times.

    Raises:
        InvalidInputError: it is no frame, or has not such columns.
    """
    table, restore = _to_table(frame, [id_column or ID, time_column or TIME])
    names = table.column_names
    for name in (id_column, time_column):
        if name is not None:
            _check_column(name, names)
    series = id_column or (ID if ID in names else None)
    time = time_column or _times_of(table, {series})
    renamed = {series: ID, time: TIME}
    for name, wanted in ((series, ID), (time, TIME)):
        if name not in (None, wanted) and wanted in names:
            raise InvalidInputError(
                f"the column {name} is meant, and there is one of this name; drop or rename it",
                place=wanted,
            )
    table = table.rename_columns([renamed.get(name, name) for name in names])
    if series is None:
        only = pa.DictionaryArray.from_arrays(pa.array([0] * table.num_rows, pa.int8()), [""])
        table = table.append_column(ID, only)
    return Given(table, series, time, restore)


def _check_column(name: str, names: list[str]) -> None:
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
    # Of another type: the server says how to convert it.
    found = found or [name for name in kinds if name.lower() in _TIMES]
    if len(found) > 1:
        raise InvalidInputError(
            f"columns of times: {', '.join(found[:20])}; choose one with time_column=…",
            place="time_column",
        )
    return found[0] if found else None


def is_time(kind: pa.DataType) -> bool:
    """Whether a column of this type says when."""
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _to_table(frame: object, wanted: Iterable[str]) -> tuple[pa.Table, Restore]:
    """All columns of a frame, and how to make such a frame of a table.

    Args:
        frame: Any.
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
            # Unlike its stream, without views of texts, which Arrow does less with.
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
    """Cast columns to the types of those that they are of.

    Forecasts have the type of their channel if it has fractions, or float64.
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
        # Of texts alone Arrow's cast makes dictionaries.
        encoded = column.dictionary_encode() if pa.types.is_dictionary(kind) else column
        columns.append(encoded.cast(kind))
    return pa.table(columns, answer.column_names)


def channel_of(name: str, known: Iterable[str]) -> str | None:
    """The column that one of an answer is of: itself, or that of the quantile it is."""
    return next((each for each in (name, name.rpartition("_q")[0]) if each in known), None)


class _PolarsFrame:
    """Makes frames of polars like one that was given."""

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
