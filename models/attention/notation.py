"""Mechanisms in short notation: `softmax`, `local,softmax`, `local:2,softmax:2`."""

from __future__ import annotations

from typing import Any


def read_notation(text: str) -> list[dict[str, Any]]:
    """The mechanism of each layer, as fields of configs, or one for all.

    Args:
        text: A name. Names with a `+` between them are joined within each head. A number after a
            colon is the number of heads; several such groups, separated by commas, share the heads
            of a layer. Layers are separated by semicolons, or by commas where no heads are shared.

    Raises:
        ValueError: a number of heads is not a number, or is missing.
    """
    if ";" not in text and ":" not in text:
        return [_joined(layer) for layer in text.split(",")]
    return [_mixed(layer) for layer in text.split(";")]


def _mixed(layer: str) -> dict[str, Any]:
    if ":" not in layer:
        return _joined(layer)
    groups = []
    for group in layer.split(","):
        name, _, heads = group.partition(":")
        if not heads.strip().isdecimal():
            raise ValueError(f"expected heads after a colon in {group.strip()!r}")
        groups.append({"heads": int(heads), "attention": _joined(name)})
    if len(groups) == 1:
        raise ValueError(f"expected several groups of heads in {layer.strip()!r}")
    return {"mechanism": "mixture", "groups": groups}


def _joined(layer: str) -> dict[str, Any]:
    parts = [{"mechanism": name.strip()} for name in layer.split("+")]
    return parts[0] if len(parts) == 1 else {"mechanism": "union", "patterns": parts}
