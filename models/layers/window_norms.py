"""What normalises each window around a network, by name.

Besides RevIN (`mean` and `last`) these are the scalers of NeuralForecast (Olivares et al., 2022,
arXiv:2203.10716), with its numbers: a spread of 0 counts as 1, and a millionth is added to all.
Those that are called local are its `local_scaler_type`, of the package coreforecast.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import torch
from pydantic import AfterValidator, WithJsonSchema
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.layers.normalization import InstanceNorm, InstanceStatistics, WindowNorm

EPSILON = 1e-6
# The median absolute deviation of a normal distribution, in standard deviations.
_NORMAL = 0.6744897501960817
_ROUNDING = torch.finfo(torch.float32).eps


class WindowScaler(WindowNorm[InstanceStatistics]):
    """Subtracts a centre of each window and channel, and divides by a spread."""

    @abstractmethod
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        """Centre and spread of `[batch, context, channels]`, each `[batch, 1, channels]`."""

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        centre, spread = self.measure(history)
        statistics = InstanceStatistics(centre, self.divisor(spread))
        return self.normalise(history, statistics), statistics

    def divisor(self, spread: Tensor) -> Tensor:
        """What a window of such a spread is divided by, `[batch, 1, channels]`."""
        # The sign of 0 is 0, that of any other spread is 1.
        return spread + (1 - spread.sign()) + EPSILON

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        return (series - statistics.centre) / statistics.spread

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        return forecast * statistics.spread + statistics.centre

    @override
    def anchor(
        self, said: Tensor, statistics: InstanceStatistics
    ) -> tuple[Tensor, InstanceStatistics | None]:
        return said, statistics


class StandardScaler(WindowScaler):
    """By mean and standard deviation."""

    @override
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        mean = _mean(history)
        return mean, _deviation(history, mean)


class DecoupledScaler(StandardScaler):
    """The same, with a scale and a shift of each channel that are trained, on the way out alone.

    Args:
        channels: Series of the input.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        return super().reverse(forecast, self._out(statistics))

    @override
    def anchor(
        self, said: Tensor, statistics: InstanceStatistics
    ) -> tuple[Tensor, InstanceStatistics | None]:
        return said, self._out(statistics)

    def _out(self, statistics: InstanceStatistics) -> InstanceStatistics:
        spread = statistics.spread * (self.weight.relu() + EPSILON)
        return InstanceStatistics(statistics.centre + self.bias, spread)


class RobustScaler(WindowScaler):
    """By median and median absolute deviation, the lower one of an even number each.

    Where more than half of a window is one value, a share of the standard deviation stands in.
    """

    @override
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        median = _median(history)
        deviation = _median((history - median).abs())
        spread = _deviation(history, _mean(history))
        return median, deviation + (1 - deviation.sign()) * spread * _NORMAL


class InvariantScaler(RobustScaler):
    """The same, and the inverse hyperbolic sine of that."""

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        return super().normalise(series, statistics).asinh()

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        return super().reverse(forecast.sinh(), statistics)


class RangeScaler(WindowScaler):
    """By the smallest and the largest value, which become `low` and 1.

    Args:
        low: 0 or -1.
    """

    def __init__(self, low: int) -> None:
        super().__init__()
        self.low = low

    @override
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        smallest, largest = _ranked(history, 0), -_ranked(-history, 0)
        return smallest, largest - smallest

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        return super().normalise(series, statistics) * (1 - self.low) + self.low

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        return super().reverse((forecast - self.low) / (1 - self.low), statistics)


class MagnitudeScaler(WindowScaler):
    """By the mean magnitude of the values, at least 1e-10: Hugging Face's `mean`."""

    @override
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        spread = _mean(history.abs())
        # As many zeros, without the arithmetic of shapes.
        return 0 * spread, spread

    @override
    def divisor(self, spread: Tensor) -> Tensor:
        return spread.clamp(min=1e-10)


class LocalScaler(WindowScaler):
    """Divides by the spread itself, or by 1 where that is less than float32 tells from 0 next to 1.

    The library takes these of all rows of a series that it is given: here of a window's.
    """

    @override
    def divisor(self, spread: Tensor) -> Tensor:
        # 1 below, and 0 from there on: CUDA compares nothing that ONNX writes down.
        is_below = (_ROUNDING - spread).relu().sign()
        return torch.maximum(spread, is_below)


class LocalStandardScaler(LocalScaler, StandardScaler):
    """By mean and standard deviation."""


class LocalRangeScaler(LocalScaler, RangeScaler):
    """By the smallest and the largest value, which become 0 and 1."""

    def __init__(self) -> None:
        super().__init__(0)


class LocalDeviationScaler(LocalScaler):
    """By median and median absolute deviation, the mean of both middle values of an even number."""

    @override
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        median = _quantile(history, 0.5)
        return median, _quantile((history - median).abs(), 0.5)


class LocalQuartileScaler(LocalScaler):
    """By median and the distance between the quartiles, interpolated."""

    @override
    def measure(self, history: Tensor) -> tuple[Tensor, Tensor]:
        return _quantile(history, 0.5), _quantile(history, 0.75) - _quantile(history, 0.25)


class Identity(WindowNorm[None]):
    """Nothing, for another norm to stand within."""

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, None]:
        return history, None

    @override
    def normalise(self, series: Tensor, statistics: None) -> Tensor:
        return series

    @override
    def reverse(self, forecast: Tensor, statistics: None) -> Tensor:
        return forecast

    @override
    def anchor(self, said: Tensor, statistics: None) -> tuple[Tensor, InstanceStatistics | None]:
        return said, None


class Chain(WindowNorm[tuple[Any, Any]]):
    """One within another: what the second reads is what the first gives.

    Args:
        outer: The first.
        inner: The second.
    """

    def __init__(self, outer: WindowNorm[Any], inner: WindowNorm[Any]) -> None:
        super().__init__()
        self.outer = outer
        self.inner = inner

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, tuple[Any, Any]]:
        history, outer = self.outer(history)
        history, inner = self.inner(history)
        return history, (outer, inner)

    @override
    def normalise(self, series: Tensor, statistics: tuple[Any, Any]) -> Tensor:
        outer, inner = statistics
        return self.inner.normalise(self.outer.normalise(series, outer), inner)

    @override
    def reverse(self, forecast: Tensor, statistics: tuple[Any, Any]) -> Tensor:
        outer, inner = statistics
        return self.outer.reverse(self.inner.reverse(forecast, inner), outer)

    @override
    def reverse_around(
        self, said: Tensor, statistics: tuple[Any, Any], values: Callable[[Tensor], Tensor]
    ) -> Tensor:
        outer, inner = statistics
        return self.outer.reverse(values(self.inner.reverse(said, inner)), outer)

    @override
    def anchor(
        self, said: Tensor, statistics: tuple[Any, Any]
    ) -> tuple[Tensor, InstanceStatistics | None]:
        outer, inner = statistics
        return self.outer.anchor(self.inner.reverse(said, inner), outer)


def _mean(series: Tensor) -> Tensor:
    """Over time; exactly the value of a constant window, whose spread would not be 0 otherwise."""
    steps = series.shape[1]
    rough = series.sum(dim=1, keepdim=True) / steps
    return rough + (series - rough).sum(dim=1, keepdim=True) / steps


def _deviation(series: Tensor, mean: Tensor) -> Tensor:
    """The standard deviation over time, of all values and not of a sample."""
    centred = series - mean
    return torch.sqrt(_mean(centred * centred))


def _median(series: Tensor) -> Tensor:
    return _ranked(series, (series.shape[1] - 1) // 2)


def _quantile(series: Tensor, level: float) -> Tensor:
    """Interpolated between the values over time that are next to it, `[batch, 1, channels]`."""
    below, part = divmod(level * (series.shape[1] - 1), 1)
    low = _ranked(series, int(below))
    return low + part * (_ranked(series, int(below) + 1) - low) if part else low


def _ranked(series: Tensor, rank: int) -> Tensor:
    """The value over time that so many are not above, `[batch, 1, channels]`.

    By TopK: of medians and minima, that is what CUDA has a kernel of its own for.
    """
    lowest = series.transpose(1, 2).topk(rank + 1, dim=-1, largest=False).values
    return lowest[..., -1:].transpose(1, 2)


WINDOW_NORMS: Mapping[str, Callable[[int, bool], WindowNorm[Any]]] = {
    "mean": lambda channels, affine: InstanceNorm(channels, centre="mean", affine=affine),
    "last": lambda channels, affine: InstanceNorm(channels, centre="last", affine=affine),
    "standard": lambda *_: StandardScaler(),
    "robust": lambda *_: RobustScaler(),
    "minmax": lambda *_: RangeScaler(0),
    "minmax1": lambda *_: RangeScaler(-1),
    "invariant": lambda *_: InvariantScaler(),
    "decoupled": lambda channels, _: DecoupledScaler(channels),
    "magnitude": lambda *_: MagnitudeScaler(),
    "local-standard": lambda *_: LocalStandardScaler(),
    "local-robust": lambda *_: LocalDeviationScaler(),
    "local-robust-iqr": lambda *_: LocalQuartileScaler(),
    "local-minmax": lambda *_: LocalRangeScaler(),
    "identity": lambda *_: Identity(),
}
_REVERSIBLE = ("mean", "last")


def takes_affine(names: str) -> bool:
    """Whether one of the norms is RevIN, which may have trained parameters."""
    return any(name in _REVERSIBLE for name in names.split("+"))


def anchors_by_revin(names: str) -> bool:
    """Whether it is RevIN that shifts and scales distributions."""
    return names.split("+")[0] in _REVERSIBLE


def build_window_norm(names: str, channels: int, *, affine: bool) -> WindowNorm[Any]:
    """An untrained norm, or one within another.

    Args:
        names: One or two of `WINDOW_NORMS`, joined by `+`, the outer one first.
        channels: Series of the input.
        affine: Whether RevIN has trained parameters.
    """
    parts = [WINDOW_NORMS[name](channels, affine) for name in names.split("+")]
    return parts[0] if len(parts) == 1 else Chain(*parts)


def _check(names: str) -> str:
    parts = names.split("+")
    if len(parts) > 2 or not all(name in WINDOW_NORMS for name in parts):
        raise ValueError(f"expected {', '.join(WINDOW_NORMS)}, or two of them joined by +")
    return names


WindowNormName = Annotated[
    str, AfterValidator(_check), WithJsonSchema({"type": "string", "enum": list(WINDOW_NORMS)})
]
