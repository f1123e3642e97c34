"""Losses of training and validation."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from foretell.training.windows import Batch

LossName = Literal["mse", "mae", "huber", "quantile"]
Loss = Callable[[Tensor, Tensor], Tensor]


def pinball(forecast: Tensor, target: Tensor, *, quantile: float) -> Tensor:
    """The mean loss of quantile regression (Koenker and Bassett, 1978).

    The forecast that minimises it is above the target in a share of `quantile` of all cases. For
    the median it is half of the mean absolute error.

    Args:
        forecast: `[batch, horizon, channels]`.
        target: `[batch, horizon, channels]`.
        quantile: Level of the quantile, between 0 and 1.
    """
    error = target - forecast
    return torch.maximum(quantile * error, (quantile - 1) * error).mean()


def over_known(loss: Loss, found: Tensor, batch: Batch) -> Tensor:
    """The mean loss over known targets; 0 without any.

    Args:
        loss: Returns the mean loss of forecasts and targets.
        found: `[batch, horizon, targets]`; with a head, `[batch, horizon, targets, parameters]`.
        batch: The windows with their targets.
    """
    target = batch.target.to(found.dtype)
    if batch.known is None:
        return loss(found, target)
    if not batch.known.any():
        return 0 * found.sum()
    return loss(found[batch.known], target[batch.known])


def loss_of(name: LossName, *, huber_delta: float, quantile: float) -> Loss:
    """The function that returns the mean loss of forecasts and targets."""
    losses: dict[LossName, Loss] = {
        "mse": functional.mse_loss,
        "mae": functional.l1_loss,
        "huber": partial(functional.huber_loss, delta=huber_delta),
        "quantile": partial(pinball, quantile=quantile),
    }
    return losses[name]


def judge_of(name: LossName, *, quantile: float) -> Loss:
    """The validation loss: the training loss, with the squared error in place of huber."""
    judged = "mse" if name == "huber" else name
    return loss_of(judged, huber_delta=1, quantile=quantile)
