"""RevIN by means that are exact for constant windows."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from typing_extensions import override

from foretell.export.rewrites.lookup import Call, rewrites
from foretell.models.layers.scales import EPSILON, InstanceStatistics
from foretell.models.layers.window_norms import InstanceNorm


@rewrites(InstanceNorm)
def rewrite_instance_norm(plain: InstanceNorm, _: Call) -> nn.Module | None:
    """Replace a norm that reads no gaps; one that reads them works like this already."""
    return None if plain.reads_gaps else SummedInstanceNorm(plain)


class SummedInstanceNorm(InstanceNorm):
    """RevIN that corrects the mean by the mean of the centred window.

    Args:
        plain: The trained normalisation.
    """

    def __init__(self, plain: InstanceNorm) -> None:
        super().__init__(0, centre=plain.centre)
        self.weight, self.bias = plain.weight, plain.bias

    @override
    def statistics(self, history: Tensor) -> InstanceStatistics:
        # The division would amplify the rounding error of a constant window's mean.
        rough = history.mean(dim=1, keepdim=True)
        mean = rough + (history - rough).mean(dim=1, keepdim=True)
        centred = history - mean
        spread = torch.sqrt((centred * centred).mean(dim=1, keepdim=True) + EPSILON)
        return InstanceStatistics(mean if self.centre == "mean" else history[:, -1:], spread)
