"""Compare attention weights and choices of a graph with the reference, and measure margins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.attention import AttentionStage
from foretell.export.errors import ExportError
from foretell.export.rules import ROUNDING, TINY

Outputs = dict[str, NDArray[np.generic]]
Errors = NDArray[np.float64]
Mask = NDArray[np.bool_]


def headroom(
    stages: Sequence[AttentionStage],
    found: Outputs,
    expected: Outputs,
    allowed: Sequence[Errors] | None = None,
) -> Errors:
    """Ratio of the margin of the last chosen candidate to the error that rounding can make.

    Args:
        stages: Stages of the model; stages without choices are ignored.
        found: Outputs of the graph.
        expected: Outputs of torch in float64.
        allowed: `[batch]`, the largest error of each choice that still counts as rounding; the
            limit is at least `ROUNDING` times the largest score.

    Returns:
        `[batch]`, the smallest ratio of all choices; infinite without choices.

    Raises:
        ExportError: an output is missing, or has another shape.
    """
    smallest = np.full(len(expected["forecast"]), np.inf)
    for place, (exact, error, ends) in enumerate(_choices(stages, found, expected)):
        most = ROUNDING * np.abs(exact).max(axis=-1)
        if allowed is not None:
            most = np.maximum(most, allowed[place][:, None])
        # An error that is NaN counts as the limit, like one that is larger.
        rounding = np.fmin(_largest(error), most)
        with np.errstate(divide="ignore", invalid="ignore"):
            times = _margin(exact, ends) / (2 * rounding)
        smallest = np.minimum(smallest, np.nan_to_num(times, posinf=np.inf).min(axis=1))
    return smallest


def score_errors(
    stages: Sequence[AttentionStage], found: Outputs, expected: Outputs
) -> list[Errors]:
    """Largest error of a score, `[batch]`, for each choice that leaves out a candidate.

    Raises:
        ExportError: as `headroom`.
    """
    choices = _choices(stages, found, expected)
    return [_largest(error).max(axis=-1) for _, error, _ in choices]


def margin_error(stages: Sequence[AttentionStage], found: Outputs, expected: Outputs) -> Errors:
    """Error of the difference between the last candidate that is chosen and the next.

    It is relative to the range of the scores, like the `margin` of the graphs. The range of lags
    does not include zero, because the same may be added to all of them; the range of other scores
    does.

    Args:
        stages: As in `headroom`.
        found: As in `headroom`.
        expected: As in `headroom`.

    Returns:
        `[batch]`, the largest error of all choices; 0 without choices.

    Raises:
        ExportError: as `headroom`.
    """
    most = np.zeros(len(expected["forecast"]))
    for stage in stages:
        zero = np.inf if stage.form == "circulant" else 0
        for exact, error, ends in _choices([stage], found, expected):
            reach = exact.max(axis=-1).clip(min=-zero) - exact.min(axis=-1).clip(max=zero)
            relative = np.abs(_margin(error, ends)) / reach.clip(min=TINY)
            most = np.maximum(most, relative.max(axis=1))
    return most


def choices_differ(stages: Sequence[AttentionStage], found: Outputs, expected: Outputs) -> Mask:
    """Whether the graph chooses other candidates than the reference, in any order, `[batch]`.

    Raises:
        ExportError: as `headroom`.
    """
    differ = np.zeros(len(expected["forecast"]), dtype=np.bool_)
    for stage in stages:
        for choice in stage.choices:
            pair = (np.sort(part, axis=-1) for part in _both(choice.chosen, found, expected))
            differ |= np.not_equal(*pair).reshape(len(differ), -1).any(axis=1)
    return differ


def attention_error(stage: AttentionStage, found: Outputs, expected: Outputs) -> Errors:
    """Largest difference of an attention weight, `[batch]`; infinite where the choices differ.

    It is relative to the largest weight of the query if that is more than 1. Weights that may be
    negative can be large although their sum is small.

    Raises:
        ExportError: as `headroom`.
    """
    error = np.zeros(len(expected["forecast"]))
    if stage.form == "dense":
        ours, exact = _both(stage.part("weights"), found, expected)
        largest = np.maximum(exact.max(axis=-1), -exact.min(axis=-1)).clip(min=1)
        difference = np.subtract(ours, exact, dtype=np.float64)
        # In place, because a map may be larger than everything else.
        rows = np.abs(difference, out=difference).max(axis=-1) / largest
        error = rows.reshape(len(error), -1).max(axis=1)
    elif stage.form == "circulant":
        error = _sparse_error(stage, "lags", "lag_weights", found, expected)
    elif stage.form == "sparse":
        error = _sparse_error(stage, "keys", "weights", found, expected)
    return np.where(choices_differ([stage], found, expected), np.inf, error)


def _choices(
    stages: Sequence[AttentionStage], found: Outputs, expected: Outputs
) -> Iterator[tuple[Errors, Errors, NDArray[np.int64]]]:
    """Scores, errors and the ends of each choice that leaves out a candidate."""
    for choice in (choice for stage in stages for choice in stage.choices):
        ours, exact = (
            part.astype(np.float64).reshape(len(part), -1, part.shape[-1])
            for part in _both(choice.scores, found, expected)
        )
        if not np.isfinite(exact).all():
            raise ExportError(f"{choice.scores}: the scores of a choice must be finite")
        kept = _both(choice.chosen, found, expected)[1].shape[-1]
        if kept < exact.shape[-1]:
            order = np.argsort(-exact, axis=-1, kind="stable")
            yield exact, ours - exact, order[..., kept - 1 : kept + 1]


def _largest(error: Errors) -> Errors:
    """Largest error of each place, `[batch, places]`, of `[batch, places, candidates]`."""
    # An error that all candidates share changes neither their order nor their weights.
    own: Errors = np.abs(error - error.mean(axis=-1, keepdims=True)).max(axis=-1)
    return own


def _margin(values: Errors, ends: NDArray[np.int64]) -> Errors:
    """Difference of values `[batch, places, candidates]` between both ends."""
    first, second = np.moveaxis(np.take_along_axis(values, ends, axis=-1), -1, 0)
    difference: Errors = first - second
    return difference


def _sparse_error(
    stage: AttentionStage, positions: str, weights: str, found: Outputs, expected: Outputs
) -> Errors:
    """Largest difference of two maps that are zero except at some positions, `[batch]`."""
    at = np.concatenate(_both(stage.part(positions), found, expected), axis=-1)
    ours, exact = _both(stage.part(weights), found, expected)
    signed = np.concatenate([ours.astype(np.float64), -exact.astype(np.float64)], axis=-1)
    order = np.argsort(at, axis=-1, kind="stable")
    at = np.take_along_axis(at, order, axis=-1)
    signed = np.where(at < 0, 0, np.take_along_axis(signed, order, axis=-1))
    # A new place begins where the position changes, and with every row.
    begins = np.ones(at.shape, np.bool_)
    begins[..., 1:] = at[..., 1:] != at[..., :-1]
    starts = np.flatnonzero(begins)
    windows = np.searchsorted(starts, np.arange(len(at)) * at[0].size)
    error: Errors = np.maximum.reduceat(np.abs(np.add.reduceat(signed.ravel(), starts)), windows)
    return error


def _both(name: str, found: Outputs, expected: Outputs) -> tuple[NDArray[np.generic], ...]:
    """An output of the graph and of the reference, which have the same shape."""
    for outputs, whose in ((found, "graph"), (expected, "reference")):
        if name not in outputs:
            raise ExportError(f"{name}: the {whose} has no such output")
    pair = found[name], expected[name]
    if pair[0].shape != pair[1].shape:
        shapes = " and ".join(str(list(part.shape)) for part in pair)
        raise ExportError(f"{name}: the graph and the reference have the shapes {shapes}")
    return pair
