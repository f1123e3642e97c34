"""Auto-correlation without a Fourier transform."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from models.layers.auto_correlation import (
    AutoCorrelation,
    LagMixed,
    circulant,
    fit_length,
    lag_count,
)


class GramCorrelation(AutoCorrelation):
    """Sums the circular diagonals of the Gram matrix of key and query.

    Equal because the correlation at lag l is by definition the mean over features of the sum over
    t of `query[(t + l) % length] * key[t]`: the sum of a circular diagonal of `key @ query.T`.

    The query's mean over time is taken out first and its share added back to the correlation that
    is reported: it shifts all lags by the same amount, which changes neither their order nor the
    softmax, but in float32 a large offset would drown the differences between lags.

    Args:
        plain: The trained layer; its weights are shared.
        length: Steps of the query.
    """

    def __init__(self, plain: AutoCorrelation, length: int) -> None:
        super().__init__(plain.query.in_features, plain.factor, lags=plain.lags)
        self.query, self.key, self.value, self.out = plain.query, plain.key, plain.value, plain.out
        self.length = length
        self.keep = lag_count(plain.factor, length)
        dropped = plain.lags == "even" and length % 2 == 1
        # An inverse FFT one lag short is the full correlation times a constant matrix.
        spectrum = torch.fft.rfft(torch.eye(length, dtype=torch.float64), dim=1)
        shorter = torch.fft.irfft(spectrum, n=length - 1, dim=1) if dropped else None
        dtype = plain.query.weight.dtype
        self.register_buffer("shorten", None if shorter is None else shorter.to(dtype))
        self.shorten: Tensor | None

    @override
    def forward(self, tokens: Tensor, source: Tensor) -> LagMixed:
        query = self.query(tokens)
        key = fit_length(self.key(source), self.length)
        value = fit_length(self.value(source), self.length)
        mean = query.mean(dim=1, keepdim=True)
        centred = self.correlate(query - mean, key)
        strongest, lags = centred.topk(self.keep)
        weights = strongest.softmax(dim=-1)
        mixed = circulant(lags, weights, self.length) @ value
        offset = (mean * key.mean(dim=1, keepdim=True)).mean(dim=-1) * self._offset_gain
        return LagMixed(self.out(mixed), lags, weights, centred + offset)

    @property
    def _offset_gain(self) -> float:
        """What an offset of 1 in every product adds to every lag."""
        return self.length if self.shorten is None else self.length**2 / (self.length - 1)

    @override
    def correlate(self, query: Tensor, key: Tensor) -> Tensor:
        length = self.length
        gram = key @ query.transpose(1, 2)
        # Read with rows one longer than the doubled matrix, circular diagonals become columns.
        doubled = torch.cat([gram, gram], dim=2).flatten(1)
        skewed = functional.pad(doubled, (0, length)).reshape(-1, length, 2 * length + 1)
        diagonals = skewed[:, :, :length].sum(dim=1) / query.shape[-1]
        return diagonals if self.shorten is None else diagonals @ self.shorten
