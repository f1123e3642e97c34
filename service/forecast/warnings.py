"""Warnings of an answer that may differ from the client's intention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextvars import copy_context
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import Manifest

AnswerWarning = dict[str, str | None]
Floats = NDArray[np.float32]

# Limits of the distance of means, in standard deviations of the training split. Histories of ETTh1
# and ETTh2 in the test months stay below: tests/service/forecast/test_warnings.py.
_HISTORY, _FORECAST = 4.5, 9.0
_LARGEST = float(np.finfo(np.float32).max)
# Most warnings of one kind.
_MOST = 8
# Runs numpy without warnings about infinities, in a third of the time of `np.errstate`.
_QUIET = copy_context()
_QUIET.run(np.seterr, invalid="ignore", over="ignore")


def warning(kind: str, message: str, param: str | None) -> AnswerWarning:
    return {"type": kind, "message": message, "param": param}


def unknown_fields(paths: Iterable[str]) -> list[AnswerWarning]:
    return [warning("ignored_field", "not known, and not read", path) for path in paths]


def outside(
    manifest: Manifest,
    history: Floats,
    forecast: Floats,
    place: Callable[[int], str],
    own: NDArray[np.intp] | None = None,
) -> list[AnswerWarning] | None:
    """The warnings of windows with a mean over time far from that of the training split.

    `history` is `[windows, context, channels]` in the user's units, finite, or NaN where a value is
    missing; no channel is missing in a whole window. `forecast` is `[windows, steps, targets]`;
    windows that are not finite get no warnings. `own` are the windows with a history of their own;
    all by default. Returns None if nothing is far and every forecast is finite.
    """
    _, steps, _ = forecast.shape
    known = manifest.training.mean, manifest.deviations
    before, after, low, high = _known(*known, history.shape[1], steps)
    means = np.empty((2, *history.shape[::2]), np.float32)
    np.matmul(before, history, out=means[0])
    if (at := manifest.columns) is None:
        _QUIET.copy().run(np.matmul, after, forecast, means[1])
    else:
        means[1] = means[0]
        means[1][:, at] = _QUIET.copy().run(np.matmul, after, forecast)
    # This changes a mean that is not finite, too.
    if np.fmin(np.fmax(means, low), high).tobytes() == means.tobytes():
        return None
    return [
        *_describe(manifest, history, place, np.arange(len(history)) if own is None else own),
        *_describe(manifest, forecast, place, None),
    ]


@lru_cache
def _known(
    mean: tuple[float, ...], std: tuple[float, ...], before: int, after: int
) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights for the means of a history and a forecast, and bounds of the means.

    The bounds, the least and the largest mean that is not far, are `[2, 1, channels]`.
    """
    far = np.array([[[_HISTORY]], [[_FORECAST]]]) * _spread(std)
    bounds = [(np.array(mean) + way * far).clip(-_LARGEST, _LARGEST) for way in (-1, 1)]
    low, high = (bound.astype(np.float32) for bound in bounds)
    weights = [np.full(steps, 1 / steps, np.float32) for steps in (before, after)]
    return weights[0], weights[1], low, high


def _spread(std: tuple[float, ...]) -> NDArray[np.float64]:
    """Standard deviations; infinite instead of 0."""
    values = np.array(std)
    return np.where(values > 0, values, np.inf)


def _describe(
    manifest: Manifest,
    values: Floats,
    place: Callable[[int], str],
    rows: NDArray[np.intp] | None,
) -> Iterator[AnswerWarning]:
    """The warnings of some histories, or without `rows` of all forecasts."""
    if rows is None:
        kind, what, limit = "forecast_outside_training_range", "its forecast", _FORECAST
        names, own = manifest.targets, manifest.columns
        rows = np.flatnonzero(np.isfinite(values).all(axis=(1, 2)))
    else:
        kind, what, limit = "outside_training_range", "this history", _HISTORY
        names, own = manifest.channels, None
    mean, spread = np.array(manifest.training.mean), _spread(manifest.deviations)
    if own is not None:
        mean, spread = mean[own], spread[own]
    # Sums of float32 are not exact.
    means = np.asarray(np.nanmean(values[rows], axis=1, dtype=np.float64))
    distances = np.abs(means - mean) / spread
    far = np.flatnonzero((distances > limit).any(axis=1)).tolist()
    for at in far[:_MOST]:
        most = int(distances[at].argmax())
        text = (
            f"{names[most]!r} is {means[at, most]:.4g} on average over {what}, "
            f"{distances[at, most]:.3g} standard deviations from the mean of its training "
            f"({mean[most]:.4g}, standard deviation {spread[most]:.3g}): is its unit another one, "
            "or is it another channel?"
        )
        yield warning(kind, text, place(int(rows[at])))
    if len(far) > _MOST:
        yield warning(kind, f"the same applies to {len(far) - _MOST} more series", None)
