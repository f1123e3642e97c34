"""Which lags an auto-correlation keeps, and how clearly it chose them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

# Keeps the margin of a history without any correlation finite.
TINY = 1e-30


class LagChoice(NamedTuple):
    """The lags that were kept.

    Attributes:
        strongest: `[batch, k]`, their correlations, largest first.
        lags: `[batch, k]`.
        extremes: As in `LagAttention`.
    """

    strongest: Tensor
    lags: Tensor
    extremes: Tensor | None


def choose_lags(correlation: Tensor, keep: int) -> LagChoice:
    """Keep the largest of `correlation` `[batch, lags]`; one search finds the runner-up as well."""
    if keep == correlation.shape[1]:
        return LagChoice(*correlation.topk(keep), None)
    largest, lags = correlation.topk(keep + 1)
    smallest = correlation.amin(dim=1, keepdim=True)
    extremes = torch.cat([largest[:, :1], largest[:, keep - 1 :], smallest], dim=1)
    return LagChoice(largest[:, :keep], lags[:, :keep], extremes)


def smallest_margin(stages: Sequence[Tensor]) -> Tensor:
    """How clearly the least clear of several auto-correlations chose its lags.

    The difference between the last correlation that was kept and the first that was not, relative
    to the difference between the largest and the smallest of all. What is added to all lags, such
    as an offset of the data, has no influence.

    Args:
        stages: The `extremes` of each that leaves lags out, `[batch, 4]`.

    Returns:
        `[batch]`.
    """
    extremes = torch.cat(list(stages)).reshape(len(stages), -1, 4)
    gap = extremes[..., 1] - extremes[..., 2]
    spread = extremes[..., 0] - extremes[..., 3]
    return (gap / spread.clamp_min(TINY)).amin(dim=0)
