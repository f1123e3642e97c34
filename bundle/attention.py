"""Attention evidence: the forms of it that a server can show.

A server knows forms and axes, not mechanisms, so it also serves new mechanisms.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from foretell.bundle.part import Part

Positive = Annotated[int, Field(ge=1)]
# Safe in log lines, in labels of metrics and on pages.
Label = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9 ._+-]{0,63}$")]
# Places among the channels of a model.
Places = tuple[Annotated[int, Field(ge=0)], ...]
Form = Literal["dense", "circulant", "sparse", "none"]
Positions = Literal["steps", "patches", "channels", "landmarks", "clusters"]
ElementType = Literal["float32", "int64"]

# Outputs of each form, with types and axes. The name of the stage precedes their names.
_ROWS = ("channels", "heads", "query")
_PARTS: dict[Form, dict[str, tuple[ElementType, tuple[str, ...]]]] = {
    "dense": {"weights": ("float32", (*_ROWS, "key"))},
    "circulant": {
        "lags": ("int64", ("kept",)),
        "lag_weights": ("float32", ("kept",)),
        "correlation": ("float32", ("candidates",)),
    },
    "sparse": {"keys": ("int64", (*_ROWS, "kept")), "weights": ("float32", (*_ROWS, "kept"))},
    "none": {},
}


class Axis(Part):
    """The meaning of the positions on an attention axis.

    Position `i` of `steps` or `patches` covers `width` steps from `start + i * stride`. Steps count
    from the first forecast step, which is 0; history is negative. From `end` on, if given, the
    model repeats the step before `end`. Positions of `steps` have width 1. Position `i` of
    `channels` is channel `i`, or channel `places[i]`. Landmarks and clusters have numbers only.
    These three have no steps. The last `padding` positions are filler, such as zeros that the model
    appends.
    """

    of: Positions = "steps"
    length: Positive
    start: int = 0
    stride: Positive = 1
    width: Positive = 1
    end: int | None = None
    padding: Annotated[int, Field(ge=0)] = 0
    places: Places | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.padding >= self.length:
            raise ValueError(f"padding: expected less than the length, {self.length}")
        if self.places is not None:
            if self.of != "channels" or len(self.places) != self.length - self.padding:
                raise ValueError("places: expected one for each channel of the axis")
            _check_places(self.places)
        if self.in_time:
            if self.of == "steps" and self.width != 1:
                raise ValueError("width: steps have 1, patches may have more")
            if self.end is not None and self.end <= self.start:
                raise ValueError("end: expected to come after the start")
        elif (self.start, self.stride, self.width, self.end) != (0, 1, 1, None):
            raise ValueError(f"of: {self.of} have no start, stride, width and end")
        return self

    @property
    def in_time(self) -> bool:
        """Whether the positions are steps or patches."""
        return self.of in ("steps", "patches")


def _check_places(places: Places) -> None:
    if sorted(set(places)) != list(places):
        raise ValueError("places: expected channels in their order, each once")


class Output(Part):
    """An output of `explain.onnx`.

    Attributes:
        name: `<stage>.<part>`.
        type: Type of the elements.
        shape: Lengths of the axes after the batch; None for a length that is not recorded.
    """

    name: str
    type: ElementType
    shape: tuple[Positive | None, ...]


class Choice(Part):
    """A discrete choice of a mechanism, such as the lags that it keeps: rounding may decide it.

    The mechanism chooses the largest scores along the last axis.

    Attributes:
        chosen: Name of the output with the chosen indices, `[batch, …, kept]`.
        scores: Name of the output with the scores, `[batch, …, candidates]`, all finite.
    """

    chosen: str
    scores: str


class AttentionStage(Part):
    """One attention of a model and the outputs of `explain.onnx` for it.

    The form defines the outputs. Their names begin with the name of the stage:

    - `dense`: `weights` `[batch, heads, query, key]`.
    - `circulant`: `lags` and `lag_weights` `[batch, k]` and `correlation` `[batch, lags]`, the same
      for all heads and channels; the map has `lag_weights[i]` where key - query = `lags[i]` (modulo
      the length). Both axes have steps, or patches, of one length and stride.
    - `sparse`: `keys` and `weights` `[batch, heads, query, k]`: the map has `weights[…, i]` at key
      `keys[…, i]`; entries whose key does not exist, such as -1, are ignored.
    - `none`: the mechanism has no map.

    With `per_channel`, dense and sparse outputs have a channels axis after the batch, of all
    channels or of those in `places`. The lengths `lags` and `k` may be None. Other outputs are the
    indices and scores of choices.

    Attributes:
        name: Name of the stage, such as `encoder.0.self`.
        mechanism: Name of the mechanism, for the reader.
        form: See above.
        heads: Number of attention heads.
        query: Axis of the queries.
        key: Axis of the keys.
        per_channel: Whether each channel attends by itself.
        places: See above; None for all channels.
        outputs: See above.
        choices: Discrete choices of the mechanism.
    """

    name: Label
    mechanism: Label
    form: Form
    heads: Positive
    query: Axis
    key: Axis
    per_channel: bool = False
    places: Places | None = None
    outputs: tuple[Output, ...]
    choices: tuple[Choice, ...] = ()

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if len(set(self.output_names)) != len(self.outputs):
            raise ValueError("outputs: names are not unique")
        if not all(name.startswith(self.part("")) for name in self.output_names):
            raise ValueError(f"outputs: expected names that begin with {self.part('')}")
        if self.per_channel and (self.form == "circulant" or self.query.of == "channels"):
            raise ValueError("per_channel: this stage has one map for all channels")
        if self.places is not None:
            if not self.per_channel:
                raise ValueError("places: this stage has one map for all channels")
            _check_places(self.places)
        if self.form == "circulant":
            query, key = ((axis.of, axis.length, axis.stride) for axis in (self.query, self.key))
            if query != key or not self.query.in_time:
                raise ValueError("key: expected steps or patches, of query's length and stride")
        self._check_parts()
        self._check_choices()
        return self

    def _check_parts(self) -> None:
        found = {output.name: output for output in self.outputs}
        sizes: dict[str, int | None] = {
            "heads": self.heads,
            "query": self.query.length,
            "key": self.key.length,
        }
        for name, (kind, axes) in _PARTS[self.form].items():
            output = found.get(self.part(name))
            if output is None or output.type != kind:
                raise ValueError(f"outputs: {self.part(name)} of {kind} is missing")
            axes = axes if self.per_channel else tuple(axis for axis in axes if axis != "channels")
            wanted = [
                sizes.setdefault(axis, size) for axis, size in zip(axes, output.shape, strict=False)
            ]
            if list(output.shape) != wanted or len(axes) != len(wanted):
                raise ValueError(f"outputs: the shape of {output.name} is not [{', '.join(axes)}]")

    def _check_choices(self) -> None:
        found = {output.name: (output.type, output.shape) for output in self.outputs}
        for choice in self.choices:
            chosen, indices = found.get(choice.chosen, (None, ()))
            scores, candidates = found.get(choice.scores, (None, ()))
            if (chosen, scores) != ("int64", "float32"):
                raise ValueError(
                    f"choices: expected outputs {choice.chosen} in int64 and {choice.scores} in "
                    "float32"
                )
            if not indices or len(indices) != len(candidates) or indices[:-1] != candidates[:-1]:
                raise ValueError(f"choices: {choice.chosen} and {choice.scores} differ in shape")

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return tuple(output.name for output in self.outputs)

    @property
    def evidence(self) -> tuple[str, ...]:
        """Names of the outputs of the form, without further outputs for choices."""
        return tuple(self.part(name) for name in _PARTS[self.form])

    @property
    def sizes(self) -> dict[str, int]:
        """The most values that each output has for a window, by name.

        An axis of unknown length counts as long as the key axis, since it selects keys.
        """
        return {
            output.name: math.prod(size or self.key.length for size in output.shape)
            for output in self.outputs
        }

    def part(self, name: str) -> str:
        """The full name of an output, such as `weights`."""
        return f"{self.name}.{name}"


def stage(
    name: str,
    mechanism: str,
    form: Form,
    heads: int,
    query: Axis,
    key: Axis,
    *,
    kept: int | None = None,
    candidates: int | None = None,
    channels: int | None = None,
    places: Places | None = None,
    choice: tuple[tuple[int, ...], tuple[int, ...]] | None = None,
) -> AttentionStage:
    """A stage with the outputs of its form.

    Args:
        name: See `AttentionStage`, like the five after it.
        mechanism: See above.
        form: See above.
        heads: See above.
        query: See above.
        key: See above.
        kept: Number of lags in a circulant map, or of keys per query in a sparse one.
        candidates: Number of lags that a circulant map chooses from.
        channels: Number of channels, where each attends by itself.
        places: Places of these channels among all; None for all.
        choice: Shapes of the further outputs `chosen` (indices) and `scores`, without batch and
            channels.

    Raises:
        ValidationError: the arguments contradict each other.
    """
    sizes = {
        "channels": channels,
        "heads": heads,
        "query": query.length,
        "key": key.length,
        "kept": kept,
        "candidates": candidates,
    }
    outputs = [
        Output(
            name=f"{name}.{part}",
            type=kind,
            shape=tuple(sizes[axis] for axis in axes if axis != "channels" or channels is not None),
        )
        for part, (kind, axes) in _PARTS[form].items()
    ]
    choices = []
    if form == "circulant":
        choices.append(Choice(chosen=f"{name}.lags", scores=f"{name}.correlation"))
    if choice is not None:
        rows = () if channels is None else (channels,)
        chosen, scores = (rows + shape for shape in choice)
        choices.append(Choice(chosen=f"{name}.chosen", scores=f"{name}.scores"))
        outputs.append(Output(name=f"{name}.chosen", type="int64", shape=chosen))
        outputs.append(Output(name=f"{name}.scores", type="float32", shape=scores))
    return AttentionStage(
        name=name,
        mechanism=mechanism,
        form=form,
        heads=heads,
        query=query,
        key=key,
        per_channel=channels is not None,
        places=places,
        outputs=tuple(outputs),
        choices=tuple(choices),
    )
