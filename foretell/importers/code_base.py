"""How a source file describes published code that saves a state_dict alone."""

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
    """An architecture, as the code has it.

    Attributes:
        keys: Its keys, in the form that a checkpoint has them in.
        stored: The arguments that are read from a checkpoint, given the others that are known.
        fields: The arguments it depends on, in the order to show them, and the field of our
            configuration that takes each as it stands; None where `configure` reads it.
        configure: Fields that no argument gives as it stands.
        prepare: The weights, changed where the code computes with them otherwise.
    """

    keys: Callable[[State], KeyMap]
    stored: Callable[[State, Values], Values]
    fields: Mapping[str, str | None]
    configure: Callable[[Values], dict[str, Any]] = lambda _: {}
    prepare: Callable[[State, Values], State] = lambda state, _: state


class CodeBase(NamedTuple):
    """A code base.

    Attributes:
        title: What to call it.
        architectures: Those that are read, by our names.
        defaults: Values of options that a command leaves out.
        fixed: Arguments that its code fixes, given the others.
        target_last: Whether it moves the target to the last channel of custom data.
    """

    title: str
    architectures: Mapping[str, Architecture]
    defaults: Values
    fixed: Callable[[Values], Values]
    target_last: bool = True


def has(state: State, part: str) -> bool:
    """Whether a key contains this."""
    return any(part in key for key in state)


def sizes(state: State, places: Mapping[str, tuple[str, int]]) -> dict[str, int]:
    """Arguments that are the length of an axis of a key.

    Raises:
        ImporterError: a key is missing, or has no such axis.
    """
    for name, (key, axis) in places.items():
        if key not in state:
            raise ImporterError(f"{key} is missing, which determines {name}")
        if state[key].ndim <= axis:
            raise ImporterError(f"{key} has {state[key].ndim} axes, which should determine {name}")
    return {name: state[key].shape[axis] for name, (key, axis) in places.items()}


def numbers(state: State, template: str) -> int:
    """How many different numbers keys have in place of `#`."""
    pattern = re.compile(re.escape(template).replace(r"\#", r"(\d+)"))
    return len({found[1] for key in state if (found := pattern.match(key))})


def count_patches(values: Values) -> int:
    """The number of patches that the published code makes."""
    gap = values["seq_len"] - values["patch_len"]
    return int(gap // values["stride"]) + 1 + int(values["padding_patch"] == "end")


def steps_of_patches(patches: int, values: Values) -> dict[str, Argument]:
    """`stride` and `padding_patch`, where only one of each gives this number of patches.

    Args:
        patches: What the checkpoint has.
        values: What is known; without `seq_len` nothing can be found.

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
