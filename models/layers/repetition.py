"""Values along one more axis."""

from __future__ import annotations

from torch import Tensor


def repeated(values: Tensor, times: int) -> Tensor:
    """`[…]` to `[…, times]`."""
    return values[..., None].expand(*values.shape, times)


def at_each_step(values: Tensor, steps: int) -> Tensor:
    """`[batch, features]` to `[batch, steps, features]`."""
    return values[:, None].expand(-1, steps, -1)
