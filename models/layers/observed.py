"""Norms of windows that may lack values, for models that read which of them were observed.

They have the numbers of Hugging Face's transformers for a `past_observed_mask`: centre and spread
are those of the observed values, and a zero stands where a value is missing, which is then scaled
like any other. A channel without any observation is scaled as one of zeros, as the library does
with one window alone. Missing is what is NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from typing_extensions import override

from foretell.models.layers.normalization import (
    EPSILON,
    InstanceNorm,
    InstanceStatistics,
    WindowNorm,
)
from foretell.models.layers.window_norms import Identity, MagnitudeScaler


def without_gaps(history: Tensor) -> Tensor:
    """`[batch, context, channels]` with a zero for each missing value."""
    return torch.where(history.isnan(), 0.0, history)


class ObservedInstanceNorm(InstanceNorm):
    """By mean and standard deviation of the observed values: Hugging Face's `std`."""

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        known = without_gaps(history)
        weights = _weights(history)
        # What rounding leaves of a constant window would be made many times as large.
        rough = _mean(known, weights)
        mean = rough + _mean((known - rough) * weights, weights)
        centred = (known - mean) * weights
        spread = torch.sqrt(_mean(centred * centred, weights) + EPSILON)
        statistics = InstanceStatistics(mean, spread)
        return self.normalise(known, statistics), statistics


class ObservedMagnitudeScaler(MagnitudeScaler):
    """By the mean magnitude of the observed values."""

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        known = without_gaps(history)
        spread = _mean(known.abs(), _weights(history))
        # As many zeros, without the arithmetic of shapes.
        statistics = InstanceStatistics(0 * spread, self.divisor(spread))
        return self.normalise(known, statistics), statistics


class ObservedIdentity(Identity):
    """Nothing but the zeros."""

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, None]:
        return without_gaps(history), None


def _weights(history: Tensor) -> Tensor:
    """1 where a value is observed, 0 where it is missing."""
    return torch.where(history.isnan(), 0.0, 1.0)


def _mean(values: Tensor, weights: Tensor) -> Tensor:
    """Over time, `[batch, 1, channels]`, of values that are 0 where their weight is."""
    return values.sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True).clamp(min=1)


# By the norm of `foretell.models.layers.window_norms` that each is without gaps, or None; they are
# made of how many channels there are, and whether RevIN has trained parameters.
OBSERVED_NORMS: Mapping[str | None, Callable[[int, bool], WindowNorm[Any]]] = {
    "mean": lambda channels, affine: ObservedInstanceNorm(channels, affine=affine),
    "magnitude": lambda *_: ObservedMagnitudeScaler(),
    None: lambda *_: ObservedIdentity(),
}
