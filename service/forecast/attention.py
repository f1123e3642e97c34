"""Attention on request: the requested stages, their size, and their part of the answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.attention import AttentionStage, Axis
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.requests import AttentionOptions
from foretell.service.forecast.times import Timeline
from foretell.service.validation import shown
from foretell.timeaxis.frequency import Frequency, Unit

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
    """The requested attention: stages, and all heads, their mean, or some of them."""

    stages: tuple[AttentionStage, ...]
    heads: Heads

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs of the graph that the answer needs."""
        return tuple(name for stage in self.stages for name in stage.evidence)

    def values(self, channels: int) -> int:
        """Most weights, and keys of sparse maps, in the answer for one input."""
        return sum(_values(stage, self.heads, channels) for stage in self.stages)


def select(options: AttentionOptions, manifest: Manifest, path: str) -> Selection:
    """Resolve stage names, layer and head numbers; stages without a map must be named.

    NotSupportedError: the model has no stage, or no stage with a map and the request names none.
    InvalidInputError: the model lacks a name or number.
    """
    has_maps = any(stage.form != "none" for stage in manifest.attention)
    if not manifest.attention or (options.stages is None and not has_maps):
        raise NotSupportedError(f"{manifest.name} has no attention maps", param=path)
    stages = {stage.name: stage for stage in manifest.attention}
    for index, name in enumerate(options.stages or ()):
        if name not in stages:
            raise InvalidInputError(
                f"expected one of {', '.join(stages)}, got {name[:60]!r}",
                param=f"{path}.stages[{index}]",
            )
    layers = {_layer(stage) for stage in manifest.attention}
    for index, layer in enumerate(options.layers or ()):
        if layer not in layers:
            raise InvalidInputError(
                f"expected one of the layers {', '.join(map(str, sorted(layers)))}",
                param=f"{path}.layers[{index}]",
            )
    chosen = tuple(
        stage
        for stage in manifest.attention
        if (stage.form != "none" if options.stages is None else stage.name in options.stages)
        and (options.layers is None or _layer(stage) in options.layers)
    )
    if not chosen:
        raise InvalidInputError("stages and layers together select nothing", param=path)
    return Selection(chosen, _select_heads(options.heads, chosen, f"{path}.heads"))


def _select_heads(given: object, stages: tuple[AttentionStage, ...], path: str) -> Heads:
    if given in ("all", "mean"):
        return cast("Heads", given)
    if not isinstance(given, list) or not given:
        raise InvalidInputError(
            f"expected 'all', 'mean' or a list of head numbers, got {shown(given)}", param=path
        )
    # A circulant map covers all heads together.
    counts = [stage.heads for stage in stages if stage.form in ("dense", "sparse")]
    count = min(counts, default=None)
    for index, head in enumerate(given):
        if type(head) is not int or head < 0 or (count is not None and head >= count):
            heads = "" if count is None else f", of which every selected stage has {count}"
            raise InvalidInputError(
                f"expected a head by its number from 0{heads}, got {shown(head)}",
                param=f"{path}[{index}]",
            )
    if len(set(given)) < len(given):
        raise InvalidInputError("a head is given twice", param=path)
    return tuple(given)


def describe(
    selection: Selection,
    outputs: Arrays,
    timeline: Timeline | None,
    manifest: Manifest,
    columns: list[int] | None,
) -> list[dict[str, Any]]:
    """The attention of one input, for the answer; the outputs have no batch axis."""
    # The model's channel of each column of the input.
    order = columns or list(range(len(manifest.channels)))
    names = manifest.channels
    described: list[dict[str, Any]] = []
    for stage in selection.stages:
        answer: dict[str, Any] = {"name": stage.name, "kind": stage.mechanism, "form": stage.form}
        described.append(answer)
        if stage.form == "none":
            continue
        if stage.form == "circulant":
            weighted = _circulant(stage, outputs, manifest.step)
        else:
            weighted = _by_head(stage, selection.heads, outputs, order)
            if stage.per_channel:
                weighted["channels"] = [names[place] for place in _chosen(stage.places, order)]
                weighted["axes"].insert(0, "channel")
        answer |= {"shape": weighted["weights"].shape, **weighted}
        for side, axis in (("query", stage.query), ("key", stage.key)):
            channels = [names[place] for place in _chosen(axis.places, order)]
            answer[side] = labels(axis, timeline, channels)
    return described


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
    """A dense or sparse map of the heads, with channels in the order of the request."""
    length = stage.key.length
    weights = outputs[stage.part("weights")]
    keys = outputs[stage.part("keys")] if stage.form == "sparse" else None
    if keys is not None:
        keys = np.where((keys >= 0) & (keys < length), keys, -1)
    found: dict[str, Any] = {}
    positions: dict[int, list[int]] = {}
    if heads == "mean":
        # The heads of a sparse map have different keys: their mean may have any key.
        weights = weights.mean(axis=-3) if keys is None else mean_map(keys, weights, length)
        keys = None
        found |= {"form": "dense", "axes": ["query", "key"]}
    else:
        found["axes"] = ["head", "query", "key" if keys is None else "kept"]
        found["heads"] = positions[-3] = list(range(stage.heads) if heads == "all" else heads)
    if stage.per_channel:
        positions[0] = _ordered(stage.places, order)
    if stage.query.of == "channels":
        positions[-2] = _along(stage.query, order)
    if stage.key.of == "channels":
        along = _along(stage.key, order)
        if keys is None:
            positions[-1] = along
        else:
            # -1 stands for no key; it indexes the end, where it stays -1.
            keys = np.append(np.argsort(along), -1)[keys]
    for axis, chosen in positions.items():
        weights = weights.take(chosen, axis)
        keys = None if keys is None else keys.take(chosen, axis)
    if keys is not None:
        found["keys"] = np.ascontiguousarray(keys)
    return found | {"weights": np.ascontiguousarray(weights)}


def _along(axis: Axis, order: list[int]) -> list[int]:
    found = _ordered(axis.places, order)
    return [*found, *range(len(found), axis.length)]


def _chosen(places: tuple[int, ...] | None, order: list[int]) -> list[int]:
    """The channels in the order of the request, or those of them at `places`."""
    return [channel for channel in order if places is None or channel in places]


def _ordered(places: tuple[int, ...] | None, order: list[int]) -> list[int]:
    """Where each of `_chosen` is on its axis."""
    chosen = _chosen(places, order)
    return chosen if places is None else [places.index(channel) for channel in chosen]


def circulant(
    lags: NDArray[np.int64], lag_weights: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    """A circulant map `[query, key]` of `[k]` lags with weights, `length` positions on either axis.

    A weight is `lag_weights[i]` where key - query is `lags[i]` modulo the length.
    """
    weights = np.zeros((length, length), np.float32)
    query = np.arange(length)
    for lag, weight in zip(lags, lag_weights, strict=True):
        weights[query, (query + lag) % length] += weight
    return weights


def mean_map(
    keys: NDArray[np.int64], weights: NDArray[np.float32], length: int
) -> NDArray[np.float32]:
    """The mean `[…, query, key]` over the heads of a sparse map.

    Keys and weights are `[…, heads, query, k]`; a key is below `length`, or -1 for no key.
    """
    *lead, heads, queries, _ = keys.shape
    rows = np.arange(math.prod(lead) * queries).reshape(*lead, 1, queries, 1)
    # Weights without a key go into one more column.
    cells = rows * (length + 1) + np.where(keys < 0, length, keys)
    sums = np.bincount(cells.ravel(), weights.ravel(), rows.size * (length + 1))
    maps = sums.reshape(*lead, queries, length + 1)[..., :length].astype(np.float32)
    return maps / np.float32(heads)


def labels(axis: Axis, timeline: Timeline | None, channels: Sequence[str]) -> list[Label]:
    """The label of each position of an axis.

    A step has one label; a patch has `start` and `end`, its first and last step. They are times if
    there is a timeline, otherwise numbers. Channels have names, in the order of the positions;
    landmarks and clusters have numbers, and padding has None.
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
