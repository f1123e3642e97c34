"""Normalisations over features."""

from __future__ import annotations

from torch import Tensor, nn


class SeasonalLayerNorm(nn.Module):
    """LayerNorm whose mean over time is removed, so that no trend stays in (arXiv:2106.13008)."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """Normalise `[batch, time, d_model]`."""
        normed: Tensor = self.norm(tokens)
        return normed - normed.mean(dim=1, keepdim=True)


class TokenBatchNorm(nn.Module):
    """BatchNorm of each feature over batch and time."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(d_model)

    def forward(self, tokens: Tensor) -> Tensor:
        """Normalise `[batch, time, d_model]`."""
        return self.norm(tokens.transpose(1, 2)).transpose(1, 2)  # type: ignore[no-any-return]
