"""Centre and spread, `[batch, 1, channels]`, of windows `[batch, context, channels]`.

A gap is NaN. Functions named `observed` leave gaps out; a channel of gaps alone counts as zeros.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

# RevIN adds the first to a variance; NeuralForecast adds the second to a spread.
EPSILON = 1e-5
MILLIONTH = 1e-6
# The median absolute deviation of a normal distribution, in standard deviations.
_NORMAL = 0.6744897501960817
_ROUNDING = torch.finfo(torch.float32).eps


class InstanceStatistics(NamedTuple):
    """Centre and spread of each window and channel, `[batch, 1, channels]`."""

    centre: Tensor
    spread: Tensor

    def within(self, outer: InstanceStatistics) -> InstanceStatistics:
        """Statistics of the values before the outer normalisation."""
        return InstanceStatistics(
            self.centre * outer.spread + outer.centre, self.spread * outer.spread
        )


def without_gaps(history: Tensor) -> Tensor:
    """`[batch, context, channels]` with a zero for each missing value."""
    return torch.where(history.isnan(), 0.0, history)


def moments(history: Tensor, *, centre: str) -> InstanceStatistics:
    """Mean or last value, and standard deviation, without gradients."""
    variance = history.var(dim=1, keepdim=True, correction=0).detach()
    mean = history.mean(dim=1, keepdim=True) if centre == "mean" else history[:, -1:]
    return InstanceStatistics(mean.detach(), torch.sqrt(variance + EPSILON))


def observed_moments(history: Tensor) -> InstanceStatistics:
    """Mean and standard deviation of the observed values: Hugging Face's `std`."""
    known, weights = without_gaps(history), _weights(history)
    # The division would amplify the rounding error of a constant window's mean.
    rough = _weighted_mean(known, weights)
    mean = rough + _weighted_mean((known - rough) * weights, weights)
    centred = (known - mean) * weights
    spread = torch.sqrt(_weighted_mean(centred * centred, weights) + EPSILON)
    return InstanceStatistics(mean, spread)


def standard(history: Tensor) -> InstanceStatistics:
    """Mean and standard deviation."""
    mean = _mean(history)
    return InstanceStatistics(mean, _deviation(history, mean))


def robust(history: Tensor) -> InstanceStatistics:
    """Median and median absolute deviation, the lower one of an even number each.

    If more than half of a window is one value, a share of the standard deviation replaces it.
    """
    median = _median(history)
    deviation = _median((history - median).abs())
    spread = _deviation(history, _mean(history))
    deviation = torch.where(deviation > 0, deviation, deviation + spread * _NORMAL)
    return InstanceStatistics(median, deviation)


def extremes(history: Tensor) -> InstanceStatistics:
    """The smallest value and the distance to the largest."""
    smallest, largest = history.amin(dim=1, keepdim=True), history.amax(dim=1, keepdim=True)
    return InstanceStatistics(smallest, largest - smallest)


def magnitude(history: Tensor) -> InstanceStatistics:
    """0 and the mean magnitude: Hugging Face's `mean`."""
    spread = _mean(history.abs())
    return InstanceStatistics(torch.zeros_like(spread), spread)


def observed_magnitude(history: Tensor) -> InstanceStatistics:
    """0 and the mean magnitude of the observed values."""
    spread = _weighted_mean(without_gaps(history).abs(), _weights(history))
    return InstanceStatistics(torch.zeros_like(spread), spread)


def middle_deviation(history: Tensor) -> InstanceStatistics:
    """Median and median absolute deviation, the mean of both middle values of an even number."""
    median = _quantile(history, 0.5)
    return InstanceStatistics(median, _quantile((history - median).abs(), 0.5))


def quartiles(history: Tensor) -> InstanceStatistics:
    """Median and the distance between the quartiles, interpolated."""
    median = _quantile(history, 0.5)
    return InstanceStatistics(median, _quantile(history, 0.75) - _quantile(history, 0.25))


def more_than_zero(spread: Tensor) -> Tensor:
    """NeuralForecast's divisor: a spread of 0 counts as 1, and NaN stays NaN."""
    return torch.where(spread > 0, spread, spread + 1) + MILLIONTH


def local(spread: Tensor) -> Tensor:
    """The spread, or 1 if it is less than the rounding of float32."""
    return torch.where(spread < _ROUNDING, 1.0, spread)


def _mean(series: Tensor) -> Tensor:
    """Mean over time, which is exact for a constant window, so that its spread is 0."""
    steps = series.shape[1]
    rough = series.sum(dim=1, keepdim=True) / steps
    return rough + (series - rough).sum(dim=1, keepdim=True) / steps


def _weights(history: Tensor) -> Tensor:
    """1 where a value is observed, 0 where it is missing."""
    return torch.where(history.isnan(), 0.0, 1.0)


def _weighted_mean(values: Tensor, weights: Tensor) -> Tensor:
    """Weighted mean over time of values that are 0 where their weight is 0."""
    return values.sum(dim=1, keepdim=True) / weights.sum(dim=1, keepdim=True).clamp(min=1)


def _deviation(series: Tensor, mean: Tensor) -> Tensor:
    """The standard deviation over time, of all values and not of a sample."""
    centred = series - mean
    return torch.sqrt(_mean(centred * centred))


def _median(series: Tensor) -> Tensor:
    return _ranked(series, (series.shape[1] - 1) // 2)


def _quantile(series: Tensor, level: float) -> Tensor:
    """Quantile over time, interpolated between its neighbours, `[batch, 1, channels]`."""
    below, part = divmod(level * (series.shape[1] - 1), 1)
    low = _ranked(series, int(below))
    return low + part * (_ranked(series, int(below) + 1) - low) if part else low


def _ranked(series: Tensor, rank: int) -> Tensor:
    """The value over time at a rank, 0 for the smallest, `[batch, 1, channels]`."""
    # On CPUs this takes less time than a sort of all values.
    lowest = series.transpose(1, 2).topk(rank + 1, dim=-1, largest=False).values
    return lowest[..., -1:].transpose(1, 2)
