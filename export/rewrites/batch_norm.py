"""Batch norm with its running statistics as one scale and shift."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretell.export.rewrites.lookup import form_of
from foretell.models.layers.normalization import TokenBatchNorm


@form_of(TokenBatchNorm)
class AffineNorm(nn.Module):
    """Scales and shifts each feature.

    Equal because in evaluation a batch norm subtracts a constant mean, divides by a constant
    deviation and applies a constant weight and bias.

    Args:
        batch_norm: The trained norm.
    """

    def __init__(self, batch_norm: TokenBatchNorm) -> None:
        super().__init__()
        norm = batch_norm.norm
        if norm.running_mean is None or norm.running_var is None:
            raise ValueError("a batch norm without running statistics is not a constant map")
        scale = norm.weight.detach().double() / torch.sqrt(norm.running_var.double() + norm.eps)
        shift = norm.bias.detach().double() - norm.running_mean.double() * scale
        self.scale = nn.Buffer(scale.to(norm.weight.dtype))
        self.shift = nn.Buffer(shift.to(norm.weight.dtype))

    def forward(self, tokens: Tensor) -> Tensor:
        """Scale and shift `[batch, time, d_model]`."""
        return tokens * self.scale + self.shift


def affine_norms(layer: nn.Module) -> dict[str, nn.Module]:
    """The faster forms of a layer's own batch norms, by name."""
    parts = layer.named_children()
    return {name: AffineNorm(part) for name, part in parts if isinstance(part, TokenBatchNorm)}
