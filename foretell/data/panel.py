"""Series with the same channels and frequency, for one model to learn from."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretell.bundle.bounds import Bound, shown
from foretell.bundle.covariates import Covariates
from foretell.bundle.nearness import suggestion
from foretell.data.errors import DataError
from foretell.data.table import Table
from foretell.timeaxis import timestamps
from foretell.timeaxis.frequency import Frequency

if TYPE_CHECKING:
    from foretell.data.reading import Reading


@dataclass(frozen=True)
class Source:
    """The file of a panel and how it was read.

    Attributes:
        path: The file.
        reading: The options, including those found in the file.
    """

    path: Path
    reading: Reading


@dataclass(frozen=True, eq=False)
class Panel:
    """At least one series, each of one or more tables.

    Attributes:
        tables: Tables, those of a series in the order of time; a window lies within one table.
        source: The file that the tables were read from, if any.
        notes: Notes for the reader on how the data was read.
        covariates: Covariates of all tables, with the categories of all rows and not yet scaled;
            None without any. Past covariates are channels.

    Raises:
        DataError: there is no table, or channels or frequencies differ.
    """

    tables: tuple[Table, ...]
    source: Source | None = None
    notes: tuple[str, ...] = ()
    covariates: Covariates | None = None

    def __post_init__(self) -> None:
        if not self.tables:
            raise DataError("expected at least one series")
        for table in self.tables:
            if (table.channels, table.frequency) != (self.channels, self.frequency):
                raise DataError(
                    f"series {table.series!r}: its channels or its frequency are not those of "
                    f"series {self.tables[0].series!r}"
                )

    @property
    def channels(self) -> tuple[str, ...]:
        """Names of the channels."""
        return self.tables[0].channels

    @property
    def frequency(self) -> Frequency:
        """Spacing of the rows."""
        return self.tables[0].frequency

    @cached_property
    def series(self) -> dict[str, list[int]]:
        """Places in `tables` of each series' tables, by name of the series."""
        found: dict[str, list[int]] = {}
        for place, table in enumerate(self.tables):
            found.setdefault(table.series, []).append(place)
        return found

    @cached_property
    def rows(self) -> dict[str, int]:
        """Number of rows of each series, over its tables, by name of the series."""
        return {name: sum(len(self.tables[i]) for i in own) for name, own in self.series.items()}

    def __len__(self) -> int:
        """Number of rows of all tables."""
        return sum(map(len, self.tables))

    def time_of(self, row: int) -> str:
        """The time and the series of a row, counted over all tables, for messages."""
        for table in self.tables:
            if row < len(table):
                of = f" of series {table.series!r}" if table.series else ""
                return f"{timestamps.shown(table.timestamps[row])}{of}"
            row -= len(table)
        raise IndexError(f"row {row} of {len(self)}")

    def select(self, channels: Sequence[str]) -> Panel:
        """The panel of some channels, in this order."""
        columns = [self.channels.index(name) for name in channels]
        tables = (
            replace(
                table,
                channels=tuple(channels),
                values=table.values[:, columns],
                filled=None if table.filled is None else table.filled[:, columns],
            )
            for table in self.tables
        )
        return replace(self, tables=tuple(tables), covariates=self._with_past(channels))

    def _with_past(self, channels: Sequence[str]) -> Covariates | None:
        """The covariates without past ones, and without categories, whose channels are missing."""
        if self.covariates is None:
            return None
        past = []
        for each in self.covariates.past:
            kept = [channel in channels for channel in each.channels]
            if any(kept):
                categories = tuple(compress(each.categories, kept))
                past.append(each.model_copy(update={"categories": categories}))
        return self.covariates.model_copy(update={"past": tuple(past)})

    def fingerprint(self) -> str:
        """sha256 over everything that a model learns from, such as rows, names and covariates."""
        digest = hashlib.sha256(repr((self.channels, str(self.frequency))).encode())
        if self.covariates is not None:
            digest.update(self.covariates.model_dump_json().encode())
        for table in self.tables:
            digest.update(repr((table.series, len(table))).encode())
            digest.update(table.timestamps.astype("M8[us]").tobytes())
            digest.update(np.ascontiguousarray(table.values).tobytes())
            if table.filled is not None:
                digest.update(table.filled.tobytes())
            for codes in (table.covariates, table.static):
                if codes is not None:
                    digest.update(np.ascontiguousarray(codes).tobytes())
        return digest.hexdigest()


def check_bounds(
    bounds: Mapping[str, Bound], channels: Sequence[str], panel: Panel | None = None
) -> None:
    """Refuse bounds of channels that are not forecast, and bounds that data exceed.

    Args:
        bounds: Bounds by name of the channel.
        channels: Channels that the model forecasts.
        panel: Data of the training or verification, if known, with these channels.

    Raises:
        DataError: names the channel, the number of rows beyond its bound, and the first of them.
    """
    for name, bound in bounds.items():
        if name not in channels:
            raise DataError(
                f"bounds: no channel {name!r} is forecast; {suggestion(name, channels)}"
            )
        if panel is None:
            continue
        column = panel.channels.index(name)
        values = np.concatenate([table.values[:, column] for table in panel.tables])
        for limit, side in ((bound.low, "below"), (bound.high, "above")):
            if limit is None:
                continue
            rows = np.flatnonzero(values < limit if side == "below" else values > limit)
            if len(rows):
                first = int(rows[0])
                raise DataError(
                    f"{panel.source.path if panel.source else 'the data'}: channel {name!r}: "
                    f"{len(rows)} of {len(panel)} rows are {side} its bound {shown(limit)}, "
                    f"the first at {panel.time_of(first)} ({shown(values[first])}); correct them "
                    f"or give it a wider bound than {bound}"
                )
