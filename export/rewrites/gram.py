"""Correlation in time: for short lengths, and for lengths without factors."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.export.rewrites.correlator import Correlator


class GramCorrelator(Correlator):
    """Sums the circular diagonals of the Gram matrix, and mixes by a circulant matrix.

    Equal because the correlation at lag l is by definition the sum of a circular diagonal of `key @
    query.T`. Its entries are never moved. In rows of `length + 1`, entry `[t, t + l]` is in column
    l if it lies right of the main diagonal, and in column l + 1 if it has wrapped around. A mask
    separates these.

    The circulant matrix is the lags' weights repeated, read in rows of `2 * length - 1`: each row
    starts one step before where the one above does.

    Args:
        length: As for `Correlator`.
        dtype: Type of the mask.
    """

    def __init__(self, length: int, dtype: torch.dtype) -> None:
        super().__init__(length)
        step = torch.arange(length + 1)
        self.ahead = nn.Buffer((step[:length, None] + step < length).to(dtype))

    @override
    def rows(self, steps: int) -> int:
        return min(steps, self.length)

    @override
    def effort(self, steps: int) -> int:
        return 0

    @override
    def represent(self, series: Tensor) -> Tensor:
        return series[:, : self.length] if series.shape[1] > self.length else series

    @override
    def correlate(self, query: Tensor, key: Tensor) -> Tensor:
        rows = key.shape[1]
        # One row of zeros fills the rows that are longer by one.
        gram = functional.pad(key, (0, 0, 0, 1)) @ query.transpose(1, 2)
        entries = gram.flatten(1)
        if rows < self.length:
            entries = entries[:, : rows * (self.length + 1)]
        columns = entries.reshape(-1, rows, self.length + 1)
        ahead = (columns * self.ahead[:rows]).sum(dim=1)
        wrapped = columns.sum(dim=1) - ahead
        return ahead[:, :-1] + wrapped[:, 1:]

    @override
    def mix(self, by_lag: Tensor, value: Tensor) -> Tensor:
        length, width = self.length, 2 * self.length - 1
        repeated = by_lag[:, None].expand(-1, width, -1).reshape(-1, length, width)
        return repeated[:, :, : value.shape[1]] @ value
