"""Frames of pandas: indices, and types that Arrow lacks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa

from foretell.client.frames import TIME, Restore, as_given, channel_of


def to_table(frame: pd.DataFrame, wanted: Iterable[str]) -> tuple[pa.Table, Restore]:
    """All columns, and levels of the index that contain times or have a wanted name.

    Raises:
        pyarrow.ArrowException, TypeError, ValueError: Arrow cannot convert a column.
    """
    flat, index = _without_index(frame, set(wanted))
    dtypes = {str(name): dtype for name, dtype in flat.dtypes.items()}
    for name, dtype in flat.dtypes.items():
        if isinstance(dtype, pd.PeriodDtype):
            flat = flat.assign(**{str(name): flat[name].dt.to_timestamp()})
    # Starting threads takes longer than converting the columns of a request.
    table = pa.Table.from_pandas(flat, preserve_index=False, nthreads=1)
    table = table.replace_schema_metadata(None)
    return table, _PandasFrame(dtypes, table.schema, index)


@dataclass(frozen=True)
class _Index:
    """Levels of an index that became columns.

    Attributes:
        columns: Names of the columns.
        names: Names of the levels.
        freq: Frequency of the index, if any.
    """

    columns: list[str]
    names: list[Any]
    freq: Any


def _without_index(frame: pd.DataFrame, wanted: set[str]) -> tuple[pd.DataFrame, _Index | None]:
    levels = []
    for at, name in enumerate(frame.index.names):
        values = frame.index.get_level_values(at)
        if name in wanted or isinstance(values, pd.DatetimeIndex | pd.PeriodIndex):
            levels.append((TIME if name is None else str(name), name, values))
    if not levels:
        return frame, None
    flat = frame.reset_index(drop=True)
    for at, (column, _, values) in enumerate(levels):
        flat.insert(at, column, values)
    freq = getattr(frame.index, "freq", None)
    return flat, _Index([level[0] for level in levels], [level[1] for level in levels], freq)


@dataclass(frozen=True)
class _PandasFrame:
    """Converts tables to pandas frames like the given one."""

    dtypes: dict[str, Any]
    schema: pa.Schema
    index: _Index | None

    def __call__(self, answer: pa.Table) -> pd.DataFrame:
        frame: pd.DataFrame = as_given(answer, self.schema).to_pandas(use_threads=False)
        for name in frame.columns:
            channel = channel_of(name, self.dtypes)
            if channel is None:
                continue
            dtype = self.dtypes[channel]
            if isinstance(dtype, pd.PeriodDtype):
                frame[name] = frame[name].dt.to_period(dtype.freq)
            elif not pd.api.types.is_float_dtype(frame[name]) or pd.api.types.is_float_dtype(dtype):
                frame[name] = frame[name].astype(dtype)
        if self.index is None:
            return frame
        levels = [at for at, name in enumerate(self.index.columns) if name in frame]
        if not levels:
            return frame
        frame = frame.set_index([self.index.columns[at] for at in levels])
        frame.index.names = [self.index.names[at] for at in levels]
        if isinstance(frame.index, pd.DatetimeIndex) and self.index.freq is not None:
            frame.index = pd.DatetimeIndex(frame.index, freq=self.index.freq)
        return frame
