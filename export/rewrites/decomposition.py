"""The series decomposition as matrix products."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from foretell.export.rewrites.lookup import Call, rewrites
from foretell.models.layers.decomposition import MovingAverage, SeriesDecomposition

# Fewest steps of a block: with fewer the products get too small for a CPU.
_SMALLEST_BLOCK = 24


def average_matrix(kernel: int, length: int) -> Tensor:
    """Matrix `[length, length]` in float64 that computes the moving average of a series."""
    impulses = torch.eye(length, dtype=torch.float64)[None]
    average: Tensor = MovingAverage(kernel)(impulses)[0]
    return average


class ServedDecomposition(nn.Module):
    """Splits a series into its seasonal part and its moving average.

    Equal because both are linear in the series, even with repeated ends. Short series are
    multiplied by one constant matrix. In long ones each block of steps, with the steps around it,
    is multiplied by the same small matrix: steps further away have no influence. onnxruntime's
    AveragePool is slow on CPU and needs cuDNN on CUDA.

    Args:
        kernel: Steps of the moving average, odd.
        length: Steps of the series.
        dtype: Type of the matrix.
        averaged: Whether the second result is the moving average; else it is the series itself.
        level_free: Whether constant series are zero, or do not occur.
    """

    def __init__(
        self,
        kernel: int,
        length: int,
        dtype: torch.dtype,
        *,
        averaged: bool = True,
        level_free: bool = True,
    ) -> None:
        super().__init__()
        self.averaged = averaged
        self.level_free = level_free
        half = kernel // 2
        block = _block(length, max(_SMALLEST_BLOCK, 2 * half))
        width = block + 2 * half
        self.length = length
        self.width = width
        self.blocks = -(-length // block)
        windows = None
        if 2 * width >= length:
            matrix = torch.eye(length, dtype=torch.float64) - average_matrix(kernel, length)
        else:
            around = torch.eye(width, dtype=torch.float64) - average_matrix(kernel, width)
            matrix = around[half : half + block]
            starts = block * torch.arange(self.blocks)
            steps = starts[:, None] + torch.arange(-half, block + half)
            # The ends are repeated.
            windows = nn.Buffer(steps.clamp(0, length - 1).flatten())
        self.windows = windows
        self.matrix = nn.Buffer(matrix.to(dtype))

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        """`[batch, time, channels]` to two of the same shape."""
        seasonal = self._seasonal(series)
        return seasonal, series - seasonal if self.averaged else series

    def _seasonal(self, series: Tensor) -> Tensor:
        if not self.level_free:
            # A constant must have no seasonal part, but its average is rounded.
            series = series - series[:, :1]
        if self.windows is None:
            return self.matrix @ series
        features = series.shape[2]
        windows = series.index_select(1, self.windows)
        seasonal = self.matrix @ windows.reshape(-1, self.blocks, self.width, features)
        seasonal = seasonal.reshape(-1, self.blocks * self.matrix.shape[0], features)
        return seasonal[:, : self.length] if seasonal.shape[1] > self.length else seasonal


@rewrites(SeriesDecomposition)
def rewrite_decomposition(plain: SeriesDecomposition, call: Call) -> nn.Module:
    """Decompose by matrix products."""
    (shape,) = call.shapes
    return ServedDecomposition(plain.average.kernel, shape[1], call.dtype)


def _block(length: int, smallest: int) -> int:
    """A divisor of the length not much above the smallest, or else the smallest itself."""
    divisors = (block for block in range(smallest, 2 * smallest) if length % block == 0)
    return next(divisors, smallest)
