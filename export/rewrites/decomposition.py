"""The series decomposition as matrix products."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretell.models.layers.decomposition import MovingAverage

# Steps of a block, at least: with fewer the products get too small for a CPU.
_SMALLEST_BLOCK = 24


def average_matrix(kernel: int, length: int) -> Tensor:
    """`[length, length]` in float64; times a series it is its moving average."""
    impulses = torch.eye(length, dtype=torch.float64)[None]
    average: Tensor = MovingAverage(kernel)(impulses)[0]
    return average


class SeasonalPart(nn.Module):
    """Subtracts the moving average.

    Equal because that is linear in the series, also where the ends are repeated. Short series are
    multiplied by one constant matrix. In long ones each block of steps is multiplied, with the
    steps around it, by the same small one: what is further away has no influence. onnxruntime's
    AveragePool is slow on CPU and needs cuDNN on CUDA.

    Args:
        kernel: Steps of the moving average, odd.
        length: Steps of the series.
        dtype: Of the matrix.
    """

    def __init__(self, kernel: int, length: int, dtype: torch.dtype) -> None:
        super().__init__()
        half = kernel // 2
        block = _block(length, max(_SMALLEST_BLOCK, 2 * half))
        width = block + 2 * half
        self.length = length
        self.width = width
        self.blocks = -(-length // block)
        if 2 * width >= length:
            matrix = torch.eye(length, dtype=torch.float64) - average_matrix(kernel, length)
            windows = None
        else:
            inner = slice(half, half + block)
            around = torch.eye(width, dtype=torch.float64) - average_matrix(kernel, width)
            matrix = around[inner]
            starts = block * torch.arange(self.blocks)
            steps = starts[:, None] + torch.arange(-half, block + half)
            # The ends are repeated.
            windows = steps.clamp(0, length - 1).flatten()
        self.register_buffer("matrix", matrix.to(dtype))
        self.register_buffer("windows", windows)
        self.matrix: Tensor
        self.windows: Tensor | None

    def forward(self, series: Tensor) -> Tensor:
        """`[batch, time, channels]`, the shape stays."""
        if self.windows is None:
            return self.matrix @ series
        features = series.shape[2]
        windows = series.index_select(1, self.windows)
        seasonal = self.matrix @ windows.reshape(-1, self.blocks, self.width, features)
        seasonal = seasonal.reshape(-1, self.blocks * self.matrix.shape[0], features)
        return seasonal[:, : self.length] if seasonal.shape[1] > self.length else seasonal


def _block(length: int, smallest: int) -> int:
    """A divisor of the length not much above the smallest, or else the smallest itself."""
    divisors = (block for block in range(smallest, 2 * smallest) if length % block == 0)
    return next(divisors, smallest)
