"""Forecasts that need no model: what a trained one has to beat."""

from __future__ import annotations

from torch import Tensor


def last_value(history: Tensor, horizon: int) -> Tensor:
    """Repeat the last value of `[batch, context, channels]`: `[batch, horizon, channels]`."""
    return history[:, -1:].expand(-1, horizon, -1)


def seasonal_naive(history: Tensor, horizon: int, season: int) -> Tensor:
    """Repeat the last `season` steps of `[batch, context, channels]` over the horizon."""
    repeats = -(-horizon // season)
    return history[:, -season:].repeat(1, repeats, 1)[:, :horizon]
