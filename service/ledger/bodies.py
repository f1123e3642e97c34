"""The arrays of a stored forecast, as bytes."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Times, and rows of the season, that follow.
_HEAD = np.dtype((np.int32, 2))


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
        season: `[forecasts, rows, channels]` float32, what the seasonal naive forecast repeats, at
            most `steps` rows; NaN where it is unknown.
        quantiles: `[forecasts, levels, steps, channels]` float32.
    """

    scale: NDArray[np.float64]
    times: NDArray[np.int64]
    mean: NDArray[np.float32]
    season: NDArray[np.float32]
    quantiles: NDArray[np.float32]

    @property
    def naive(self) -> NDArray[np.float32]:
        """The seasonal naive forecast, as `mean`."""
        steps = self.mean.shape[1]
        repeats = -(-steps // self.season.shape[1])
        return np.tile(self.season, (1, repeats, 1))[:, :steps]

    def write(self) -> list[bytes]:
        """The bytes of each forecast; times at equal distances are stored as the first two."""
        count, times = len(self.mean), self.times
        gaps = np.diff(times, axis=1)
        if (gaps == gaps[:, :1]).all():
            times = times[:, :2]
        head = np.array([times.shape[1], self.season.shape[1]], np.int32)
        arrays = (
            *(np.broadcast_to(head, (count, 2)), self.scale, times),
            *(self.mean, self.season, self.quantiles),
        )
        parts = [
            np.ascontiguousarray(each.reshape(count, -1)).view(np.uint8).reshape(count, -1)
            for each in arrays
            if each.size
        ]
        return [row.tobytes() for row in np.concatenate(parts, axis=1)]

    @classmethod
    def read(cls, bodies: list[bytes], shape: Shape) -> Bodies:
        """The arrays of what `write` wrote."""
        alike: defaultdict[bytes, list[int]] = defaultdict(list)
        for place, body in enumerate(bodies):
            alike[body[: _HEAD.itemsize]].append(place)
        if len(alike) == 1:
            return cls._read_alike(bodies, shape)
        parts = [
            cls._read_alike([bodies[place] for place in places], shape) for places in alike.values()
        ]
        order = np.argsort([place for places in alike.values() for place in places])
        whole = [part._replace(season=part.naive) for part in parts]
        return cls(*(np.concatenate(each)[order] for each in zip(*whole, strict=True)))

    @classmethod
    def _read_alike(cls, bodies: list[bytes], shape: Shape) -> Bodies:
        """Read bodies with the same head."""
        steps, channels, levels = shape
        count = len(bodies)
        rows = np.frombuffer(b"".join(bodies), np.uint8).reshape(count, -1)
        given, season = np.frombuffer(bodies[0], np.int32, 2).tolist()
        at = _HEAD.itemsize

        def take(dtype: type[np.generic], *sizes: int) -> NDArray[Any]:
            nonlocal at
            size = int(np.prod(sizes)) * np.dtype(dtype).itemsize
            part = np.ascontiguousarray(rows[:, at : at + size])
            at += size
            return part.view(dtype).reshape(count, *sizes)

        scale, times = take(np.float64, channels), take(np.int64, given)
        if given < steps:
            times = times[:, :1] + np.arange(steps) * (times[:, 1:] - times[:, :1])
        return cls(
            scale,
            times,
            take(np.float32, steps, channels),
            take(np.float32, season, channels),
            take(np.float32, levels, steps, channels),
        )
