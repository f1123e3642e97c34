"""Histories: the last rows of a file, as a model reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.nearness import nearest
from foretell.client.cards import ModelCard
from foretell.data import reading
from foretell.data.errors import DataError
from foretell.data.reading import Reading
from foretell.data.table import Table

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """A series of a file up to the first forecast step.

    Attributes:
        name: Name of the series; empty for one series without a name.
        table: Rows that are sent.
        actual: Rows that were held out `[steps, channels]`; NaN for missing values.
    """

    name: str
    table: Table
    actual: Floats


def read_histories(
    path: Path, card: ModelCard, how: Reading, series: Sequence[str], holdout: int
) -> tuple[list[History], tuple[str, ...]]:
    """Read the rows of a file that the model reads, and notes on the file.

    Args:
        path: The file; its columns must include the model's channels.
        card: Card of the model.
        how: Options for reading the file; channels and frequency are the model's.
        series: Names of the series; all if empty.
        holdout: Number of last rows that are not sent.

    Raises:
        DataError: the file cannot be read, lacks a series, or has no more rows than are held out.
    """
    how = how.model_copy(update={"channels": card.channels, "frequency": card.frequency})
    spare = 0 if how.missing == "error" else how.max_gap
    panel = reading.read(path, how, last=card.context + holdout + spare)
    names = list(panel.series)
    for name in series:
        if name not in names:
            near = nearest(name, names)
            first = names[0] or "without a name"
            meant = f"did you mean {near}?" if near else f"the first is {first}"
            raise DataError(f"{path}: no series {name}; {meant}")
    # A history cannot cross a gap, so only the last table of a series is used.
    tables = {name: panel.tables[panel.series[name][-1]] for name in series or names}
    found = [_history(table, name, card.context, holdout) for name, table in tables.items()]
    for history in found:
        if not len(history.table):
            of = f" of series {history.name}" if history.name else ""
            raise DataError(f"{path}: {len(history.actual)} rows{of}, all of which are held out")
    return found, panel.notes


def _history(table: Table, name: str, context: int, holdout: int) -> History:
    end = max(len(table) - holdout, 0)
    rows = slice(max(end - context, 0), end)
    offset = table.utc_offset
    sent = replace(
        table,
        timestamps=table.timestamps[rows],
        # Missing values are filled, but never from rows that are held out.
        values=table.history(rows.start, end),
        filled=None,
        utc_offset=offset[rows] if isinstance(offset, np.ndarray) else offset,
    )
    return History(name, sent, table.known(end))
