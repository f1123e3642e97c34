"""Amplification of rounding errors by norms of tokens that are almost zero.

A history that is flat in part has steps with hardly any seasonal part. A norm divides these by
their small deviation. This amplifies rounding errors, which are as large as those of other steps,
in torch as much as in a graph, and they depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from foretell.export.rewrites.normalization import SeasonalNorm
from foretell.export.rules import TINY

# For series without flat parts it is 1 to 3; an error of 1e-5 takes 13.
_LARGEST = 8.0


def amplification(tokens: Tensor, epsilon: float) -> Tensor:
    """Factor by which rounding errors grow, `[batch]`.

    The root mean square of all tokens `[batch, time, d_model]`, to which errors are proportional,
    times the mean of the inverse deviations of the steps.
    """
    power = (tokens * tokens).mean(dim=-1)
    mean = tokens.mean(dim=-1)
    variance = (power - mean * mean).relu()
    return torch.sqrt(power.mean(dim=-1)) * (1 / torch.sqrt(variance + epsilon)).mean(dim=-1)


@contextmanager
def clearness_of_norms(model: nn.Module) -> Iterator[list[Tensor]]:
    """Record how far each seasonal norm of a model is from too large an amplification.

    Yields:
        `[batch]` of each norm that has run: 0 where errors may be visible in a forecast.
    """
    found: list[Tensor] = []

    def note(norm: SeasonalNorm, inputs: tuple[Tensor]) -> None:
        factor = amplification(*inputs, norm.epsilon)
        found.append((_LARGEST / factor.clamp_min(TINY) - 1).relu())

    norms = [module for module in model.modules() if isinstance(module, SeasonalNorm)]
    handles = [norm.register_forward_pre_hook(note) for norm in norms]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()
