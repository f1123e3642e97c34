"""The moving average as one matrix."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from models.layers.decomposition import MovingAverage


class MatrixAverage(nn.Module):
    """Multiplies by a constant `[length, length]` matrix.

    Equal because a moving average is linear in the series, also where the ends are repeated: column
    i of the matrix is the average of the i-th unit impulse. onnxruntime's AveragePool is slow on
    CPU and needs cuDNN on CUDA.

    Args:
        average: The moving average.
        length: Steps of the series.
    """

    def __init__(self, average: MovingAverage, length: int) -> None:
        super().__init__()
        impulses = torch.eye(length, dtype=torch.float64)[None]
        self.register_buffer("matrix", average(impulses)[0].to(torch.get_default_dtype()))
        self.matrix: Tensor

    def forward(self, series: Tensor) -> Tensor:
        """Average `[batch, time, channels]`; the shape stays."""
        return self.matrix @ series
