"""Attention on request: which stages, how large the answer, and the answer itself."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.attention import AttentionStage, Axis
from foretell.bundle.frequency import Frequency, Unit
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.requests import AttentionOptions
from foretell.service.forecast.times import Timeline
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

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the graph's outputs that the answer is made of."""
        return tuple(name for stage in self.stages for name in stage.evidence)

    def values(self, channels: int) -> int:
        """At most how many weights, and keys of sparse maps, the answer for one input has."""
        return sum(_values(stage, self.heads, channels) for stage in self.stages)


def select(options: AttentionOptions, manifest: Manifest, place: str) -> Selection:
    """Resolve stage names, layer and head numbers; stages without a map must be named.

    Raises:
        NotSupportedError: the model has no attention stage, or none with a map and none is named.
        InvalidInputError: a name or number is not the model's; `param` is its place.
    """
    has_maps = any(stage.form != "none" for stage in manifest.attention)
    if not manifest.attention or (options.stages is None and not has_maps):
        raise NotSupportedError(f"{manifest.name} has no attention maps", param=place)
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
        if (stage.form != "none" if options.stages is None else stage.name in options.stages)
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
    # A circulant map is that of all heads.
    having = [stage.heads for stage in stages if stage.form in ("dense", "sparse")]
    count = min(having, default=None)
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
    order = columns or list(range(len(manifest.channels)))
    return [
        _describe(stage, selection.heads, outputs, timeline, manifest, order)
        for stage in selection.stages
    ]


def _describe(
    stage: AttentionStage,
    heads: Heads,
    outputs: Arrays,
    timeline: Timeline | None,
    manifest: Manifest,
    order: list[int],
) -> dict[str, Any]:
    answer: dict[str, Any] = {"name": stage.name, "kind": stage.mechanism, "form": stage.form}
    if stage.form == "none":
        return answer
    names = [manifest.channels[channel] for channel in order]
    if stage.form == "circulant":
        found = _circulant(stage, outputs, manifest.step)
    else:
        found = _by_head(stage, heads, outputs, order)
        if stage.per_channel:
            found["channels"] = names
            found["axes"].insert(0, "channel")
    return answer | {
        "shape": found["weights"].shape,
        **found,
        "query": labels(stage.query, timeline, names),
        "key": labels(stage.key, timeline, names),
    }


def _circulant(stage: AttentionStage, outputs: Arrays, frequency: Frequency) -> dict[str, Any]:
    lags = outputs[stage.part("lags")]
    lag_weights = outputs[stage.part("lag_weights")]
    return {
        "axes": ["query", "key"],
        "weights": circulant(lags, lag_weights, stage.query.length),
        "lags": lags,
        "lag_durations": [duration(int(lag) * stage.query.stride, frequency) for lag in lags],
        "lag_weights": lag_weights,
        "correlation": outputs[stage.part("correlation")],
    }


def _by_head(
    stage: AttentionStage, heads: Heads, outputs: Arrays, order: list[int]
) -> dict[str, Any]:
    """A dense or sparse map of the heads, its channels in the order of the request."""
    length = stage.key.length
    weights = outputs[stage.part("weights")]
    keys = outputs[stage.part("keys")] if stage.form == "sparse" else None
    if keys is not None:
        keys = np.where((keys >= 0) & (keys < length), keys, -1)
    found: dict[str, Any] = {}
    positions: dict[int, list[int]] = {}
    if heads == "mean":
        # Each head of a sparse map has keys of its own: together they may have any.
        weights = weights.mean(axis=-3) if keys is None else mean_map(keys, weights, length)
        keys = None
        found |= {"form": "dense", "axes": ["query", "key"]}
    else:
        found["axes"] = ["head", "query", "key" if keys is None else "kept"]
        found["heads"] = positions[-3] = list(range(stage.heads) if heads == "all" else heads)
    if stage.per_channel:
        positions[0] = order
    if stage.query.of == "channels":
        positions[-2] = _ordered(stage.query, order)
    if stage.key.of == "channels":
        along = _ordered(stage.key, order)
        if keys is None:
            positions[-1] = along
        else:
            # At the end, where -1 looks, it stays one.
            keys = np.append(np.argsort(along), -1)[keys]
    for axis, chosen in positions.items():
        weights = weights.take(chosen, axis)
        keys = None if keys is None else keys.take(chosen, axis)
    if keys is not None:
        found["keys"] = np.ascontiguousarray(keys)
    return found | {"weights": np.ascontiguousarray(weights)}


def _ordered(axis: Axis, order: list[int]) -> list[int]:
    """The positions of an axis, those of the channels in their order."""
    return [*order, *range(len(order), axis.length)]


def circulant(
    lags: NDArray[np.int64], lag_weights: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    """A circulant map.

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


def mean_map(
    keys: NDArray[np.int64], weights: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    """The mean over the heads of a sparse map.

    Args:
        keys: `[…, heads, query, k]`; -1 is none.
        weights: The same shape.
        length: How many keys there are.

    Returns:
        `[…, query, key]`.
    """
    *lead, heads, queries, _ = keys.shape
    rows = np.arange(math.prod(lead) * queries).reshape(*lead, 1, queries, 1)
    # What is of no key goes into a column more.
    cells = rows * (length + 1) + np.where(keys < 0, length, keys)
    sums = np.bincount(cells.ravel(), weights.ravel(), rows.size * (length + 1))
    maps = sums.reshape(*lead, queries, length + 1)[..., :length].astype(np.float32)
    return maps / np.float32(heads)


def labels(axis: Axis, timeline: Timeline | None, channels: Sequence[str]) -> list[Label]:
    """What each position of an axis stands for.

    A position of one step has one label, a patch has `start` and `end`, its first and its last
    step; channels have names, landmarks and clusters numbers, and padding has None.

    Args:
        axis: The axis.
        timeline: When the steps of the input are, if it said so.
        channels: Their names, in the order of the positions.
    """
    count = axis.length - axis.padding
    padding = [None] * axis.padding
    if not axis.in_time:
        return [*(channels if axis.of == "channels" else range(count)), *padding]
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
    return found + padding


def duration(lag: int, frequency: Frequency) -> str | None:
    """A lag as an ISO 8601 duration; None for business days, half months and parts of seconds."""
    units = lag * frequency.multiple
    if frequency.unit is Unit.QUARTER:
        return _DURATIONS[Unit.MONTH].format(3 * units)
    form = _DURATIONS.get(frequency.unit)
    return None if form is None else form.format(units)


def _values(stage: AttentionStage, heads: Heads, channels: int) -> int:
    if stage.form == "none":
        return 0
    if stage.form == "circulant":
        return stage.query.length * stage.key.length
    if heads == "mean":
        return (channels if stage.per_channel else 1) * stage.query.length * stage.key.length
    own = sum(stage.sizes[name] for name in stage.evidence) // stage.heads
    return own * (stage.heads if heads == "all" else len(heads))


def _layer(stage: AttentionStage) -> int:
    """The number in a name such as `encoder.0.self`."""
    return next((int(part) for part in stage.name.split(".") if part.isdecimal()), 0)
