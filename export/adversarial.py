"""Artificial windows that show the effects of rounding."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from foretell.bundle.scaler import Scaler
from foretell.export.window_set import WindowSet

_DAY = 24
# Near the end of float32, and with room for a forecast beyond it.
_LARGEST = 1e38


def adversarial(
    windows: WindowSet, scaler: Scaler, seed: int, observed_steps: int | None = None
) -> Iterator[WindowSet]:
    """Replace the histories of windows by artificial ones; calendars and covariates stay.

    Args:
        windows: Real windows; `mixed` and `gaps` are made from them.
        scaler: Scaler whose units offsets and amplitudes have.
        seed: Seed of levels, phases, noise and gaps.
        observed_steps: Number of last steps in which each channel keeps a value, for a model that
            reads gaps; else None.

    Yields:
        An equal number of windows of each kind: `constant`, `zero`, `periodic` (24 steps exactly),
        `trend`, `offset 30`, `offset 10000`, `tiny` (1e-6), `mixed`, whose channels are of these
        kinds in turn; and, for a model that reads gaps, `gaps`, which lack values.
    """
    random = np.random.default_rng(seed)
    count, context, channels = windows.history.shape
    each = (count, 1, channels)
    step = np.arange(context)[None, :, None]
    noise = random.normal(size=windows.history.shape)
    mean, std = np.array(scaler.mean), np.array(scaler.std)
    real = (windows.history - mean) / std
    kinds = {
        "constant": random.normal(size=each) + 0 * noise,
        "zero": 0 * noise,
        "periodic": np.sin(2 * np.pi * (step / _DAY + random.uniform(size=each))),
        "trend": 3 * random.normal(size=each) * step / context,
        "offset 30": 30 + noise,
        "offset 10000": 10_000 + noise,
        "tiny": 1e-6 * noise,
    }
    mixed = np.empty_like(real)
    sources = (real, *kinds.values())
    for first, source in enumerate(sources):
        mixed[..., first :: len(sources)] = source[..., first :: len(sources)]
    kinds["mixed"] = mixed
    for name, standardised in kinds.items():
        history = np.clip(standardised * std + mean, -_LARGEST, _LARGEST)
        yield windows.with_history(name, history.astype(np.float32))

    if observed_steps is not None:
        yield _with_gaps(windows, observed_steps, random)


def _with_gaps(windows: WindowSet, observed_steps: int, random: np.random.Generator) -> WindowSet:
    """Real windows that lack, in turn, random, first or last steps of each channel."""
    count, context, channels = windows.history.shape
    each = (count, 1, channels)
    step = np.arange(context)[None, :, None]
    missing = random.uniform(size=windows.history.shape) < random.uniform(0, 0.9, each)
    length = random.integers(1, context, each)
    missing[1::3] = (step < length)[1::3]
    missing[2::3] = (step >= context - length)[2::3]
    missing &= step != random.integers(context - observed_steps, context, each)
    history = np.where(missing, np.float32(np.nan), windows.history)
    return windows.with_history("gaps", history)
