"""Descriptions of published code that saves a plain state_dict."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from torch import Tensor

from foretell.importers.arguments import Argument, Values
from foretell.importers.errors import ImporterError
from foretell.importers.keys import KeyMap

State = Mapping[str, Tensor]


class Architecture(NamedTuple):
    """An architecture of published code.

    Attributes:
        keys: Returns the keys of a checkpoint.
        stored: Returns the arguments that a checkpoint determines, given other known ones.
        fields: Arguments that the model depends on, in display order, each with the field of our
            configuration that takes it unchanged; None where `configure` reads it.
        configure: Returns the other fields of our configuration.
        prepare: Returns the weights, converted where the published code uses them differently.
    """

    keys: Callable[[State], KeyMap]
    stored: Callable[[State, Values], Values]
    fields: Mapping[str, str | None]
    configure: Callable[[Values], dict[str, Any]] = lambda _: {}
    prepare: Callable[[State, Values], State] = lambda state, _: state


class CodeBase(NamedTuple):
    """A code base.

    Attributes:
        title: Name of the code base, for messages.
        architectures: Supported architectures, by our names.
        defaults: Values of options that a command leaves out.
        fixed: Returns the arguments that the code fixes, given the others.
        target_last: Whether the code moves the target to the last channel of custom data.
    """

    title: str
    architectures: Mapping[str, Architecture]
    defaults: Values
    fixed: Callable[[Values], Values]
    target_last: bool = True


def has(state: State, part: str) -> bool:
    """Whether a key contains `part`."""
    return any(part in key for key in state)


def sizes(state: State, places: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Arguments that are the length of an axis of a tensor.

    Raises:
        ImporterError: a key is missing, or its tensor lacks the axis.
    """
    for name, (key, axis) in places.items():
        if key not in state:
            raise ImporterError(f"{key} is missing, which determines {name}")
        if state[key].ndim <= axis:
            raise ImporterError(f"{key} has {state[key].ndim} axes, which should determine {name}")
    return {name: state[key].shape[axis] for name, (key, axis) in places.items()}


def numbers(state: State, template: str) -> int:
    """The number of distinct numbers that keys have in place of `#`."""
    pattern = re.compile(re.escape(template).replace(r"\#", r"(\d+)"))
    return len({found[1] for key in state if (found := pattern.match(key))})


def count_patches(values: Values) -> int:
    """The number of patches that the published code makes."""
    gap = values["seq_len"] - values["patch_len"]
    return int(gap // values["stride"]) + 1 + int(values["padding_patch"] == "end")


def steps_of_patches(patches: int, values: Values) -> dict[str, Argument]:
    """`stride` and `padding_patch`, if only one value of each gives this number of patches.

    Args:
        patches: Number of patches in the checkpoint.
        values: Known arguments; without `seq_len` the result is empty.

    Raises:
        ImporterError: no stride and padding give this number.
    """
    if "seq_len" not in values:
        return {}
    strides = [values["stride"]] if "stride" in values else range(1, values["seq_len"] + 1)
    paddings = [values["padding_patch"]] if "padding_patch" in values else ["end", "None"]
    possible = [
        {"stride": stride, "padding_patch": padding}
        for stride, padding in itertools.product(strides, paddings)
        if count_patches({**values, "stride": stride, "padding_patch": padding}) == patches
    ]
    if not possible:
        known = ("seq_len", "patch_len", "stride", "padding_patch")
        stated = ", ".join(f"{name} {values[name]}" for name in known if name in values)
        raise ImporterError(
            f"contradictions: the file has {patches} patches, which {stated} rule out"
        )
    usual = [choice for choice in possible if choice["stride"] == values.get("usual_stride")]
    return {
        name: Argument(value, "the file's number of patches")
        for name, value in (usual or possible)[0].items()
        if name not in values and all(each[name] == value for each in usual or possible)
    }
