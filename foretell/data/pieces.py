"""The parts of a series between its holes, with their gaps filled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.timeaxis.gaps import Missing, filled


class Piece(NamedTuple):
    """Rows without holes.

    Attributes:
        steps: `[rows]`, steps since the start of the series, without a gap.
        values: `[rows, columns]`, with a number for every missing value.
        empty: `[rows, columns]`, whether a value was missing; None if none was.
    """

    steps: NDArray[np.int64]
    values: NDArray[np.float64]
    empty: NDArray[np.bool_] | None = None


class Filler(NamedTuple):
    """Fills gaps of channels and, after them, of covariates.

    Attributes:
        missing: Treatment of gaps; never `error`. With `mask`, missing values are 0.
        max_gap: Most consecutive steps that are filled, or stay missing, within a part.
        held: `[columns]`, whether a gap repeats a value, even if others are interpolated.
        channels: Number of channels.
    """

    missing: Missing
    max_gap: int
    held: NDArray[np.bool_]
    channels: int

    def pieces(self, places: NDArray[np.int64], values: NDArray[np.float64]) -> Iterator[Piece]:
        """The parts between holes.

        Args:
            places: `[rows]`, ascending steps of the rows.
            values: `[rows, columns]`, NaN where a value is missing.
        """
        far = np.flatnonzero(np.diff(places) > self.max_gap + 1) + 1
        for own, rows in zip(np.split(places, far), np.split(values, far), strict=True):
            steps, full = _spread(own, rows)
            if self.missing == "mask":
                empty = np.isnan(full)
                yield Piece(steps, np.where(empty, 0, full), empty if empty.any() else None)
                continue
            for start, first, end in self._stretches(np.isnan(full)):
                empty = np.isnan(full[first:end])
                # Values of rows before the first are carried forward.
                whole = self._filled(full[start:end])[first - start :]
                yield Piece(steps[first:end], whole, empty if empty.any() else None)

    def ahead(
        self, piece: Piece, places: NDArray[np.int64], codes: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """`[steps, covariates]`, covariates of the rows after a piece, up to the first hole.

        Args:
            piece: The last part of a series.
            places: `[rows]`, ascending steps of the rows after it.
            codes: `[rows, covariates]` in them, NaN where a value is missing.
        """
        covariates = slice(self.channels, None)
        places = np.append(piece.steps[-1], places)
        codes = np.append(piece.values[-1:, covariates], codes, axis=0)
        _, full = _spread(places, codes)
        holes = [
            start
            for column in np.isnan(full).T
            for start, end in _runs(column)
            if end - start > self.max_gap
        ]
        full = full[: min(holes, default=len(full))]
        held = self.held[covariates]
        return _filled(full, held | (self.missing == "ffill"))[1:]

    def _filled(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return _filled(values, self.held | (self.missing == "ffill"))

    def _stretches(self, empty: NDArray[np.bool_]) -> Iterator[tuple[int, int, int]]:
        """Start, first complete row and end of the rows between holes."""
        hole = np.zeros(len(empty), np.bool_)
        for column in np.flatnonzero(empty.any(axis=0)):
            for start, end in _runs(empty[:, column]):
                if end - start > self.max_gap:
                    hole[start:end] = True
        for start, end in _runs(~hole):
            known = ~empty[start:end]
            first = start
            if self.missing == "ffill":
                # There is no value to carry forward before the first one.
                first += int(known[:, : self.channels].argmax(axis=0).max())
            if known.any(axis=0).all() and first < end:
                yield start, first, end


def _spread(
    places: NDArray[np.int64], values: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All steps from the first to the last, and their values; NaN for steps without a row."""
    steps = np.arange(places[0], places[-1] + 1)
    full = np.full((len(steps), values.shape[1]), np.nan)
    full[places - places[0]] = values
    return steps, full


def _filled(values: NDArray[np.float64], held: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Held columns repeat the value before a gap, or else the one after; others are lines."""
    whole = values.copy()
    whole[:, held] = filled(values[:, held], "ffill")
    return filled(whole, "interpolate")


def _runs(flags: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """Start and end of each run of set flags."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], flags, [False]]).astype(np.int8)))
    return zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)
