"""What a training makes small, and what its validation is judged by."""

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

    A forecast for which it is least is above the target in a share of `quantile` of all cases. Of
    the median it is half of the mean absolute error.

    Args:
        forecast: `[batch, horizon, channels]`.
        target: Likewise.
        quantile: Between 0 and 1.
    """
    error = target - forecast
    return torch.maximum(quantile * error, (quantile - 1) * error).mean()


def over_known(loss: Loss, found: Tensor, batch: Batch) -> Tensor:
    """The mean loss of the targets that are no filled values; 0 where there is none.

    Args:
        loss: The mean loss of forecasts and targets.
        found: `[batch, horizon, targets]`, or with a head parameters behind these axes.
        batch: What was forecast.
    """
    target = batch.target.to(found.dtype)
    if batch.known is None:
        return loss(found, target)
    if not batch.known.any():
        return 0 * found.sum()
    return loss(found[batch.known], target[batch.known])


def loss_of(name: LossName, *, huber_delta: float, quantile: float) -> Loss:
    """The loss of a name, from forecast and target to their mean."""
    losses: dict[LossName, Loss] = {
        "mse": functional.mse_loss,
        "mae": functional.l1_loss,
        "huber": partial(functional.huber_loss, delta=huber_delta),
        "quantile": partial(pinball, quantile=quantile),
    }
    return losses[name]


def judge_of(name: LossName, *, quantile: float) -> Loss:
    """What tells a better epoch: the squared error, or what is no estimate of the mean's."""
    judged = "mse" if name == "huber" else name
    return loss_of(judged, huber_delta=1, quantile=quantile)
