"""Values along one more axis."""

from __future__ import annotations

from torch import Tensor


def repeated(values: Tensor, times: int) -> Tensor:
    """`[…]` to `[…, times]`."""
    return values[..., None].expand(*values.shape, times)
