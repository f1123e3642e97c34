"""The rules of `service/ledger/adaptive.py` as plain loops over single numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from foretell.bundle.calibration import Calibration

_SIZES = [0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128]
_LOWER = [0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4]
_ADAPTED = [*_LOWER, 0.5, *(1 - level for level in reversed(_LOWER))]


class Known(NamedTuple):
    """A known error of one step of one channel; `waiting` counts forecasts without their value."""

    origin: int
    error: float
    waiting: int


def learned_plainly(errors: np.ndarray, positions: np.ndarray, prior: Calibration) -> np.ndarray:
    """Offsets `[levels, steps, channels]`, as `learn` returns them."""
    _, steps, channels = errors.shape
    found = np.empty((len(prior.levels), steps, channels))
    places = [int(position) for position in positions]
    for step in range(steps):
        for channel in range(channels):
            factor = _factor(errors[..., channel], places, prior, channel)
            known = []
            for row, (place, error) in enumerate(
                zip(places, errors[:, step, channel], strict=True)
            ):
                arrived = [other for other in places if other + step + 1 <= place]
                if not math.isnan(error):
                    known.append(Known(place, float(error), row + 1 - len(arrived)))
            offsets = [float(offset) for offset in prior.offsets[:, step, channel]]
            if factor > 1:
                middle = float(prior.at(np.array([0.5]), steps)[0, step, channel])
                offsets = [middle + (offset - middle) * factor for offset in offsets]
            found[:, step, channel] = _track(known, step + 1, prior.levels.tolist(), offsets)
    return found


def _factor(errors: np.ndarray, places: list[int], prior: Calibration, channel: int) -> float:
    """How much wider the errors `[origins, steps]` of a channel are than its prior."""
    steps = errors.shape[1]
    edges = prior.at(np.array([0.1, 0.5, 0.9]), steps)[:, :, channel].tolist()
    found, moments = [], []
    for place, own in zip(places, errors.tolist(), strict=True):
        for step, error in enumerate(own):
            if not math.isnan(error):
                found.append((error - edges[1][step]) / (edges[2][step] - edges[0][step]))
                moments.append(place)
    if not found:
        return 1.0
    found.sort()
    grid = [at / max(1, len(found) - 1) for at in range(len(found))]
    ratio = _line(0.9, grid, found) - _line(0.1, grid, found)
    horizons = 1 + (moments[-1] - moments[0]) / steps
    return max(1.0, ratio) ** (horizons / (horizons + 5))


def _track(known: list[Known], lead: int, levels: list[float], offsets: list[float]) -> list[float]:
    if not known:
        return offsets
    ranks = []
    for each in known:
        before = [other for other in known if other.origin + lead <= each.origin]
        smaller = sum(1 for other in before if other.error < each.error)
        equal = sum(1 for other in before if other.error == each.error)
        own = (smaller + equal / 2 + 0.5) / (len(before) + 1)
        share = _share(before, lead)
        ranks.append(share * own + (1 - share) * sum(_sides(each.error, offsets, levels)) / 2)
    adapted = [_adapt(known, ranks, lead, level) for level in _ADAPTED]
    adapted = [max(adapted[: index + 1]) for index in range(len(adapted))]
    share, sample = _share(known, lead), sorted(each.error for each in known)
    outer = 1 / (min(len(sample), 4 * _independent(known, lead)) + 1)
    between = (1 - 2 * outer) / max(1, len(sample) - 1)
    own_levels = [outer + index * between for index in range(len(sample))]
    lowest = _sides(sample[0], offsets, levels)[1]
    highest = 1 - _sides(sample[-1], offsets, levels)[0]
    places, reached = [], []
    for place in sorted({*sample, *offsets}):
        own_sides, prior_sides = _sides(place, sample, own_levels), _sides(place, offsets, levels)
        for own, stored in zip(own_sides, prior_sides, strict=True):
            value = own
            if place < sample[0]:
                value = outer * stored / lowest if lowest else 0.0
            elif place > sample[-1]:
                value = 1 - outer * (1 - stored) / highest if highest else 1.0
            places.append(place)
            reached.append(share * value + (1 - share) * stored)
    moved = [_line(level, [0.0, *_ADAPTED, 1.0], [0.0, *adapted, 1.0]) for level in levels]
    return [_line(level, reached, places) for level in moved]


def _share(known: list[Known], lead: int) -> float:
    if not known:
        return 0.0
    independent = _independent(known, lead)
    return independent / (independent + 20)


def _independent(known: list[Known], lead: int) -> float:
    return min(len(known), 1 + (known[-1].origin - known[0].origin) / lead)


def _sides(value: float, points: list[float], levels: list[float]) -> tuple[float, float]:
    """The shares below a value and up to it."""
    if value < points[0]:
        return 0.0, 0.0
    if value > points[-1]:
        return 1.0, 1.0
    equal = [level for point, level in zip(points, levels, strict=True) if point == value]
    if equal:
        return equal[0], equal[-1]
    between = _line(value, points, levels)
    return between, between


def _line(value: float, xs: Sequence[float], ys: Sequence[float]) -> float:
    """Linear interpolation; the outermost y beyond the outermost x."""
    if value <= xs[0]:
        return ys[0]
    for at in range(1, len(xs)):
        if value < xs[at]:
            return ys[at - 1] + (ys[at] - ys[at - 1]) * (value - xs[at - 1]) / (xs[at] - xs[at - 1])
    return ys[-1]


def _adapt(known: list[Known], ranks: list[float], lead: int, level: float) -> float:
    squared = ((1 - level) ** 2 * level**3 + level**2 * (1 - level) ** 3) / 3
    rate = math.sqrt((math.log(2 * 8 * 500) + 1) / (500 * squared))
    # The level of each step size, by the number of errors it learned from.
    paths = [[level] for _ in _SIZES]
    weights = [1 / 8] * 8
    for each, rank in zip(known, ranks, strict=True):
        arrived = sum(1 for other in known if other.origin + lead <= each.origin)
        fresh = []
        for path, size, weight in zip(paths, _SIZES, weights, strict=True):
            gap = rank - path[arrived]
            loss = level * gap if gap > 0 else (level - 1) * gap
            fresh.append(weight * math.exp(-rate * loss / each.waiting))
            moved = path[-1] + size * (level - (gap <= 0)) / each.waiting
            path.append(min(max(moved, 0.0), 1.0))
        weights = [0.999 * weight / sum(fresh) + 0.001 / 8 for weight in fresh]
    return sum(weight * path[-1] for weight, path in zip(weights, paths, strict=True))
