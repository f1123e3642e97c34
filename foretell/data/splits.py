"""Splits of the rows into training, validation and test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import NamedTuple, Self

import numpy as np
from pydantic import model_validator

from foretell.bundle.part import Part
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.timeaxis.timestamps import shown

_PARTS = ("train", "validation", "test")


class Span(NamedTuple):
    """Rows of one table of a panel, half open."""

    table: int
    start: int
    end: int

    def windows(self, context: int, horizon: int) -> int:
        """Number of windows in the rows."""
        return max(0, self.end - self.start - context - horizon + 1)


Spans = tuple[Span, ...]


class Split(NamedTuple):
    """The rows of a panel by split.

    Validation and test begin `context` rows early: their first target follows the last row of the
    part before, as in the published experiments.

    Attributes:
        train: Rows for training.
        validation: Rows for early stopping and calibration.
        test: Rows for the test.
        trained_on_only: Series without a test window. Where each series is cut by its own rows,
            all of their rows are in `train`.
        left_out: Series without any window.
    """

    train: Spans
    validation: Spans
    test: Spans
    trained_on_only: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


class Splits(Part):
    """The cuts of every series of a panel: by shares of its rows, at fixed rows, or at a date.

    Attributes:
        fractions: Shares of a series' rows for train, validation and test. The last two get at
            least one horizon.
        ends: The row after the last of each part.
        cut_at: Start of the test rows of all series, in the data's clock. The rows before it are
            cut at one date too, by the first two fractions.
    """

    fractions: tuple[float, float, float] | None = None
    ends: tuple[int, int, int] | None = None
    cut_at: datetime | None = None

    @model_validator(mode="after")
    def _one_of_them(self) -> Self:
        if (self.fractions is None) == (self.ends is None):
            raise ValueError("expected either fractions or ends")
        if self.cut_at is not None and self.fractions is None:
            raise ValueError("cut_at needs fractions for the rows before it")
        return self

    @classmethod
    def by_fraction(cls, train: float = 0.7, validation: float = 0.1, test: float = 0.2) -> Self:
        """Splits by shares of rows; by default those of published experiments.

        Raises:
            DataError: a fraction is not positive, or they do not add up to 1.
        """
        if min(train, validation, test) <= 0 or abs(train + validation + test - 1) > 1e-9:
            raise DataError(
                "splits: expected three positive fractions that add up to 1, "
                f"got {train:g}, {validation:g}, {test:g}"
            )
        return cls(fractions=(train, validation, test))

    @classmethod
    def ett_hourly(cls) -> Self:
        """ETTh1 and ETTh2: 12, 4 and 4 months of 30 days."""
        return cls(ends=(8640, 11520, 14400))

    @classmethod
    def ett_minute(cls) -> Self:
        """ETTm1 and ETTm2: the same months in steps of 15 minutes."""
        return cls(ends=(8640 * 4, 11520 * 4, 14400 * 4))

    def ends_of(self, rows: int, horizon: int) -> tuple[int, int, int]:
        """The row after the last of each part, for a series of `rows` rows.

        Raises:
            DataError: the series has too few rows.
        """
        if self.fractions is not None:
            train, _, test = self.fractions
            # Validation gets the rows that rounding leaves.
            validation_end = rows - max(int(rows * test), horizon)
            return min(int(rows * train), validation_end - horizon), validation_end, rows
        assert self.ends is not None  # noqa: S101 - the validator checks it
        if self.ends[2] > rows:
            raise DataError(f"test split: it ends at row {self.ends[2]}, the data has {rows} rows")
        return self.ends

    def _dates(self, panel: Panel, horizon: int) -> tuple[np.datetime64, np.datetime64] | None:
        """The start of validation and test rows, where it is the same for all series.

        Raises:
            DataError: no row lies before the date, or no row from it on.
        """
        if self.cut_at is None or self.fractions is None:
            return None
        test = np.datetime64(self.cut_at, "us")
        times = np.sort(np.concatenate([table.timestamps for table in panel.tables]))
        before = times[times < test]
        if not 0 < len(before) < len(times):
            raise DataError(
                f"cut_at: {shown(test)} does not lie within the data, which are from "
                f"{shown(times[0])} to {shown(times[-1])}"
            )
        train, validation, _ = self.fractions
        # Validation gets at least one horizon.
        latest = np.unique(before)[-horizon:][0]
        place = int(len(before) * train / (train + validation))
        return min(before[place], latest), test

    def cut(self, panel: Panel, context: int, horizon: int) -> Split:
        """Split every series of a panel.

        Args:
            panel: The data.
            context: Steps of history.
            horizon: Steps of forecast.

        Raises:
            DataError: a part has no window; the message names the part.
        """
        parts: tuple[list[Span], list[Span], list[Span]] = ([], [], [])
        short: dict[bool, list[str]] = {True: [], False: []}
        dates = self._dates(panel, horizon)
        for name, tables in panel.series.items():
            rows = panel.rows[name]
            if dates is None:
                first, second, third = self.ends_of(rows, horizon)
            else:
                first, second = (rows_before(panel, tables, date) for date in dates)
                third = rows
            ranges = ((0, first), (first - context, second), (second - context, third))
            cuts = [list(spans_of(panel, tables, *part)) for part in ranges]
            held = [count_windows(cut, context, horizon) for cut in cuts]
            if dates is not None and not held[2]:
                short[any(held)].append(name)
            elif dates is None and len(panel.series) > 1 and not all(held):
                whole = list(spans_of(panel, tables, 0, rows))
                trained_on = count_windows(whole, context, horizon) > 0
                short[trained_on].append(name)
                cuts = [whole if trained_on else [], [], []]
            for part, cut in zip(parts, cuts, strict=True):
                part.extend(cut)
        train, validation, test = map(tuple, parts)
        split = Split(train, validation, test, tuple(short[True]), tuple(short[False]))
        for name, spans in zip(_PARTS, split[:3], strict=True):
            if not count_windows(spans, context, horizon):
                raise DataError(
                    f"{name} split: {_described(panel, spans)} no window of context {context} and "
                    f"horizon {horizon}; take more data or a shorter window"
                    + ("" if dates is None else f", or cut at another date than {shown(dates[1])}")
                )
        return split


def rows_before(panel: Panel, tables: Iterable[int], date: np.datetime64) -> int:
    """Number of rows of some tables before a date."""
    return sum(int((panel.tables[table].timestamps < date).sum()) for table in tables)


def spans_of(panel: Panel, tables: Iterable[int], first: int, last: int) -> Iterator[Span]:
    """Rows of a series, counted over its tables.

    Args:
        panel: The data.
        tables: Tables of the series, in order.
        first: The first row.
        last: The row after the last one.
    """
    before = 0
    for table in tables:
        rows = len(panel.tables[table])
        start, end = max(first - before, 0), min(last - before, rows)
        if start < end:
            yield Span(table, start, end)
        before += rows


def spans_before(panel: Panel, spans: Iterable[Span], date: np.datetime64) -> Iterator[Span]:
    """The parts of some rows before a date."""
    for table, start, end in spans:
        last = min(end, rows_before(panel, [table], date))
        if start < last:
            yield Span(table, start, last)


def count_windows(spans: Iterable[Span], context: int, horizon: int) -> int:
    """Number of windows in some rows."""
    return sum(span.windows(context, horizon) for span in spans)


def overlap(panel: Panel, split: Split, context: int) -> np.datetime64 | None:
    """Find test rows of one series that begin before training rows of another series end.

    Args:
        panel: The data.
        split: Split of its rows.
        context: Steps of history, which test rows begin with.

    Returns:
        The median start of the test rows; None if no training row lies after a test row.
    """

    def times(spans: Spans, first: int) -> list[tuple[np.datetime64, np.datetime64]]:
        cut = [panel.tables[span.table].timestamps[span.start + first : span.end] for span in spans]
        return [(part[0], part[-1]) for part in cut if len(part)]

    learnt, tested = times(split.train, 0), times(split.test, context)
    if max(last for _, last in learnt) < min(first for first, _ in tested):
        return None
    middle: np.datetime64 = np.sort([first for first, _ in tested])[len(tested) // 2]
    return middle


def _described(panel: Panel, spans: Spans) -> str:
    if len(panel.series) > 1:
        longest = max(map(len, panel.tables))
        return f"{len(panel.series)} series, the longest of {longest} rows, hold"
    if len(panel.tables) > 1:
        return f"{len(panel.tables)} stretches between holes hold"
    (start, end) = spans[0][1:] if spans else (0, 0)
    return f"rows {start} to {end} hold"
