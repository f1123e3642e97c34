"""Dropout whose masks are drawn fast on a CPU, where torch's own take a quarter of training."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

_LEVELS = 256


def drop(values: Tensor, probability: float, *, training: bool) -> Tensor:
    """Drop values, and scale the others so that their mean stays.

    On a CPU the probability is rounded to a 256th: a value costs a random byte, and each random
    number gives eight.

    Args:
        values: Values of any shape.
        probability: From 0 to 1.
        training: Whether anything is dropped.
    """
    dropped = round(probability * _LEVELS)
    if not training or values.device.type != "cpu" or dropped in (0, _LEVELS):
        return functional.dropout(values, probability, training)
    count = values.numel()
    words = torch.empty(-(-count // 8), dtype=torch.int64).random_(-(2**63), None)
    kept = words.view(torch.uint8)[:count].view(values.shape) >= dropped
    return values * kept.to(values.dtype).mul_(_LEVELS / (_LEVELS - dropped))


class Dropout(nn.Dropout):
    """Drops features in training."""

    @override
    def forward(self, input: Tensor) -> Tensor:
        """Drop features of a tensor of any shape."""
        return drop(input, self.p, training=self.training)
