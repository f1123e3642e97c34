"""Norms of windows around a network, by name.

Besides RevIN (`mean` and `last`) these are the scalers of NeuralForecast (Olivares et al., 2022,
arXiv:2203.10716), with its numbers: a spread of 0 counts as 1, and a millionth is added to all.
Names with `local` are its `local_scaler_type`, from the package coreforecast. There the statistics
are of all given rows of a series, here of a window.

Norms that read gaps have the numbers of Hugging Face's transformers for a `past_observed_mask`.
Centre and spread are those of the observed values. A missing value (NaN) becomes a zero, which is
then scaled like any other. A channel without any observation is scaled like a channel of zeros.
"""

# ruff: noqa: ARG002 - a norm by itself needs no statistics

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, NamedTuple

import torch
from pydantic import AfterValidator, WithJsonSchema
from torch import Tensor, nn
from typing_extensions import override

from foretell.models.layers import scales
from foretell.models.layers.scales import EPSILON, MILLIONTH, InstanceStatistics, without_gaps

# Statistics that undo a norm; each kind has its own.
Statistics = Any


class WindowNorm(nn.Module):
    """Normalises each window by its own statistics, and undoes that on the forecast.

    The base class only replaces missing values by zeros.

    Args:
        reads_gaps: Whether values may be missing, NaN.
    """

    def __init__(self, *, reads_gaps: bool = False) -> None:
        super().__init__()
        self.reads_gaps = reads_gaps

    def forward(self, history: Tensor) -> tuple[Tensor, Statistics]:
        """Normalise `[batch, context, channels]` and return the statistics that undo it."""
        statistics = self.statistics(history)
        known = without_gaps(history) if self.reads_gaps else history
        return self.normalise(known, statistics), statistics

    def statistics(self, history: Tensor) -> Statistics:
        """Statistics of `[batch, context, channels]`."""
        return None

    def normalise(self, series: Tensor, statistics: Statistics) -> Tensor:
        """Normalise `[batch, time, channels]`, the window itself or later steps."""
        return series

    def reverse(self, forecast: Tensor, statistics: Statistics) -> Tensor:
        """Undo the normalisation on `[batch, horizon, channels]`."""
        return forecast

    def unwrap(
        self, outputs: Tensor, statistics: Statistics
    ) -> tuple[Tensor, WindowNorm, Statistics]:
        """Undo an inner norm on `[batch, time, channels]`; add the outer norm and statistics."""
        return outputs, self, statistics

    def out(self, statistics: Statistics) -> InstanceStatistics | None:
        """Shift and scale of distributions; None for neither."""
        return None


class Warp(NamedTuple):
    """A function of scaled values, and its inverse."""

    there: Callable[[Tensor], Tensor]
    back: Callable[[Tensor], Tensor]


class WindowScaler(WindowNorm):
    """Subtracts a centre of each window and channel, and divides by a spread.

    Args:
        measure: Measures centre and spread of a window; gaps are NaN.
        divisor: Makes the divisor from a spread; None for the spread itself.
        warp: Function that follows, if any.
        reads_gaps: Whether values may be missing.
    """

    def __init__(
        self,
        measure: Callable[[Tensor], InstanceStatistics],
        divisor: Callable[[Tensor], Tensor] | None = scales.more_than_zero,
        *,
        warp: Warp | None = None,
        reads_gaps: bool = False,
    ) -> None:
        super().__init__(reads_gaps=reads_gaps)
        self.measure, self.divisor, self.warp = measure, divisor, warp

    @override
    def statistics(self, history: Tensor) -> InstanceStatistics:
        centre, spread = self.measure(history)
        return InstanceStatistics(centre, spread if self.divisor is None else self.divisor(spread))

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        scaled = (series - statistics.centre) / statistics.spread
        return scaled if self.warp is None else self.warp.there(scaled)

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        scaled = forecast if self.warp is None else self.warp.back(forecast)
        centre, spread = self.out(statistics)
        return scaled * spread + centre

    @override
    def out(self, statistics: InstanceStatistics) -> InstanceStatistics:
        return statistics


class InstanceNorm(WindowScaler):
    """Reversible instance normalisation, RevIN (Kim et al., ICLR 2022).

    Args:
        channels: Series of the input.
        centre: Value that is subtracted: the `mean` of the window or its `last` value.
        affine: Scale and shift each channel with trained parameters.
        reads_gaps: Whether values may be missing; the centre is the mean then.
    """

    def __init__(
        self,
        channels: int,
        *,
        centre: Literal["mean", "last"] = "mean",
        affine: bool = False,
        reads_gaps: bool = False,
    ) -> None:
        measure = scales.observed_moments if reads_gaps else partial(scales.moments, centre=centre)
        super().__init__(measure, None, reads_gaps=reads_gaps)
        self.centre = centre
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        normed = super().normalise(series, statistics)
        if self.weight is not None and self.bias is not None:
            normed = normed * self.weight + self.bias
        return normed

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        if self.weight is not None and self.bias is not None:
            # The published code guards against a zero weight with eps squared.
            forecast = (forecast - self.bias) / (self.weight + EPSILON**2)
        return super().reverse(forecast, statistics)


class DecoupledScaler(WindowScaler):
    """Scales by mean and standard deviation; only the way out has a trained scale and shift.

    Args:
        channels: Series of the input.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(scales.standard)
        self.weight = nn.Parameter(torch.ones(channels))
        self.bias = nn.Parameter(torch.zeros(channels))

    @override
    def out(self, statistics: InstanceStatistics) -> InstanceStatistics:
        spread = statistics.spread * (self.weight.relu() + MILLIONTH)
        return InstanceStatistics(statistics.centre + self.bias, spread)


class Chain(WindowNorm):
    """One norm within another: the second reads the output of the first.

    Args:
        outer: The first norm.
        inner: The second norm.
    """

    def __init__(self, outer: WindowNorm, inner: WindowNorm) -> None:
        super().__init__()
        self.outer, self.inner = outer, inner

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
    def unwrap(
        self, outputs: Tensor, statistics: tuple[Any, Any]
    ) -> tuple[Tensor, WindowNorm, Statistics]:
        outer, inner = statistics
        return self.inner.reverse(outputs, inner), self.outer, outer


_LOWEST = -1
_SIGNED = Warp(lambda scaled: scaled * 2 + _LOWEST, lambda forecast: (forecast - _LOWEST) / 2)
_at_least = partial(torch.clamp, min=1e-10)
# Makes a norm from the number of channels, and whether RevIN has trained parameters.
Build = Callable[[int, bool], WindowNorm]
WINDOW_NORMS: Mapping[str, Build] = {
    "mean": lambda channels, affine: InstanceNorm(channels, affine=affine),
    "last": lambda channels, affine: InstanceNorm(channels, centre="last", affine=affine),
    "standard": lambda *_: WindowScaler(scales.standard),
    "robust": lambda *_: WindowScaler(scales.robust),
    "minmax": lambda *_: WindowScaler(scales.extremes),
    "minmax1": lambda *_: WindowScaler(scales.extremes, warp=_SIGNED),
    "invariant": lambda *_: WindowScaler(scales.robust, warp=Warp(torch.asinh, torch.sinh)),
    "decoupled": lambda channels, _: DecoupledScaler(channels),
    "magnitude": lambda *_: WindowScaler(scales.magnitude, _at_least),
    "local-standard": lambda *_: WindowScaler(scales.standard, scales.local),
    "local-robust": lambda *_: WindowScaler(scales.middle_deviation, scales.local),
    "local-robust-iqr": lambda *_: WindowScaler(scales.quartiles, scales.local),
    "local-minmax": lambda *_: WindowScaler(scales.extremes, scales.local),
    "identity": lambda *_: WindowNorm(),
}
# Norms that read gaps, by the name of the norm without gaps.
OBSERVED_NORMS: Mapping[str | None, Build] = {
    "mean": lambda channels, affine: InstanceNorm(channels, affine=affine, reads_gaps=True),
    "magnitude": lambda *_: WindowScaler(scales.observed_magnitude, _at_least, reads_gaps=True),
    None: lambda *_: WindowNorm(reads_gaps=True),
}
_REVERSIBLE = ("mean", "last")


def takes_affine(names: str) -> bool:
    """Whether one of the norms is RevIN, which may have trained parameters."""
    return any(name in _REVERSIBLE for name in names.split("+"))


def anchors_by_revin(names: str) -> bool:
    """Whether RevIN shifts and scales distributions."""
    return names.split("+")[0] in _REVERSIBLE


def build_window_norm(names: str, channels: int, *, affine: bool) -> WindowNorm:
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
