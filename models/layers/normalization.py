"""Normalisations over features and over time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn
from typing_extensions import override

EPSILON = 1e-5
S = TypeVar("S")


class SeasonalLayerNorm(nn.Module):
    """LayerNorm whose mean over time is removed, so that no trend stays in (arXiv:2106.13008)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]`, the shape stays."""
        normed: Tensor = self.norm(tokens)
        return normed - normed.mean(dim=1, keepdim=True)


class TokenBatchNorm(nn.Module):
    """BatchNorm of each feature over batch and time."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]`, the shape stays."""
        return self.norm(tokens.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]


class InstanceStatistics(NamedTuple):
    """Centre and spread of each window and channel, `[batch, 1, channels]`."""

    centre: Tensor
    spread: Tensor

    def within(self, outer: InstanceStatistics) -> InstanceStatistics:
        """Of the values before the outer ones were subtracted and divided by."""
        return InstanceStatistics(
            self.centre * outer.spread + outer.centre, self.spread * outer.spread
        )


class WindowNorm(nn.Module, ABC, Generic[S]):
    """Normalises each window by statistics of its own, and undoes that on what is forecast."""

    @abstractmethod
    def forward(self, history: Tensor) -> tuple[Tensor, S]:
        """Normalise `[batch, context, channels]` and return what undoes it."""

    @abstractmethod
    def normalise(self, series: Tensor, statistics: S) -> Tensor:
        """Normalise `[batch, time, channels]`, the window itself or what follows it."""

    @abstractmethod
    def reverse(self, forecast: Tensor, statistics: S) -> Tensor:
        """Undo the normalisation on `[batch, horizon, channels]`."""

    def reverse_around(
        self, said: Tensor, statistics: S, values: Callable[[Tensor], Tensor]
    ) -> Tensor:
        """Undo it on values that are made of what a network says once a norm within is undone.

        Args:
            said: `[batch, time, channels]`.
            statistics: Of the window.
            values: Makes `[batch, more time, channels]` of it.
        """
        return self.reverse(values(said), statistics)

    @abstractmethod
    def anchor(self, said: Tensor, statistics: S) -> tuple[Tensor, InstanceStatistics | None]:
        """What shifts and scales distributions, whose parameters are not values to be reversed.

        Args:
            said: `[batch, time, channels]`, what a network says of the parameters.
            statistics: Of the window.

        Returns:
            The same, of which a norm within another has been undone already, and the centre and
            spread for the distributions; None of these where they stay as they are.
        """


class InstanceNorm(WindowNorm[InstanceStatistics]):
    """Reversible instance normalisation, RevIN (Kim et al., ICLR 2022).

    Args:
        channels: Series of the input.
        centre: What is subtracted: the `mean` of the window or its `last` value.
        affine: Scale and shift each channel with trained parameters.
    """

    def __init__(
        self, channels: int, *, centre: Literal["mean", "last"] = "mean", affine: bool = False
    ) -> None:
        super().__init__()
        self.centre = centre
        self.weight = nn.Parameter(torch.ones(channels)) if affine else None
        self.bias = nn.Parameter(torch.zeros(channels)) if affine else None

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        mean = history.mean(dim=1, keepdim=True).detach()
        variance = history.var(dim=1, keepdim=True, correction=0).detach()
        centre = mean if self.centre == "mean" else history[:, -1:].detach()
        statistics = InstanceStatistics(centre, torch.sqrt(variance + EPSILON))
        return self.normalise(history, statistics), statistics

    @override
    def normalise(self, series: Tensor, statistics: InstanceStatistics) -> Tensor:
        normed = (series - statistics.centre) / statistics.spread
        if self.weight is not None and self.bias is not None:
            normed = normed * self.weight + self.bias
        return normed

    @override
    def reverse(self, forecast: Tensor, statistics: InstanceStatistics) -> Tensor:
        if self.weight is not None and self.bias is not None:
            # The published code guards against a zero weight with eps squared.
            forecast = (forecast - self.bias) / (self.weight + EPSILON**2)
        return forecast * statistics.spread + statistics.centre

    @override
    def anchor(
        self, said: Tensor, statistics: InstanceStatistics
    ) -> tuple[Tensor, InstanceStatistics | None]:
        return said, statistics
