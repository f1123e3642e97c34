"""Schedules of the learning rate: cosine, and those of the published code.

The published code sets the rate after each epoch, by the number of epochs done; only one-cycle sets
it at each step. The first two epochs of `halving` have the same rate.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR, LRScheduler, OneCycleLR

ScheduleName = Literal["constant", "cosine", "halving", "one-cycle", "type2", "type3"]

WITHOUT_WARM_UP: tuple[ScheduleName, ...] = ("constant", "halving", "type2", "type3")
# Rates by epochs done, for any peak.
_TYPE2 = {2: 5e-5, 4: 1e-5, 6: 5e-6, 8: 1e-6, 10: 5e-7, 15: 1e-7, 20: 5e-8}


def schedule_of(
    name: ScheduleName, optimizer: Optimizer, *, steps: int, steps_per_epoch: int, warm_up: float
) -> LRScheduler:
    """A scheduler that is stepped with the optimizer.

    Args:
        name: Name of the schedule.
        optimizer: Optimizer, whose rate is the peak.
        steps: Number of steps of the whole training.
        steps_per_epoch: Number of steps of an epoch.
        warm_up: Share of the steps in which the rate rises, for schedules that begin low.
    """
    peak = optimizer.param_groups[0]["lr"]
    if name == "one-cycle":
        # OneCycleLR divides by zero if the rise is exactly one step.
        rising = warm_up * (1 - 1e-9) if warm_up * steps == 1 else warm_up
        return OneCycleLR(optimizer, peak, total_steps=steps, pct_start=rising)
    by_epoch: dict[ScheduleName, Callable[[int], float]] = {
        "constant": lambda _: 1.0,
        "halving": lambda done: 0.5 ** max(done - 1, 0),
        "type2": lambda done: _type2(done, peak) / peak,
        "type3": lambda done: 0.9 ** max(done - 3, 0),
    }
    if name == "cosine":
        return LambdaLR(optimizer, lambda step: _cosine(step, steps, warm_up))
    factor = by_epoch[name]
    return LambdaLR(optimizer, lambda step: factor(step // steps_per_epoch))


def _cosine(step: int, steps: int, warm_up: float) -> float:
    """A linear rise, then half a cosine to zero."""
    rising = max(round(steps * warm_up), 1)
    if step < rising:
        return (step + 1) / rising
    return 0.5 * (1 + math.cos(math.pi * (step - rising) / max(steps - rising, 1)))


def _type2(done: int, peak: float) -> float:
    return next((rate for epoch, rate in reversed(_TYPE2.items()) if epoch <= done), peak)
