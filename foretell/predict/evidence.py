"""Evidence: the attention of an answer as maps and lags, for any mechanism."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretell.client.explaining import Label, Patch, Stage
from foretell.terminal.words import period
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import parse, shown

Floats = NDArray[np.float64]

_DURATION = re.compile(r"P(T?)(\d+)([A-Z])")
_MIDNIGHT = " 00:00"
_UNITS = {"TS": "s", "TM": "min", "TH": "h", "D": "D", "W": "W", "M": "M", "Y": "Y"}


@dataclass(frozen=True)
class Lags:
    """Chosen lags, the strongest first.

    Attributes:
        positions: Lags in positions of the axes `[chosen]`.
        periods: Lags in words `[chosen]`; empty for business days.
        weights: Weights of the lags `[chosen]`.
        correlation: Correlation at every lag from 0 `[lags]`.
    """

    positions: NDArray[np.int64]
    periods: tuple[str, ...]
    weights: Floats
    correlation: Floats


@dataclass(frozen=True)
class Evidence:
    """Attention of one stage: the mean over heads and over an axis of channels.

    Attributes:
        name: Name of the stage.
        kind: Name of the mechanism.
        weights: Weights without padding `[query, key]`.
        queries: Labels of the queries: times, time spans, channels or numbers.
        keys: Labels of the keys.
        ahead: Whether each query is a forecast step, or begins with one `[query]`.
        lags: Lags, if the map is circulant.
    """

    name: str
    kind: str
    weights: Floats
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    ahead: NDArray[np.bool_]
    lags: Lags | None = None

    def strongest(self, weights: Floats, count: int) -> list[tuple[str, float]]:
        """Labels and weights of the keys with the largest weights, out of weights `[key]`."""
        order = np.argsort(-weights, kind="stable")[:count]
        return [(self.keys[place], float(weights[place])) for place in order]


def find_evidence(stages: Sequence[Stage], first: str) -> list[Evidence]:
    """The evidence of all stages that have a map.

    Args:
        stages: Stages of an answer with times and the mean of heads, whose maps are `dense` or
            `circulant`.
        first: Time of the first forecast step.
    """
    return [_evidence(stage, first) for stage in stages if stage.form != "none"]


def _evidence(stage: Stage, first: str) -> Evidence:
    weights = np.asarray(stage.weights)
    weights = weights.mean(axis=tuple(range(weights.ndim - 2)))
    queries, keys = stage.query or (), stage.key or ()
    there = [[i for i, label in enumerate(axis) if label is not None] for axis in (queries, keys)]
    start = parse(first).wall
    return Evidence(
        name=stage.name,
        kind=stage.kind,
        weights=weights[np.ix_(*there)],
        queries=_names([queries[i] for i in there[0]]),
        keys=_names([keys[i] for i in there[1]]),
        ahead=np.array([_is_from(queries[i], start) for i in there[0]], np.bool_),
        lags=_lags(stage),
    )


def _lags(stage: Stage) -> Lags | None:
    if stage.lags is None or stage.lag_durations is None or stage.lag_weights is None:
        return None
    order = np.argsort(-stage.lag_weights, kind="stable")
    return Lags(
        np.asarray(stage.lags, np.int64)[order],
        tuple(_in_words(stage.lag_durations[place]) for place in order),
        stage.lag_weights[order],
        np.asarray(stage.correlation, np.float64),
    )


def _in_words(duration: str | None) -> str:
    """A duration in words; the service writes lags in ISO 8601."""
    match = _DURATION.fullmatch(duration or "")
    if match is None or not int(match[2]):
        return ""
    return period(int(match[2]), Frequency.parse(_UNITS[match[1] + match[3]]))


def _is_time(text: str) -> bool:
    return re.match(r"\d{4}-\d\d-\d\dT", text) is not None


def _ends(label: Label) -> list[str]:
    return list(map(str, (label.start, label.end) if isinstance(label, Patch) else (label,)))


def _is_from(label: Label, first: np.datetime64) -> bool:
    start = _ends(label)[0]
    return _is_time(start) and bool(parse(start).wall >= first)


def _names(labels: Sequence[Label]) -> tuple[str, ...]:
    """Labels of an axis as texts; dates without times if all times are midnight."""
    texts = [[_shown(end) for end in _ends(label)] for label in labels]
    if all(text.endswith(_MIDNIGHT) for both in texts for text in both):
        texts = [[text.removesuffix(_MIDNIGHT) for text in both] for both in texts]
    return tuple(" to ".join(_without_day(both)) for both in texts)


def _shown(text: str) -> str:
    if not _is_time(text):
        return text
    wall = shown(parse(text).wall).replace("T", " ")
    return wall.removesuffix(":00")


def _without_day(both: Sequence[str]) -> list[str]:
    """The ends of a time span, the second one without its date if both have the same date."""
    first, *last = both
    return [first, *(text.removeprefix(f"{first[:10]} ") for text in last)]
