"""The arrays of a stored forecast, as bytes."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Shape(NamedTuple):
    """Sizes of the arrays of a stored forecast."""

    steps: int
    channels: int
    levels: int


class Bodies(NamedTuple):
    """Arrays of stored forecasts of one shape.

    Attributes:
        scale: `[forecasts, channels]` float64, the scale of each history.
        times: `[forecasts, steps]` int64, the time of each step in microseconds.
        mean: `[forecasts, steps, channels]` float32.
        naive: As `mean`, of the seasonal naive forecast; NaN where it is unknown.
        quantiles: `[forecasts, levels, steps, channels]` float32.
    """

    scale: NDArray[np.float64]
    times: NDArray[np.int64]
    mean: NDArray[np.float32]
    naive: NDArray[np.float32]
    quantiles: NDArray[np.float32]

    def write(self) -> list[bytes]:
        """The bytes of each forecast."""
        count = len(self.mean)
        parts = [
            np.ascontiguousarray(each.reshape(count, -1)).view(np.uint8).reshape(count, -1)
            for each in self
            if each.size
        ]
        return [row.tobytes() for row in np.concatenate(parts, axis=1)]

    @classmethod
    def read(cls, bodies: list[bytes], shape: Shape) -> Bodies:
        """The arrays of what `write` wrote."""
        steps, channels, levels = shape
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(len(bodies), -1)
        at = 0

        def take(dtype: type[np.generic], *sizes: int) -> NDArray[np.generic]:
            nonlocal at
            size = int(np.prod(sizes)) * np.dtype(dtype).itemsize
            part = np.ascontiguousarray(rows[:, at : at + size])
            at += size
            return part.view(dtype).reshape(len(bodies), *sizes)

        return cls(
            take(np.float64, channels),  # type: ignore[arg-type]
            take(np.int64, steps),  # type: ignore[arg-type]
            take(np.float32, steps, channels),  # type: ignore[arg-type]
            take(np.float32, steps, channels),  # type: ignore[arg-type]
            take(np.float32, levels, steps, channels),  # type: ignore[arg-type]
        )
