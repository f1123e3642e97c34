"""Biases of layers, which may lack them."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def bias_of(layer: nn.Linear) -> Tensor:
    """Bias `[features]` in float64; zeros without one, as a bias costs a product nothing."""
    if layer.bias is None:
        return torch.zeros(layer.out_features, dtype=torch.float64)
    return layer.bias.detach().double()
