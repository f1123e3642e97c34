"""How much a norm makes of what rounding leaves of tokens that are all but zero.

A history that is flat in part has steps with next to no seasonal part. Its norm divides these by
the little that they vary: rounding errors as large as the other steps' become many times as large,
in torch as much as in a graph, and depend on the batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from foretell.export.rewrites.normalization import SeasonalNorm
from foretell.export.rules import TINY

# Of series that move all along it is 1 to 3, and an error of 1e-5 takes 13.
_LARGEST = 8.0


def amplification(tokens: Tensor, epsilon: float) -> Tensor:
    """How much larger rounding errors get, `[batch]`.

    The root mean square of all tokens `[batch, time, d_model]`, which errors are as large as,
    times the mean factor by which the steps' deviations are divided.
    """
    power = (tokens * tokens).mean(dim=-1)
    mean = tokens.mean(dim=-1)
    variance = (power - mean * mean).relu()
    return torch.sqrt(power.mean(dim=-1)) * (1 / torch.sqrt(variance + epsilon)).mean(dim=-1)


@contextmanager
def clearness_of_norms(model: nn.Module) -> Iterator[list[Tensor]]:
    """Note of each seasonal norm that a model runs how far it is from too large an amplification.

    Yields:
        `[batch]` of each, once it has run: 0 where errors may be seen in a forecast.
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
