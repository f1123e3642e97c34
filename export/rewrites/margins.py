"""Discrete choices, such as the lags that an auto-correlation keeps, and how clear they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from foretell.export.rules import TINY


class LagChoice(NamedTuple):
    """The lags that were kept and, if any was left out, the runner-up.

    Attributes:
        lags: `[batch, k]` or `[batch, k + 1]`, by descending correlation.
        weights: Weights of the lags, which sum to 1; 0 for the runner-up.
        extremes: As in `Circulant`.
    """

    lags: Tensor
    weights: Tensor
    extremes: Tensor | None


def choose_lags(correlation: Tensor, keep: int) -> LagChoice:
    """Keep the largest of `correlation` `[batch, lags]`; one search finds the runner-up as well."""
    if keep == correlation.shape[1]:
        largest, lags = correlation.topk(keep)
        return LagChoice(lags, largest.softmax(dim=-1), None)
    largest, lags = correlation.topk(keep + 1)
    # Added to the scores, it leaves the runner-up out without a copy of the others.
    left_out = largest.new_tensor([0.0] * keep + [float("-inf")])
    weights = (largest + left_out).softmax(dim=-1)
    smallest = correlation.amin(dim=-1, keepdim=True)
    return LagChoice(lags, weights, torch.cat([largest, smallest], dim=1))


def extremes(scores: Tensor, kept: int, *, to_zero: bool = False) -> Tensor:
    """The scores that show how clear a choice is.

    Args:
        scores: Scores of all candidates, `[…, candidates]`.
        kept: Number of chosen candidates.
        to_zero: Whether the range of the scores includes zero. Without zero, the range of almost
            equal scores is rounding, which matters unless the same may be added to all of them.

    Returns:
        `[…, kept + 2]`: the scores that were kept, in descending order, the first that was not, and
        the largest minus the range, mostly the smallest.
    """
    largest = scores.topk(kept + 1, dim=-1).values
    last = scores.amin(dim=-1, keepdim=True)
    if to_zero:
        last = -((-largest[..., :1]).relu() + (-last).relu())
    return torch.cat([largest, last], dim=-1)


def smallest_margin(choices: Sequence[Tensor]) -> Tensor:
    """Margin of the least clear of several choices.

    The difference between the last score that was kept and the first that was not, relative to the
    difference between the first and the last of the extremes. A number that is added to all lags,
    such as an offset of the data, has no influence.

    Args:
        choices: The `extremes` of each, `[batch, …, k + 2]`.

    Returns:
        `[batch]`.
    """
    found = [(one @ _differences(one.shape[-1]).to(one)).flatten(1) for one in choices]
    both = torch.cat(found, dim=1)
    return (both[:, 0::2] / both[:, 1::2].clamp_min(TINY)).amin(dim=1)


def _differences(count: int) -> Tensor:
    """Matrix `[count, 2]`: a product with it takes fewer operators than the differences."""
    differences = torch.zeros(count, 2)
    differences[-3, 0] = differences[0, 1] = 1
    differences[-2, 0] = differences[-1, 1] = -1
    return differences
