"""Series decomposition into trend and the rest (arXiv:2106.13008, section 3.1)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def check_kernel(name: str, steps: int) -> None:
    """Refuse a moving average that has no centre.

    Raises:
        ValueError: the number of steps is even; the message begins with the setting's name.
    """
    if steps % 2 == 0:
        raise ValueError(f"{name}: expected an odd number, got {steps}")


class MovingAverage(nn.Module):
    """Centred moving average over time; the first and last value are repeated at the ends.

    Args:
        kernel: Odd number of steps.
    """

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, series: Tensor) -> Tensor:
        """Average `[batch, time, channels]` over time."""
        half = self.kernel // 2
        padded = functional.pad(series.transpose(1, 2), (half, half), mode="replicate")
        return functional.avg_pool1d(padded, self.kernel, stride=1).transpose(1, 2)


class SeriesDecomposition(nn.Module):
    """Splits a series into its seasonal part and its moving average."""

    def __init__(self, kernel: int) -> None:
        super().__init__()
        self.average = MovingAverage(kernel)

    def forward(self, series: Tensor) -> tuple[Tensor, Tensor]:
        """Return seasonal part and trend, each `[batch, time, channels]`, which add up to it."""
        trend = self.average(series)
        return series - trend, trend
