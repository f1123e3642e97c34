"""Normalisations whose means need no cuDNN."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from foretell.export.rewrites.lookup import form_of
from foretell.models.layers.normalization import SeasonalLayerNorm


@form_of(SeasonalLayerNorm)
class SeasonalNorm(nn.Module):
    """Takes the mean over time out by a sum.

    The mean includes the bias, which therefore is not added: rounded, it would leave noise.

    Args:
        plain: The trained norm.
    """

    def __init__(self, plain: SeasonalLayerNorm) -> None:
        super().__init__()
        self.shape, self.epsilon = plain.norm.normalized_shape, plain.norm.eps
        self.weight = plain.norm.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Normalise `[batch, time, d_model]`."""
        normed = functional.layer_norm(tokens, self.shape, self.weight, eps=self.epsilon)
        return normed - normed.mean(dim=1, keepdim=True)
