"""The value embedding's circular convolution as one linear map."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.layers.embedding import TokenEmbedding


class NeighbourProjection(nn.Module):
    """Projects each step joined with the one before and the one after it.

    Equal because a convolution with kernel 3 is a linear map of three neighbouring steps, and
    circular padding makes the last step the neighbour of the first. A Conv needs cuDNN on CUDA.

    Args:
        embedding: The trained embedding.
    """

    def __init__(self, embedding: TokenEmbedding) -> None:
        super().__init__()
        # [d_model, channels, 3] to [3 * channels, d_model], the neighbour as the slow index.
        weight = embedding.convolution.weight.detach().permute(2, 1, 0).flatten(0, 1)
        self.register_buffer("weight", weight.contiguous())
        self.weight: Tensor

    def forward(self, series: Tensor) -> Tensor:
        """`[batch, time, channels]` to `[batch, time, d_model]`."""
        before = torch.cat([series[:, -1:], series[:, :-1]], dim=1)
        after = torch.cat([series[:, 1:], series[:, :1]], dim=1)
        return torch.cat([before, series, after], dim=2) @ self.weight
