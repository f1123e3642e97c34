"""Operators that graphs can have, where the obvious ones have no kernel on CUDA."""

from __future__ import annotations

import torch
from torch import Tensor


def maximum(values: Tensor) -> Tensor:
    """`[…, count]` to `[…, 1]`, without a gradient; the operator for it takes cuDNN."""
    return values.detach().topk(1, dim=-1).values


def repeated(values: Tensor, times: int) -> Tensor:
    """`[…]` to `[…, times]` by a sum; to expand takes arithmetic of shapes."""
    return values[..., None] + torch.zeros(times, dtype=values.dtype, device=values.device)
