"""Normalisations whose means need no cuDNN."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from foretell.export.rewrites.lookup import form_of
from foretell.models.layers.normalization import (
    EPSILON,
    InstanceNorm,
    InstanceStatistics,
    SeasonalLayerNorm,
)


@form_of(SeasonalLayerNorm)
class SeasonalNorm(nn.Module):
    """Takes the mean over time out by a sum.

    That takes out the bias, which therefore is not added: rounded, it would leave noise.

    Args:
        plain: The trained norm.
    """

    def __init__(self, plain: SeasonalLayerNorm) -> None:
        super().__init__()
        self.shape, self.epsilon = plain.norm.normalized_shape, plain.norm.eps
        self.weight = plain.norm.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """`[batch, time, d_model]`, the shape stays."""
        normed = functional.layer_norm(tokens, self.shape, self.weight, eps=self.epsilon)
        return normed - normed.mean(dim=1, keepdim=True)


@form_of(InstanceNorm)
class SummedInstanceNorm(InstanceNorm):
    """Centre and spread of each window by sums.

    Args:
        plain: The trained normalisation.
    """

    def __init__(self, plain: InstanceNorm) -> None:
        super().__init__(0, centre=plain.centre)
        self.weight, self.bias = plain.weight, plain.bias

    @override
    def forward(self, history: Tensor) -> tuple[Tensor, InstanceStatistics]:
        """As the plain one."""
        # What rounding leaves of a constant window would be made many times as large.
        rough = history.mean(dim=1, keepdim=True)
        mean = rough + (history - rough).mean(dim=1, keepdim=True)
        centred = history - mean
        spread = torch.sqrt((centred * centred).mean(dim=1, keepdim=True) + EPSILON)
        centre = mean if self.centre == "mean" else history[:, -1:]
        statistics = InstanceStatistics(centre, spread)
        return self.normalise(history, statistics), statistics
