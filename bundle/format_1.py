"""Manifests of the format before, which named the mechanism of an attention and left the rest."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ValidationInfo

from foretell.bundle.attention import AttentionStage, Axis, Form, Positive, stage
from foretell.bundle.part import Part

_FORMS: dict[str, Form] = {"softmax": "dense", "autocorrelation": "circulant"}


def upgrade(fields: dict[str, Any]) -> dict[str, Any]:
    """The fields of a manifest of format 1 as format 2 has them.

    Raises:
        ValidationError: its stages are none of that format; the places are the manifest's.
    """
    # A CPU has no kernels for bfloat16.
    devices = ("cuda",) if fields.get("precision") == "bfloat16" else ("cuda", "cpu")
    attention = _Attention.model_validate(fields).attention
    return fields | {"format": 2, "devices": devices, "attention": attention}


def _axis(fields: object) -> object:
    if isinstance(fields, dict):
        return fields | {"of": "steps" if fields.get("width", 1) == 1 else "patches"}
    return fields


class _Stage(Part):
    name: str
    kind: Literal["softmax", "autocorrelation"]
    heads: Positive
    query: Annotated[Axis, BeforeValidator(_axis)]
    key: Annotated[Axis, BeforeValidator(_axis)]
    per_channel: bool = False


def _stage(fields: object, info: ValidationInfo) -> AttentionStage:
    old = _Stage.model_validate(fields)
    return stage(
        old.name,
        old.kind,
        _FORMS[old.kind],
        old.heads,
        old.query,
        old.key,
        channels=len(info.data.get("channels", ())) if old.per_channel else None,
    )


class _Attention(BaseModel):
    channels: tuple[str, ...]
    attention: tuple[Annotated[AttentionStage, BeforeValidator(_stage)], ...]
