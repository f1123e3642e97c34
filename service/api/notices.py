"""What an answer warns of: it is one, and yet may not be what was meant."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import Manifest, Scaler
from foretell.service.validation import Ignored

Notice = dict[str, str | None]
Floats = NDArray[np.float32]

# Standard deviations in training, of a mean over time: docs/requests.md says how they were chosen.
_HISTORY, _FORECAST = np.float32(4.5), np.float32(9)
# Of one kind that are told one by one.
_MOST = 8


def notice(kind: str, message: str, param: str | None) -> Notice:
    """A warning, as answers have it."""
    return {"type": kind, "message": message, "param": param}


def ignored_fields(ignored: Ignored) -> list[Notice]:
    """Of names that nobody reads."""
    return [notice("ignored_field", "not known, and not read", at) for at in ignored.values()]


def outside(
    manifest: Manifest, history: Floats, forecast: Floats, place: Callable[[int], str]
) -> list[Notice] | None:
    """Of windows that are far, on average over their time, from what the model was trained on.

    Args:
        manifest: The model's.
        history: `[windows, context, channels]` in the user's units, finite.
        forecast: `[windows, steps, channels]`, what the model made of it; a window that is not
            finite is no matter of warnings.
        place: Where a window's history stands in the request.

    Returns:
        None if nothing is far, and the forecast is finite.
    """
    mean, before, near, after, nearby = _known(manifest.scaler, history.shape[1], forecast.shape[1])
    # Means by products: half the time of others. What is not finite makes one that is near to
    # nothing.
    with np.errstate(invalid="ignore", over="ignore"):
        count = np.count_nonzero(np.abs(np.dot(before, history) - mean) <= near)
        count += np.count_nonzero(np.abs(np.dot(after, forecast) - mean) <= nearby)
    if count == 2 * len(history) * len(mean):
        return None
    return [
        *_describe("outside_training_range", history, manifest, place),
        *_describe("forecast_outside_training_range", forecast, manifest, place),
    ]


@lru_cache
def _known(scaler: Scaler, before: int, after: int) -> tuple[Floats, ...]:
    """What `outside` compares with.

    Args:
        scaler: The model's.
        before: Steps of a history.
        after: Steps of a forecast.

    Returns:
        The mean `[channels]`; and of a history and of a forecast, the weights of its steps and how
        far from the mean is not far `[channels]`.
    """
    mean, std = np.array(scaler.mean, np.float32), np.array(scaler.std, np.float32)
    weights = [np.full(steps, 1 / steps, np.float32) for steps in (before, after)]
    return mean, weights[0], _HISTORY * std, weights[1], _FORECAST * std


def _describe(
    kind: str, values: Floats, manifest: Manifest, place: Callable[[int], str]
) -> Iterator[Notice]:
    mean, std = np.array(manifest.scaler.mean), np.array(manifest.scaler.std)
    what, limit = ("its forecast", _FORECAST) if kind[0] == "f" else ("this history", _HISTORY)
    # Sums of float32 are not exact.
    rows = np.flatnonzero(np.isfinite(values).all(axis=(1, 2)))
    means = values[rows].mean(axis=1, dtype=np.float64)
    distances = np.abs(means - mean) / std
    far = np.flatnonzero((distances > limit).any(axis=1)).tolist()
    for at in far[:_MOST]:
        most = int(distances[at].argmax())
        text = (
            f"{manifest.channels[most]!r} is {means[at, most]:.4g} on average over {what}, "
            f"{distances[at, most]:.3g} standard deviations from the mean of its training "
            f"({mean[most]:.4g}, standard deviation {std[most]:.3g}): is its unit another one, or "
            "is it another channel?"
        )
        yield notice(kind, text, place(int(rows[at])))
    if len(far) > _MOST:
        yield notice(kind, f"so it is with {len(far) - _MOST} more series", None)
