"""Auto-correlation: attention between lags (Wu et al., 2021, arXiv:2106.13008, section 3.2)."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

Lags = Literal["all", "even"]
LagChoice = Literal["batch", "sample"]


def lag_count(factor: float, length: int) -> int:
    """How many lags auto-correlation keeps at a length: `int(factor * ln length)`."""
    return int(factor * math.log(length))


def fit_length(source: Tensor, length: int) -> Tensor:
    """Cut `[batch, time, features]` to `length` steps, or append zeros up to it."""
    return functional.pad(source[:, :length], (0, 0, 0, max(length - source.shape[1], 0)))


def circulant(lags: Tensor, weights: Tensor, length: int) -> Tensor:
    """The attention map of auto-correlation: `weights[i]` where key - query = `lags[i]`.

    Args:
        lags: `[batch, k]`.
        weights: `[batch, k]`.
        length: Steps of query and key.

    Returns:
        `[batch, length, length]`; each row sums to 1.
    """
    by_lag = weights.new_zeros(weights.shape[0], length).scatter(1, lags, weights)
    step = torch.arange(length, device=weights.device)
    return by_lag[:, (step[None, :] - step[:, None]) % length]


class LagMixed(NamedTuple):
    """Output `[batch, query, d_model]`, and what it was mixed from.

    Attributes:
        output: The mixed and projected values.
        lags: `[batch, k]`, by descending correlation.
        lag_weights: `[batch, k]`.
        correlation: `[batch, lags]`.
        extremes: As in `LagAttention`.
    """

    output: Tensor
    lags: Tensor
    lag_weights: Tensor
    correlation: Tensor
    extremes: Tensor | None = None


class AutoCorrelation(nn.Module):
    """Mixes values at the lags where query and key correlate most.

    All heads share the correlation (its mean over heads and features) and so the lags; the number
    of heads has no influence on the result.

    Args:
        d_model: Features of a step.
        factor: The number of lags kept is `int(factor * ln(length of the query))`.
        lags: `all` lags of the query's length; `even` leaves out the last lag of an odd length, as
            an inverse FFT without an explicit length does (the Time-Series-Library).
        training_lags: In training, one choice of lags for the whole `batch`, as published, or one a
            `sample`. In evaluation it is always one a sample: a batch never changes a forecast.
    """

    def __init__(
        self,
        d_model: int,
        factor: float,
        *,
        lags: Lags = "all",
        training_lags: LagChoice = "batch",
    ) -> None:
        super().__init__()
        self.factor = factor
        self.lags = lags
        self.training_lags = training_lags
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)

    def forward(self, tokens: Tensor, source: Tensor) -> LagMixed:
        """Let `tokens` `[batch, query, d_model]` read `source` `[batch, key, d_model]`."""
        length = tokens.shape[1]
        query = self.query(tokens)
        key = fit_length(self.key(source), length)
        value = fit_length(self.value(source), length)
        correlation = self.correlate(query, key)
        keep = lag_count(self.factor, length)
        if self.training and self.training_lags == "batch":
            shared = correlation.mean(dim=0).topk(keep).indices
            chosen = shared.expand(len(correlation), -1)
            strongest = correlation.gather(1, chosen)
        else:
            strongest, chosen = correlation.topk(keep)
        weights = strongest.softmax(dim=-1)
        mixed = circulant(chosen, weights, length) @ value
        return LagMixed(self.out(mixed), chosen, weights, correlation)

    def correlate(self, query: Tensor, key: Tensor) -> Tensor:
        """Mean over features of the circular cross-correlation (Wiener-Khinchin theorem).

        Args:
            query: `[batch, time, d_model]`.
            key: The same shape.

        Returns:
            `[batch, lags]`; at lag l the mean of `query[t + l] * key[t]`, summed over t.
        """
        length = query.shape[1]
        # There is no FFT in half precision, which mixed precision may arrive in.
        query, key = (
            part.to(torch.promote_types(part.dtype, torch.float32)) for part in (query, key)
        )
        # The mean commutes with the inverse transform: one transform instead of d_model.
        spectrum = torch.fft.rfft(query, dim=1) * torch.fft.rfft(key, dim=1).conj()
        count = length if self.lags == "all" else length // 2 * 2
        correlation: Tensor = torch.fft.irfft(spectrum.mean(dim=-1), n=count, dim=1)
        return correlation
