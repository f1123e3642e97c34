"""The periods after which series repeat themselves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.data.panel import Panel

# Least correlation, which chance hardly gives, and the least gain of a longer period.
_LEAST, _BETTER = 0.2, 0.02
# Number of longest tables, and of their last rows, that are analysed.
_TABLES, _ROWS = 10, 20_000
_MOST = 3


class Season(NamedTuple):
    """A period of a series.

    Attributes:
        steps: Length of the period.
        correlation: Correlation of the series with itself one period before.
    """

    steps: int
    correlation: float


def find_seasons(panel: Panel) -> list[Season]:
    """The strongest periods, shortest first; a longer one is stronger than all before it.

    They are peaks of the autocorrelation after removal of the linear trend, averaged over channels
    and the longest series. The autocorrelation falls lower before each peak.
    """
    tables = sorted(panel.tables, key=len)[-_TABLES:]
    lags = min(len(tables[-1]), _ROWS) // 3
    every = (_autocorrelation(table.values[-_ROWS:], lags) for table in tables)
    found = [one for one in every if one is not None]
    if not found:
        return []
    mean = np.mean(found, axis=0)
    # The rise of an autocorrelation that chance explains.
    rise = max(2 / np.sqrt(len(tables[-1])), _BETTER)
    seasons: list[Season] = []
    for lag in range(2, lags):
        near = max(1, lag // 8)
        is_peak = mean[lag] == mean[lag - near : lag + near + 1].max()
        best = seasons[-1].correlation + _BETTER if seasons else _LEAST
        if is_peak and mean[lag] > best and mean[lag] > mean[1:lag].min() + rise:
            seasons.append(Season(lag, float(mean[lag])))
    return seasons[-_MOST:]


def _autocorrelation(values: NDArray[np.float64], lags: int) -> NDArray[np.float64] | None:
    """`[lags + 1]`, a mean over channels; None for a table that is too short or constant."""
    rows = len(values)
    if rows < 3 * lags or lags < 2:
        return None
    time = np.linspace(-1, 1, rows)[:, None]
    centred = values - values.mean(axis=0)
    rest = centred - time * (time * centred).sum(axis=0) / (time**2).sum()
    rest = rest[:, rest.std(axis=0) > 1e-9 * (1 + np.abs(values).max(axis=0))]
    if not rest.shape[1]:
        return None
    spectrum = np.abs(np.fft.rfft(rest, 2 * rows, axis=0)) ** 2
    products = np.fft.irfft(spectrum, axis=0)[: lags + 1]
    # A lag of k has k fewer products.
    fewer = rows / (rows - np.arange(lags + 1))
    mean: NDArray[np.float64] = (products / products[0]).mean(axis=1) * fewer
    return mean
