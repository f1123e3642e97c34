"""Rows with gaps, and the windows that are cut out of them without knowledge of later rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate
from foretell.service.forecast.codes import fill
from foretell.timeaxis.gaps import Missing, filled, latest, rows_before

Floats = NDArray[np.float32]
Starts = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class FilledRows:
    """Rows `[rows, columns]` of a series or of covariates.

    Attributes:
        given: As they were sent, NaN where a value is missing.
        whole: Filled from all rows; NaN where nothing fills a gap. With `mask` as they were sent.
        last_known: `timeaxis.gaps.latest` of `given`; None without gaps.
        is_masked: Whether gaps stay.
    """

    given: NDArray[np.float64]
    whole: NDArray[np.float64]
    last_known: NDArray[np.int64] | None
    is_masked: bool

    @classmethod
    def of(
        cls,
        values: NDArray[np.float64],
        missing: Missing,
        covariates: Sequence[Covariate] | None = None,
    ) -> FilledRows:
        """Rows of channels, or codes of the given covariates."""
        is_known = ~np.isnan(values)
        if is_known.all():
            return cls(values, values, None, is_masked=False)
        if missing == "mask":
            return cls(values, values, latest(is_known), is_masked=True)
        if covariates is None:
            whole = filled(values, missing)
        else:
            whole = values.copy()
            for column, covariate in enumerate(covariates):
                fill(covariate, whole[:, column], missing, None)
        return cls(values, whole, latest(is_known), is_masked=False)

    def sound(self, starts: Starts, size: int, oldest: Any) -> NDArray[np.bool_]:  # noqa: ANN401 - a number or an array
        """Say of each window of a size whether it can be read: `[starts]`.

        In each column the latest known value of a window, or before it, is in a row of at least
        `oldest`, and it fills all gaps.
        """
        if self.last_known is None:
            return np.ones(len(starts), np.bool_)
        known = self.last_known[starts + size - 1].min(axis=1, initial=len(self.given))
        is_sound = known >= oldest
        if not self.is_masked:
            # Filled rows have no gap after the first value.
            is_sound &= ~np.isnan(self.whole[starts]).any(axis=1)
        return np.asarray(is_sound)

    def cut(self, starts: Starts, size: int) -> Floats:
        """Windows `[starts, size, columns]`; gaps are filled from rows up to their ends alone."""
        windows = starts[:, None] + np.arange(size)
        whole = self.whole.astype(np.float32)
        if self.last_known is None or self.is_masked:
            return np.asarray(whole[windows])
        rows = rows_before(windows, self.last_known[starts + size - 1])
        return np.asarray(whole[rows, np.arange(whole.shape[1])])

    def gaps(self, starts: Starts, size: int) -> int:
        """The number of missing values in the rows of windows, each counted once."""
        if self.last_known is None:
            return 0
        is_read = np.zeros(len(self.given), np.bool_)
        is_read[starts[:, None] + np.arange(size)] = True
        return int(np.isnan(self.given[is_read]).sum())
