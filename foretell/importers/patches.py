"""Stride and padding of patches, from how many of them a file tells."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.importers.arguments import Argument, Arguments
from foretell.importers.code_base import CodeBase, Values
from foretell.importers.errors import ImporterError

_NAMES = ("seq_len", "patch_len", "stride", "padding_patch")


def count_patches(values: Values) -> int:
    """The number of patches that the published code makes."""
    gap = values["seq_len"] - values["patch_len"]
    return int(gap // values["stride"]) + 1 + int(values["padding_patch"] == "end")


def add_patches(arguments: Arguments, sizes: Mapping[str, int], code: CodeBase) -> None:
    """Add `stride` and `padding_patch` where only one of each gives the number of patches.

    Args:
        arguments: What is known; `seq_len` and `patch_len` are needed, or nothing is added.
        sizes: With `patches`, or with `flattened`, the features of all patches.
        code: The code base.

    Raises:
        ImporterError: no stride and padding give this number.
    """
    patches = sizes.get("patches")
    if patches is None and {"flattened", "d_model"} <= sizes.keys():
        patches = sizes["flattened"] // sizes["d_model"]
    if patches is None or not {"seq_len", "patch_len"} <= arguments.keys():
        return
    values = {name: argument.value for name, argument in arguments.items()}
    strides = [values["stride"]] if "stride" in values else range(1, values["seq_len"] + 1)
    paddings = [values["padding_patch"]] if "padding_patch" in values else ["end", "None"]
    possible = [
        (stride, padding)
        for stride in strides
        for padding in paddings
        if count_patches(values | {"stride": stride, "padding_patch": padding}) == patches
    ]
    if not possible:
        stated = ", ".join(
            f"{name} {arguments[name].value} ({arguments[name].provenance})"
            for name in _NAMES
            if name in arguments
        )
        raise ImporterError(
            f"contradictions: the file has {patches} patches, which {stated} rule out"
        )
    usual = [choice for choice in possible if choice[0] == code.usual.get("stride")]
    if len(possible) > 1 and len(usual) == 1:
        arguments.setdefault("stride", Argument(usual[0][0], f"fixed in {code.title}"))
        return
    for i, name in enumerate(("stride", "padding_patch")):
        fitting = {choice[i] for choice in possible}
        if len(fitting) == 1:
            arguments.setdefault(name, Argument(fitting.pop(), "the file's number of patches"))
