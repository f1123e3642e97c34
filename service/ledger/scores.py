"""Scores of forecasts: sums over pairs of a forecast and its actual value, and what they mean.

A sum can be added to another one, so scores of any group follow from sums of its parts.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Sums = NDArray[np.float64]
By = Literal["step", "channel", "series", "day", "total"]

# Tolerance for levels such as (1 - 0.8) / 2, which is not exactly 0.1; as decimals.
DECIMALS = 9
_ROUNDING = 10.0**-DECIMALS
# Sums that need no quantiles. Paired ones are of pairs whose naive forecast is known, too.
_PLAIN = (
    *("count", "absolute", "squared", "error"),
    *("paired_count", "paired_absolute", "paired_naive"),
)
# The interval whose coverage is a gauge.
_GAUGED = "0.8"
# Squares of very large values are infinite; their scores are then undefined.
_quietly = np.errstate(over="ignore", invalid="ignore")


class _Interval(NamedTuple):
    """An interval's name, and the places of its quantiles."""

    name: str
    low: int
    high: int


def fields(levels: Sequence[float]) -> tuple[str, ...]:
    """The names of the sums, in the order of the last axis of `sums`.

    `count`: pairs; `absolute`, `squared`: of the error; `error`: forecast minus actual;
    `paired_count`, `paired_absolute`, `paired_naive`: pairs whose naive forecast is known, and
    the absolute errors of both forecasts there. For each level such as 0.1 `pinball 0.1`, and for
    each pair of levels q and 1 - q such as 0.1 and 0.9 `inside 0.8` and `width 0.8`.

    Args:
        levels: Levels of quantiles, in any order. Levels that are equal to nine decimals are one.
    """
    return _fields(tuple(levels))


@lru_cache(maxsize=256)
def _fields(levels: tuple[float, ...]) -> tuple[str, ...]:
    pinball = (f"pinball {name}" for name in _quantiles(levels))
    both = (f"{what} {each.name}" for each in _intervals(levels) for what in ("inside", "width"))
    return (*_PLAIN, *pinball, *both)


@lru_cache(maxsize=256)
def _quantiles(levels: tuple[float, ...]) -> Mapping[str, int]:
    """Places of the levels, by their names."""
    found: dict[str, int] = {}
    for place, level in enumerate(levels):
        found.setdefault(str(round(level, DECIMALS)), place)
    return found


@lru_cache(maxsize=256)
def _intervals(levels: tuple[float, ...]) -> tuple[_Interval, ...]:
    places = sorted(_quantiles(levels).values(), key=levels.__getitem__)
    return tuple(
        _Interval(str(round(levels[high] - levels[low], DECIMALS)), low, high)
        for low, high in combinations(places, 2)
        if abs(levels[low] + levels[high] - 1) <= _ROUNDING
    )


@_quietly
def sums(
    actual: Floats, forecast: Floats, naive: Floats, quantiles: Floats, levels: Sequence[float]
) -> Sums:
    """Sums over forecasts.

    A pair counts if its actual value, its forecast and its quantiles are finite.

    Args:
        actual: `[forecasts, steps, channels]`, NaN where not known.
        forecast: `[forecasts, steps, channels]`.
        naive: `[forecasts, steps, channels]`, NaN where not known.
        quantiles: `[levels, forecasts, steps, channels]`.
        levels: Levels of the quantiles, in any order.

    Returns:
        `[steps, channels, fields]`, with the fields of `fields`, in the units of the values.

    Raises:
        ValueError: an array has another shape than `forecast`.
    """
    each = _terms(actual, forecast, naive, quantiles, tuple(levels))
    return np.stack([term.sum(axis=0, dtype=np.float64) for term in each], axis=-1)


@_quietly
def sums_by_day(
    actual: Floats,
    forecast: Floats,
    naive: Floats,
    quantiles: Floats,
    levels: Sequence[float],
    day: NDArray[np.int64],
) -> tuple[NDArray[np.int64], Sums]:
    """Sums over forecasts for each day; arguments as of `sums`.

    Args:
        actual: As of `sums`.
        forecast: As of `sums`.
        naive: As of `sums`.
        quantiles: As of `sums`.
        levels: As of `sums`.
        day: `[forecasts, steps]`, the day of each value.

    Returns:
        The days in `day`, `[days]`, increasing, and their sums `[days, steps, channels, fields]`.
        A day without a known value has sums of 0.

    Raises:
        ValueError: an array has another shape than `forecast`.
    """
    if day.shape != forecast.shape[:2]:
        raise ValueError(f"day has shape {day.shape}, but forecast has {forecast.shape}")
    days, place = np.unique(day, return_inverse=True)
    _, steps, channels = forecast.shape
    rows = place.reshape(day.shape) * steps + np.arange(steps)
    cells = (rows[..., None] * channels + np.arange(channels)).ravel()
    size = len(days) * steps * channels
    names = fields(levels)
    found = np.empty((size, len(names)))
    for index, term in enumerate(_terms(actual, forecast, naive, quantiles, tuple(levels))):
        found[:, index] = np.bincount(cells, term.ravel(), minlength=size)
    return days, found.reshape(len(days), steps, channels, len(names))


def _terms(
    actual: Floats,
    forecast: Floats,
    naive: Floats,
    quantiles: Floats,
    levels: tuple[float, ...],
) -> Iterator[NDArray[Any]]:
    """The summands of each field, `[forecasts, steps, channels]`; 0 where a pair does not count."""
    shapes = {"actual": actual.shape, "naive": naive.shape, "quantiles": quantiles.shape}
    for name, shape in shapes.items():
        wanted = (len(levels), *forecast.shape) if name == "quantiles" else forecast.shape
        if shape != wanted:
            raise ValueError(f"{name} has shape {shape}, expected {wanted}")
    counts = np.isfinite(actual) & np.isfinite(forecast) & np.isfinite(quantiles).all(axis=0)
    known = np.where(counts, actual, 0).astype(np.float64)
    error = np.where(counts, forecast, 0) - known
    absolute = np.abs(error)
    yield counts
    yield absolute
    yield np.square(error)
    yield error
    paired = counts & np.isfinite(naive)
    yield paired
    yield np.where(paired, absolute, 0)
    yield np.abs(np.where(paired, naive, 0) - np.where(paired, known, 0))
    for place in _quantiles(levels).values():
        below = known - np.where(counts, quantiles[place], 0)
        yield np.maximum(levels[place] * below, (levels[place] - 1) * below)
    for interval in _intervals(levels):
        low, high = (np.where(counts, quantiles[end], 0) for end in interval[1:])
        yield counts & (low <= known) & (known <= high)
        yield high.astype(np.float64) - low


class Scores:
    """Scores of groups, from sums of several configurations that are added up by field."""

    def __init__(self, by: By, channels: Collection[str] | None = None) -> None:
        """Start without sums.

        Args:
            by: The groups; `total` is one group for each version.
            channels: Names of the channels that count; all if None.
        """
        self._by = by
        self._channels = channels
        # Sums by version and group, then by field and by the levels that they came with.
        self._groups: dict[tuple[str, int | str], dict[tuple[float, ...], Sums]] = {}

    @_quietly
    def add(
        self,
        sums: Sums,
        levels: Sequence[float],
        channels: Sequence[str],
        *,
        version: str,
        series: str | int,
        day: str,
    ) -> None:
        """Add the sums of a configuration.

        Args:
            sums: `[steps, channels, fields]`, as of `sums`.
            levels: Levels of the quantiles, as in `fields`.
            channels: Names of the channels.
            version: The version of the model.
            series: Name or id of the series; any text unless rows are by series.
            day: The day as an ISO date; any text unless rows are by day.

        Raises:
            ValueError: the shape of the sums differs from the channels and levels.
        """
        wanted = (len(sums), len(channels), len(fields(levels)))
        if sums.shape != wanted:
            raise ValueError(
                f"sums have shape {sums.shape}, expected {wanted} for {len(channels)} channels "
                f"and {len(levels)} levels"
            )
        kept = [
            place
            for place, name in enumerate(channels)
            if self._channels is None or name in self._channels
        ]
        sums, of_all = sums[:, kept], {"series": series, "day": day, "total": ""}
        keys: Sequence[int | str]
        if self._by == "step":
            keys, found = range(1, len(sums) + 1), sums.sum(axis=1)
        elif self._by == "channel":
            keys, found = [channels[place] for place in kept], sums.sum(axis=0)
        else:
            keys, found = [of_all[self._by]], sums.sum(axis=(0, 1))[None]
        levels = tuple(levels)
        for key, each in zip(keys, found, strict=True):
            group = self._groups.setdefault((version, key), {})
            group[levels] = group[levels] + each if levels in group else each

    def rows(self) -> list[dict[str, Any]]:
        """The scores of each group with at least one pair, ready for JSON.

        Rows are in the order in which versions and channels came first; steps, series and days are
        sorted. Each has `version`, the group (`step`, `channel`, `series` or `day`) and:

        - `count`: pairs of a forecast and an actual value
        - `mae`, `rmse`, `bias`: of the errors; bias is the mean of forecast minus actual
        - `naive_mae`: of the naive forecast, where it is known
        - `mase`: MAE over the naive MAE, both of the pairs whose naive forecast is known
        - `quantiles`: by level, the mean `pinball` loss and the `count` of pairs
        - `intervals`: by coverage level, the share of actual values inside (`coverage`), the mean
          `width`, and the `count` of pairs

        An undefined score is None.
        """
        versions = dict.fromkeys(version for version, _ in self._groups)
        order = {version: place for place, version in enumerate(versions)}
        groups = [*self._groups.items()]
        if self._by == "channel":
            groups.sort(key=lambda group: order[group[0][0]])
        else:
            groups.sort(key=lambda group: (order[group[0][0]], group[0][1]))
        rows = []
        for (version, key), parts in groups:
            scores = _scores(parts)
            if scores["count"]:
                row: dict[str, Any] = {"version": version}
                if self._by != "total":
                    row[self._by] = key
                rows.append(row | scores)
        return rows


def _scores(parts: Mapping[tuple[float, ...], Sums]) -> dict[str, Any]:
    """Scores of the sums `[fields]` of several tuples of levels."""
    # Each field, and the number of pairs of the configurations that have it.
    total: dict[str, float] = {}
    pairs: dict[str, float] = {}
    for levels, part in parts.items():
        for name, value in zip(fields(levels), part.tolist(), strict=True):
            total[name] = total.get(name, 0.0) + value
            pairs[name] = pairs.get(name, 0.0) + float(part[0])
    mean_square = _ratio(total["squared"], total["count"])

    def mean(name: str) -> float | None:
        return _ratio(total[name], pairs[name])

    return {
        "count": round(total["count"]),
        "mae": mean("absolute"),
        "rmse": None if mean_square is None else math.sqrt(mean_square),
        "bias": mean("error"),
        "naive_mae": _ratio(total["paired_naive"], total["paired_count"]),
        "mase": _ratio(total["paired_absolute"], total["paired_naive"]),
        "quantiles": {
            name: {"pinball": mean(f"pinball {name}"), "count": round(pairs[f"pinball {name}"])}
            for name in _named(total, "pinball")
        },
        "intervals": {
            name: {
                "coverage": mean(f"inside {name}"),
                "width": mean(f"width {name}"),
                "count": round(pairs[f"inside {name}"]),
            }
            for name in _named(total, "inside")
        },
    }


def _named(total: Mapping[str, float], kind: str) -> list[str]:
    """The levels of the fields of a kind, increasing."""
    found = (name.split() for name in total)
    return sorted((name[1] for name in found if name[0] == kind and len(name) == 2), key=float)


def _ratio(value: float, by: float) -> float | None:
    """A ratio; None if it is undefined or not finite."""
    found = value / by if by else math.nan
    return found if math.isfinite(found) else None


def gauges(row: Mapping[str, Any]) -> dict[str, float]:
    """Numbers for Prometheus from a row of scores; undefined ones are left out.

    Args:
        row: A row of `Scores.rows`, for example the total of a window.

    Returns:
        `mae`; `mase`; `bias_ratio`, the bias over the MAE, from -1 to 1: at 1 every forecast is
        too high; `coverage`, the share of actual values inside the 80% interval.
    """
    bias, mae = row["bias"], row["mae"]
    found = {
        "mae": mae,
        "mase": row["mase"],
        "bias_ratio": None if bias is None or mae is None else _ratio(bias, mae),
        "coverage": row["intervals"].get(_GAUGED, {}).get("coverage"),
    }
    return {name: value for name, value in found.items() if value is not None}
