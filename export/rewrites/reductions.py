"""Sums over inner axes and minima, which CUDA computes without cuDNN.

Of onnxruntime's reductions only sums have kernels of their own for every axis. The mean over an
axis in the middle, and any minimum or maximum, is left to cuDNN.
"""

from __future__ import annotations

from torch import Tensor


def mean_over_time(series: Tensor) -> Tensor:
    """`[batch, time, features]` to `[batch, 1, features]`."""
    return series.sum(dim=1, keepdim=True) / series.shape[1]


def smallest(values: Tensor) -> Tensor:
    """`[…, count]` to `[…, 1]`."""
    return values.topk(1, dim=-1, largest=False).values
