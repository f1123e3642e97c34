"""Offsets of quantiles that learn from recent errors: adaptive conformal inference.

Each step of a channel learns by itself. Its errors and the offsets it had before, its prior, form
one distribution. Errors weigh more the more of them are independent. The offset of a quantile is
the quantile of this distribution at an adapted level. The adapted level rises after values above
the quantile and falls after values below it (Gibbs and Candès, "Adaptive Conformal Inference Under
Distribution Shift", 2021). Several step sizes run side by side and are weighed by their past losses
(DtACI: Gibbs and Candès, "Conformal Inference for Online Prediction with Arbitrary Distribution
Shifts", 2022).

The papers see the value of a forecast before they make the next one. Here the value of step `h`
comes `h` steps later. So an error is compared only with errors that were known at its origin, and
with the level that was adapted by then. Forecasts that wait for their values at the same time err
alike. Each counts as its share of one: otherwise a level would move many times for one event.

A prior that is too narrow is widened first, by the errors of all steps together: those of one step
are too few to show tails.

Everything follows from the latest origins, so a restart forgets nothing. One channel of 24 steps
with 300 origins takes about 50 ms of one core, and the time grows with steps times channels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration

Doubles = NDArray[np.float64]
Integers = NDArray[np.int64]

# Latest origins of a series to learn from. 200 and 400 cover ETTh2 about as well. Fewer give wider
# intervals than stable errors need, more follow a change of the errors later.
LATEST_ORIGINS = 300
# Origins of all series to learn a model's offsets from.
MOST_POOLED = 1000
# Number of independent errors that weigh as much as the prior. With half as many, intervals of 80%
# cover ETTh2 one percent less often.
_PRIOR_ERRORS = 20
# The largest of n independent errors is exceeded once in n + 1 times. The largest of overlapping
# errors lies further out, as if there were this many times more independent ones.
_OVERLAPPING = 4
# Number of horizons whose errors widen the prior half of the way.
_WIDENING_HORIZONS = 5

# Levels that are adapted; those between them are interpolated.
_LOWER = (0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.4)
_LEVELS = np.array([*_LOWER, 0.5, *(1 - level for level in reversed(_LOWER))])
# The step sizes, and the number of errors over which the losses count, of the second paper.
_STEP_SIZES = 0.001 * 2.0 ** np.arange(8)
_INTERVAL = 500
_MIXING = 1 / (2 * _INTERVAL)
# Avoids a division by 0 where the prior has nothing, which then stays nothing.
_LEAST = 1e-12
# Numbers that one block of tracks may hold: 32 MB.
_BLOCK = 2**22


@dataclass(frozen=True, eq=False)
class Learned:
    """Offsets that were learned.

    Attributes:
        calibration: The levels of the prior, and their offsets `[levels, steps, channels]` of all
            its steps. Where no error is known, the offsets are those of the prior.
        origins: Number of origins with a known error, `[steps, channels]`.
    """

    calibration: Calibration
    origins: Integers


def learn(errors: Doubles, positions: Integers, prior: Calibration) -> Learned:
    """Learn offsets from the errors of the latest origins.

    A model learns from the errors of all its series of a namespace (see `pool`), with the bundle's
    calibration as prior. A series learns from its own errors. Its prior is the model's offsets, or
    the bundle's if no other series has errors. So a new series starts from the model's offsets.
    With 20 independent errors its own errors weigh as much as the prior, with 100 the prior hardly
    matters. Errors of a step `h` count as independent if their origins are `h` steps apart.

    Args:
        errors: `[origins, steps, channels]`, actual minus forecast, in units of the scale of each
            history; NaN where unknown. At most `LATEST_ORIGINS` origins of a series are useful.
        positions: Place of each origin on the time axis, `[origins]`, in steps; never decreasing.
        prior: Offsets of at least as many steps.

    Raises:
        ValueError: shapes do not match, the prior has fewer steps, or the positions decrease.
    """
    origins, steps, channels = errors.shape
    _check(errors, positions, prior)
    leads = np.repeat(np.arange(1, steps + 1), channels)
    tracks = np.where(np.isfinite(errors), errors, np.nan).reshape(origins, steps * channels)
    stored = _widened(errors, positions, prior).reshape(len(prior.levels), -1)
    is_known = ~np.isnan(tracks)
    by_step = [
        np.searchsorted(positions, positions - step, "right") for step in range(1, steps + 1)
    ]
    earlier = np.repeat(np.array(by_step, np.int64).T, channels, axis=1)
    ranks = _ranks(tracks, positions, prior.levels, stored, leads, earlier)
    size = max(1, _BLOCK // ((origins + 1) * len(_LEVELS) * len(_STEP_SIZES)))
    blocks = [slice(start, start + size) for start in range(0, steps * channels, size)]
    adapted = np.concatenate([_adapted(ranks[:, at], earlier[:, at]) for at in blocks])
    shares = _shares(is_known, positions, leads)
    found = [
        _quantiles(own[known], share, prior.levels, offsets, levels)
        for own, known, share, offsets, levels in zip(
            tracks.T, is_known.T, shares, stored.T, adapted, strict=True
        )
    ]
    offsets = np.stack(found, axis=1).reshape(-1, steps, channels)
    counts = is_known.sum(axis=0, dtype=np.int64).reshape(steps, channels)
    # An answer may have more steps than any forecast so far.
    offsets = np.concatenate([offsets, prior.offsets[:, steps:]], axis=1)
    counts = np.pad(counts, ((0, offsets.shape[1] - steps), (0, 0)))
    return Learned(Calibration(prior.levels, offsets.astype(np.float32)), counts)


def pool(
    errors: Sequence[Doubles], positions: Sequence[Integers], most: int = MOST_POOLED
) -> tuple[Doubles, Integers]:
    """The errors of several series in the order of their origins, for `learn`.

    Args:
        errors: `[origins, steps, channels]` of each series.
        positions: `[origins]` of each series, on one time axis.
        most: Most origins to return; of more, origins evenly spaced in this order are returned.

    Returns:
        `[pairs, steps, channels]` and `[pairs]`, where a pair is an origin of a series.
    """
    together, at = np.concatenate(errors), np.concatenate(positions)
    order = np.argsort(at, kind="stable")
    if len(order) > most:
        order = order[np.linspace(0, len(order) - 1, most).round().astype(np.int64)]
    return together[order], at[order]


def _check(errors: Doubles, positions: Integers, prior: Calibration) -> None:
    origins, steps, channels = errors.shape
    _, most, known = prior.offsets.shape
    if positions.shape != (origins,):
        raise ValueError(
            f"expected {origins} positions, one for each origin, got {positions.shape}"
        )
    if steps > most or channels != known:
        raise ValueError(
            f"the errors have {steps} steps and {channels} channels, the prior has offsets for "
            f"{most} steps and {known} channels"
        )
    if (np.diff(positions) < 0).any():
        raise ValueError("the positions decrease: sort the origins by time")


def _widened(errors: Doubles, positions: Integers, prior: Calibration) -> Doubles:
    """Offsets of the prior `[levels, steps, channels]`, wider if the errors are.

    The width is the distance of quantiles 0.1 and 0.9. Each channel has one factor for all steps.
    """
    steps = errors.shape[1]
    low, middle, high = prior.at(np.array([0.1, 0.5, 0.9]), steps)
    offsets = prior.offsets[:, :steps].astype(np.float64)
    for channel, own in enumerate(np.moveaxis(errors, 2, 0)):
        width = (high - low)[:, channel]
        is_known = np.isfinite(own)
        if not is_known.any() or not (width > 0).all():
            continue
        known = ((own - middle[:, channel]) / width)[is_known]
        ratio = float(np.ptp(np.quantile(known, [0.1, 0.9])))
        at = positions[is_known.any(axis=1)]
        horizons = 1 + float(at[-1] - at[0]) / steps
        factor = max(1.0, ratio) ** (horizons / (horizons + _WIDENING_HORIZONS))
        center = middle[:, channel]
        if factor > 1:
            offsets[..., channel] = center + (offsets[..., channel] - center) * factor
    return offsets


def _shares(is_known: NDArray[np.bool_], positions: Integers, leads: Integers) -> Doubles:
    """The weight of the errors `[origins, tracks]` against the prior, for each track."""
    count = is_known.sum(axis=0)
    if not len(positions):
        return np.zeros(len(leads))
    first = positions[is_known.argmax(axis=0)]
    last = positions[::-1][is_known[::-1].argmax(axis=0)]
    independent = np.minimum(count, 1 + (last - first) / leads)
    shares: Doubles = independent / (independent + _PRIOR_ERRORS)
    return np.where(count > 0, shares, 0.0)


def _ranks(
    tracks: Doubles,
    positions: Integers,
    levels: Doubles,
    stored: Doubles,
    leads: Integers,
    earlier: Integers,
) -> Doubles:
    """The level of each error in the distribution that was known at its origin.

    Args:
        tracks: Errors `[origins, tracks]`, where a track is a step of a channel.
        positions: `[origins]`.
        levels: Levels of the prior.
        stored: Offsets of the prior, `[levels, tracks]`.
        leads: Number of steps after which the errors of a track are known, `[tracks]`.
        earlier: Number of origins whose errors were known at each origin, `[origins, tracks]`.

    Returns:
        `[origins, tracks]`, from 0 to 1, NaN where the error is.
    """
    ranks = np.full_like(tracks, np.nan)
    for track, offsets in enumerate(stored.T):
        below, up_to = _distribution(tracks[:, track], offsets, levels)
        ranks[:, track] = (below + up_to) / 2
    is_known = ~np.isnan(tracks)
    for at, error in enumerate(tracks):
        before = is_known[:at] & (np.arange(at)[:, None] < earlier[at])
        if not before.any():
            continue
        share = _shares(before, positions[:at], leads)
        smaller = ((tracks[:at] < error) & before).sum(axis=0)
        equal = ((tracks[:at] == error) & before).sum(axis=0)
        own = (smaller + equal / 2 + 0.5) / (before.sum(axis=0) + 1)
        ranks[at] += share * (own - ranks[at])
    ranks[~is_known] = np.nan
    return ranks


def _adapted(ranks: Doubles, earlier: Integers) -> Doubles:
    """Adapted levels `[tracks, levels]`, never decreasing, of ranks `[origins, tracks]`.

    The step sizes and weights are those of algorithm 1 of the paper of 2022, whose intervals have
    one level; here each level adapts by itself. Its output is the mean over the step sizes.
    """
    origins, tracks = ranks.shape
    wanted, count = _LEVELS[:, None], len(_STEP_SIZES)
    # The mean of the squared loss for ranks that are uniform.
    squared = ((1 - wanted) ** 2 * wanted**3 + wanted**2 * (1 - wanted) ** 3) / 3
    rate = np.sqrt((np.log(2 * count * _INTERVAL) + 1) / (_INTERVAL * squared))
    # The levels by the number of origins whose errors they learned from.
    history = np.empty((origins + 1, tracks, len(_LEVELS), count))
    history[0] = wanted
    weights = np.full(history.shape[1:], 1 / count)
    waiting = 1 / (np.arange(1, origins + 1)[:, None] - earlier)
    every = np.arange(tracks)
    for at in range(origins):
        is_known = ~np.isnan(ranks[at])[:, None, None]
        gap = np.nan_to_num(ranks[at])[:, None, None] - history[earlier[at], every]
        part = np.where(is_known, waiting[at][:, None, None], 0.0)
        moved = history[at] + part * _STEP_SIZES * (wanted - (gap <= 0))
        np.clip(moved, 0.0, 1.0, out=history[at + 1])
        loss = wanted * gap - np.minimum(gap, 0.0)
        fresh = weights * np.exp(-rate * part * loss)
        fresh *= (1 - _MIXING) / fresh.sum(axis=2, keepdims=True)
        weights = np.where(is_known, fresh + _MIXING / count, weights)
    found: Doubles = (weights * history[-1]).sum(axis=2)
    return np.maximum.accumulate(found, axis=1)


def _quantiles(
    errors: Doubles, share: float, levels: Doubles, offsets: Doubles, adapted: Doubles
) -> Doubles:
    """Quantiles of one track at the levels of its prior, `[levels]`, for known errors.

    Beyond all errors and offsets they are the outermost of these.
    """
    if not len(errors):
        return offsets
    ordered, independent = np.sort(errors), _PRIOR_ERRORS * share / (1 - share)
    outer = 1 / (min(len(errors), _OVERLAPPING * independent) + 1)
    places = np.unique(np.concatenate([ordered, offsets]))
    own = np.stack(_distribution(places, ordered, np.linspace(outer, 1 - outer, len(ordered))))
    prior = np.stack(_distribution(places, offsets, levels))
    # Beyond the errors one more may lie, as far as the prior has it: few errors show no tails.
    beyond = places < ordered[0], places > ordered[-1]
    lowest, highest = prior[1, places == ordered[0]], 1 - prior[0, places == ordered[-1]]
    own[:, beyond[0]] = outer * prior[:, beyond[0]] / np.maximum(lowest, _LEAST)
    own[:, beyond[1]] = 1 - outer * (1 - prior[:, beyond[1]]) / np.maximum(highest, _LEAST)
    # Both sides of each place, as the distribution jumps where errors are equal.
    reached = np.maximum.accumulate((share * own + (1 - share) * prior).T.ravel())
    moved = np.interp(levels, [0.0, *_LEVELS, 1.0], [0.0, *adapted, 1.0])
    found: Doubles = np.interp(moved, reached, np.repeat(places, 2))
    return found


def _distribution(values: Doubles, points: Doubles, levels: Doubles) -> tuple[Doubles, Doubles]:
    """The share of a distribution below each value, and that up to each value.

    It is linear between its points, which never decrease, and has nothing beyond them.
    """
    from_value = np.interp(-values, -points[::-1], 1 - levels[::-1], left=0.0, right=1.0)
    return 1 - from_value, np.interp(values, points, levels, left=0.0, right=1.0)
