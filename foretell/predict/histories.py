"""Histories: the last rows of a file, as a model reads them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.nearness import nearest
from foretell.client.cards import ModelCard
from foretell.data import reading
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading
from foretell.data.table import Table
from foretell.predict.covariates import channels_of, columns_of, fields_of, known_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class History:
    """A series of a file up to the first forecast step.

    Attributes:
        name: Name of the series; empty for one series without a name.
        table: Rows that are sent.
        actual: Rows that were held out `[steps, channels]`; NaN for missing values.
        fields: Further fields of the input in JSON, such as covariates.
    """

    name: str
    table: Table
    actual: Floats
    fields: Mapping[str, Any] = field(default_factory=dict)


def read_histories(
    path: Path,
    card: ModelCard,
    how: Reading,
    series: Sequence[str],
    holdout: int,
    horizon: int | None = None,
) -> tuple[list[History], tuple[str, ...]]:
    """Read the rows of a file that the model reads, and notes on the file.

    Args:
        path: The file; its columns must include the model's channels and covariates. Rows after
            the last value to forecast have future covariates.
        card: Card of the model.
        how: Options for reading the file; channels and frequency are the model's.
        series: Names of the series; all if empty.
        holdout: Number of last rows that are not sent.
        horizon: Steps to forecast; the model's if not given.

    Raises:
        DataError: the file cannot be read, lacks a series, has no more rows than are held out, or
            fewer rows of the future than the model reads.
    """
    how = how.model_copy(update={**columns_of(card), "frequency": card.frequency})
    spare = 0 if how.missing == "error" else how.max_gap
    last = card.context + holdout + spare
    panel = reading.read(path, how, last=last, known=known_of(card))
    names = list(panel.series)
    for name in series:
        if name not in names:
            near = nearest(name, names)
            first = names[0] or "without a name"
            meant = f"did you mean {near}?" if near else f"the first is {first}"
            raise DataError(f"{path}: no series {name}; {meant}")
    # A history cannot cross a gap, so only the last table of a series is used.
    tables = {name: panel.tables[panel.series[name][-1]] for name in series or names}
    steps = -(-(horizon or card.horizon) // card.horizon) * card.horizon
    try:
        found = [
            _history(table, name, panel, card, holdout, steps) for name, table in tables.items()
        ]
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    return found, panel.notes


def _history(
    table: Table, name: str, panel: Panel, card: ModelCard, holdout: int, steps: int
) -> History:
    end = len(table) - holdout
    if end <= 0:
        of = f" of series {name}" if name else ""
        raise DataError(f"{len(table)} rows{of}, all of which are held out")
    rows = slice(max(end - card.context, 0), end)
    offset = table.utc_offset
    # Other channels are past covariates, which are sent by name.
    channels = channels_of(card)
    columns = [table.channels.index(channel) for channel in channels]
    sent = replace(
        table,
        timestamps=table.timestamps[rows],
        # Missing values are filled, but never from rows that are held out.
        values=table.history(rows.start, end)[:, columns],
        channels=channels,
        filled=None,
        utc_offset=offset[rows] if isinstance(offset, np.ndarray) else offset,
    )
    fields = fields_of(table, rows, steps, panel, card)
    return History(name, sent, table.known(end)[:, columns], fields)
