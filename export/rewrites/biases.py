"""Biases of layers that need not have any."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def bias_of(layer: nn.Linear) -> Tensor:
    """`[features]` in float64: zeros where there is none, as a product takes a bias for nothing."""
    if layer.bias is None:
        return torch.zeros(layer.out_features, dtype=torch.float64)
    return layer.bias.detach().double()
