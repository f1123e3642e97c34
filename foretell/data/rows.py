"""The rows of a table, with their columns interpreted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.data.columns import Columns
from foretell.data.moments import Moments


class Rows(NamedTuple):
    """The rows of a table, with their columns interpreted.

    Attributes:
        labels: `[rows]`, numbers of the rows in messages.
        moments: Times of the rows.
        series: `[rows]`, the number of each row's series.
        names: Names of the series.
        columns: Channels and future covariates.
        static: `[series, static]`, codes of the static covariates; None without any.
        time_column: Name of the column of times.
    """

    labels: NDArray[np.int64]
    moments: Moments
    series: NDArray[np.int64]
    names: list[str]
    columns: Columns
    static: NDArray[np.float64] | None
    time_column: str

    def have_values(
        self, part: NDArray[np.intp], channels: Sequence[int] | slice | None = None
    ) -> NDArray[np.bool_]:
        """Whether some rows have a value of one of these channels, of any by default."""
        chosen = slice(len(self.columns.channels)) if channels is None else channels
        have: NDArray[np.bool_] = ~self.columns.missing[part][:, chosen]
        return np.asarray(have.any(axis=1))
