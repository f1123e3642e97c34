"""Comparing what auto-correlations chose, and how close it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.manifest import AttentionStage
from foretell.export.rules import ROUNDING, TINY

Outputs = dict[str, NDArray[np.generic]]
Errors = NDArray[np.float64]
Mask = NDArray[np.bool_]


def headroom(stages: Sequence[AttentionStage], found: Outputs, expected: Outputs) -> Errors:
    """How many times the margin of the last kept lag exceeds what rounding could bridge.

    Args:
        stages: Of the model; those without lags do not count.
        found: Outputs of the graph.
        expected: Of torch in float64.

    Returns:
        `[batch]`, the smallest over all stages; infinite without auto-correlation.
    """
    smallest = np.full(len(expected["forecast"]), np.inf)
    for choice in _choices(stages, found, expected):
        # What all lags share changes neither their order nor their weights.
        error = largest(choice.error - choice.error.mean(axis=1, keepdims=True))
        rounding = np.minimum(error, ROUNDING * largest(choice.exact))
        with np.errstate(divide="ignore", invalid="ignore"):
            times = choice.margin(choice.exact) / (2 * rounding)
        smallest = np.minimum(smallest, np.nan_to_num(times, posinf=np.inf))
    return smallest


def margin_error(
    stages: Sequence[AttentionStage], found: Outputs, expected: Outputs, compared: Mask
) -> float | None:
    """Largest error of the difference between the last lag that is kept and the next.

    Relative to the range of the correlation, as the graphs' `margin` is.

    Args:
        stages: As in `headroom`, like the two after it.
        found: See above.
        expected: See above.
        compared: `[batch]`, the windows that count.

    Returns:
        The largest over all stages; None without auto-correlation.
    """
    if not any(stage.kind == "autocorrelation" for stage in stages):
        return None
    errors = (
        np.abs(choice.margin(choice.error)) / np.ptp(choice.exact, axis=1).clip(min=TINY)
        for choice in _choices(stages, found, expected)
    )
    return max((float(error[compared].max(initial=0)) for error in errors), default=0.0)


def lags_differ(stages: Sequence[AttentionStage], found: Outputs, expected: Outputs) -> Mask:
    """Whether any auto-correlation keeps another set of lags, `[batch]`."""
    differ = np.zeros(len(expected["forecast"]), dtype=np.bool_)
    for stage in stages:
        if stage.kind != "autocorrelation":
            continue
        by_lag = [_weights_by_lag(stage, outputs) for outputs in (found, expected)]
        differ |= (np.isnan(by_lag[0]) != np.isnan(by_lag[1])).any(axis=1)
    return differ


def attention_error(stage: AttentionStage, found: Outputs, expected: Outputs) -> Errors:
    """Largest difference of an attention weight, `[batch]`; infinite where the lags differ."""
    if stage.kind == "softmax":
        name = stage.outputs[0]
        return largest(found[name].astype(np.float64) - expected[name].astype(np.float64))
    by_lag = [_weights_by_lag(stage, outputs) for outputs in (found, expected)]
    difference = largest(np.nan_to_num(by_lag[0]) - np.nan_to_num(by_lag[1]))
    return np.where(lags_differ([stage], found, expected), np.inf, difference)


def largest(difference: Errors) -> Errors:
    """Largest absolute value of each window, `[batch]`."""
    found: Errors = np.abs(difference).reshape(len(difference), -1).max(axis=1)
    return found


class _Choice(NamedTuple):
    """A choice of lags.

    Attributes:
        exact: `[batch, lags]`, the correlation.
        error: The same shape, of the graph.
        ends: `[batch, 2]`, the last lag that is kept and the next.
    """

    exact: Errors
    error: Errors
    ends: NDArray[np.int64]

    def margin(self, values: Errors) -> Errors:
        """The difference of values `[batch, lags]` between both ends, `[batch]`."""
        last, following = np.take_along_axis(values, self.ends, axis=1).T
        difference: Errors = last - following
        return difference


def _choices(
    stages: Sequence[AttentionStage], found: Outputs, expected: Outputs
) -> Iterator[_Choice]:
    """Those of all stages that leave out a lag."""
    for stage in stages:
        if stage.kind != "autocorrelation":
            continue
        name = f"{stage.name}.correlation"
        exact = expected[name].astype(np.float64)
        keep = expected[f"{stage.name}.lags"].shape[1]
        if keep < exact.shape[1]:
            order = np.argsort(-exact, axis=1, kind="stable")
            error = found[name].astype(np.float64) - exact
            yield _Choice(exact, error, order[:, keep - 1 : keep + 1])


def _weights_by_lag(stage: AttentionStage, outputs: Outputs) -> Errors:
    """`[batch, lags]`, NaN at lags that were not kept."""
    lags = outputs[f"{stage.name}.lags"].astype(np.int64)
    weights = np.full((len(lags), stage.query.length), np.nan)
    kept = outputs[f"{stage.name}.lag_weights"].astype(np.float64)
    np.put_along_axis(weights, lags, kept, axis=1)
    return weights
