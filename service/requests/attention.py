"""Attention on request: which stages, how large the answer, and the answer itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.frequency import Frequency, Unit
from foretell.bundle.manifest import AttentionStage, Axis, Manifest
from foretell.service.arrays import Arrays
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.requests.schemas import AttentionOptions
from foretell.service.times.timeline import Timeline
from foretell.service.validation import shown

Label = int | str | dict[str, int | str] | None
Heads = Literal["all", "mean"] | tuple[int, ...]

_DURATIONS = {
    Unit.SECOND: "PT{}S",
    Unit.MINUTE: "PT{}M",
    Unit.HOUR: "PT{}H",
    Unit.DAY: "P{}D",
    Unit.WEEK: "P{}W",
    Unit.MONTH: "P{}M",
    Unit.YEAR: "P{}Y",
}


@dataclass(frozen=True)
class Selection:
    """The attention a request asks for.

    Attributes:
        stages: The stages to return.
        heads: Every head, their mean, or some by number.
    """

    stages: tuple[AttentionStage, ...]
    heads: Heads

    def values(self, channels: int) -> int:
        """Weights in the answer for one input."""
        return sum(math.prod(_shape(stage, self.heads, channels)) for stage in self.stages)


def select(options: AttentionOptions, manifest: Manifest, place: str) -> Selection:
    """Resolve stage names, layer and head numbers.

    Raises:
        NotSupportedError: the model has no attention stage.
        InvalidInputError: a name or number is not the model's; `param` is its place.
    """
    if not manifest.attention:
        raise NotSupportedError(f"{manifest.name} has no attention stages", param=place)
    stages = {stage.name: stage for stage in manifest.attention}
    for index, name in enumerate(options.stages or ()):
        if name not in stages:
            raise InvalidInputError(
                f"expected one of {', '.join(stages)}, got {name[:60]!r}",
                param=f"{place}.stages[{index}]",
            )
    layers = {_layer(stage) for stage in manifest.attention}
    for index, layer in enumerate(options.layers or ()):
        if layer not in layers:
            raise InvalidInputError(
                f"expected one of the layers {', '.join(map(str, sorted(layers)))}",
                param=f"{place}.layers[{index}]",
            )
    chosen = tuple(
        stage
        for stage in manifest.attention
        if (options.stages is None or stage.name in options.stages)
        and (options.layers is None or _layer(stage) in options.layers)
    )
    if not chosen:
        raise InvalidInputError("stages and layers together select nothing", param=place)
    return Selection(chosen, _select_heads(options.heads, chosen, f"{place}.heads"))


def _select_heads(given: object, stages: tuple[AttentionStage, ...], place: str) -> Heads:
    if given == "all":
        return "all"
    if given == "mean":
        return "mean"
    if not isinstance(given, list) or not given:
        raise InvalidInputError(
            f"expected 'all', 'mean' or a list of head numbers, got {shown(given)}", param=place
        )
    # The map of an auto-correlation is that of all heads.
    count = min((stage.heads for stage in stages if stage.kind == "softmax"), default=None)
    for index, head in enumerate(given):
        if type(head) is not int or head < 0 or (count is not None and head >= count):
            heads = "" if count is None else f", of which every selected stage has {count}"
            raise InvalidInputError(
                f"expected a head by its number from 0{heads}, got {shown(head)}",
                param=f"{place}[{index}]",
            )
    if len(set(given)) < len(given):
        raise InvalidInputError("a head is asked for twice", param=place)
    return tuple(given)


def describe(
    selection: Selection,
    outputs: Arrays,
    timeline: Timeline | None,
    manifest: Manifest,
    columns: list[int] | None,
) -> list[dict[str, Any]]:
    """The attention of one input, as the answer has it.

    Args:
        selection: What was asked for.
        outputs: The graph's outputs for this input, without the batch axis.
        timeline: When its steps are, if it said so.
        manifest: The model's.
        columns: The model's channel of each column of the request, if not in the model's order.
    """
    return [
        _describe(stage, selection.heads, outputs, timeline, manifest, columns)
        for stage in selection.stages
    ]


def _describe(
    stage: AttentionStage,
    heads: Heads,
    outputs: Arrays,
    timeline: Timeline | None,
    manifest: Manifest,
    columns: list[int] | None,
) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": stage.name, "kind": stage.kind}
    axes = ["query", "key"]
    if stage.kind == "autocorrelation":
        lags = outputs[f"{stage.name}.lags"].astype(np.int64)
        lag_weights = outputs[f"{stage.name}.lag_weights"]
        weights = circulant(lags, lag_weights, stage.query.length)
        frequency = manifest.step
        answer |= {
            "lags": lags,
            "lag_durations": [duration(int(lag), frequency) for lag in lags],
            "lag_weights": lag_weights,
            "correlation": outputs[f"{stage.name}.correlation"],
        }
    else:
        weights = outputs[f"{stage.name}.weights"]
        if heads == "mean":
            weights = weights.mean(axis=-3)
        else:
            answer["heads"] = list(range(stage.heads) if heads == "all" else heads)
            weights = weights[..., answer["heads"], :, :]
            axes.insert(0, "head")
        if stage.per_channel:
            order = columns or range(len(manifest.channels))
            answer["channels"] = [manifest.channels[column] for column in order]
            weights = weights[list(order)]
            axes.insert(0, "channel")
    return answer | {
        "shape": weights.shape,
        "axes": axes,
        "weights": np.ascontiguousarray(weights),
        "query": labels(stage.query, timeline),
        "key": labels(stage.key, timeline),
    }


def circulant(
    lags: NDArray[np.int64], lag_weights: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    """The map of an auto-correlation.

    Args:
        lags: `[k]`.
        lag_weights: `[k]`.
        length: Positions on either axis.

    Returns:
        `[query, key]`, `lag_weights[i]` where key - query is `lags[i]` modulo the length.
    """
    weights = np.zeros((length, length), np.float32)
    query = np.arange(length)
    for lag, weight in zip(lags, lag_weights, strict=True):
        weights[query, (query + lag) % length] += weight
    return weights


def labels(axis: Axis, timeline: Timeline | None) -> list[Label]:
    """What each position of an axis stands for.

    A position of one step has one label, a patch has `start` and `end`, its first and its last
    step; positions that stand for no step have None.
    """
    count = axis.length - axis.padding
    names: list[int] | list[str]
    span = (count - 1) * axis.stride + axis.width
    if axis.end is not None:
        span = min(span, axis.end - axis.start)
    if timeline is None:
        names = list(range(axis.start, axis.start + span))
    else:
        names = timeline.labels(axis.start, span)

    def name(offset: int) -> int | str:
        return names[min(offset, span - 1)]

    firsts = range(0, count * axis.stride, axis.stride)
    if axis.width == 1:
        found: list[Label] = [name(first) for first in firsts]
    else:
        found = [{"start": name(first), "end": name(first + axis.width - 1)} for first in firsts]
    return found + [None] * axis.padding


def duration(lag: int, frequency: Frequency) -> str | None:
    """A lag as an ISO 8601 duration; None for business days, which have none."""
    units = lag * frequency.multiple
    if frequency.unit is Unit.QUARTER:
        return _DURATIONS[Unit.MONTH].format(3 * units)
    form = _DURATIONS.get(frequency.unit)
    return None if form is None else form.format(units)


def _shape(stage: AttentionStage, heads: Heads, channels: int) -> tuple[int, ...]:
    shape: tuple[int, ...] = (stage.query.length, stage.key.length)
    if stage.kind == "autocorrelation":
        return (stage.query.length, stage.query.length)
    if heads != "mean":
        shape = (stage.heads if heads == "all" else len(heads), *shape)
    return (channels, *shape) if stage.per_channel else shape


def _layer(stage: AttentionStage) -> int:
    """The number in a name such as `encoder.0.self`."""
    return next((int(part) for part in stage.name.split(".") if part.isdecimal()), 0)
