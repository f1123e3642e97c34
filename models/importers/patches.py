"""Stride and padding of PatchTST, from the number of patches its file tells."""

from __future__ import annotations

from foretell.models.importers.arguments import Facts, Known
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.sources import CodeBase

_ORIGIN = "the file's number of patches"


def complete_patches(facts: Facts, patches: int | None, code: CodeBase) -> None:
    """Add `stride` and `padding_patch` where only one of each gives the number of patches.

    Args:
        facts: What is known; `seq_len` and `patch_len` are needed, or nothing is added.
        patches: Tokens of a channel.
        code: The code base.

    Raises:
        ImporterError: no stride and padding give this number.
    """
    if patches is None or not {"seq_len", "patch_len"} <= facts.keys():
        return
    context, patch = int(facts["seq_len"].value), int(facts["patch_len"].value)
    strides = [int(facts["stride"].value)] if "stride" in facts else range(1, context + 1)
    paddings = [facts["padding_patch"].value] if "padding_patch" in facts else ["end", "None"]
    possible = [
        (stride, padding)
        for stride in strides
        for padding in paddings
        if (context - patch) // stride + 1 + (padding == "end") == patches
    ]
    if not possible:
        stated = ", ".join(
            f"{name} {facts[name].value} ({facts[name].origin})"
            for name in ("seq_len", "patch_len", "stride", "padding_patch")
            if name in facts
        )
        raise ImporterError(
            f"contradictions: the file has {patches} patches, which {stated} rule out"
        )
    usual = [choice for choice in possible if choice[0] == code.stride]
    if len(possible) > 1 and len(usual) == 1:
        facts.setdefault("stride", Known(usual[0][0], f"fixed in {code.name}"))
        return
    for name, values in (
        ("stride", {stride for stride, _ in possible}),
        ("padding_patch", {padding for _, padding in possible}),
    ):
        if len(values) == 1:
            facts.setdefault(name, Known(values.pop(), _ORIGIN))
