"""What the parts of manifests and checkpoints are."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Part(BaseModel):
    """A part of a manifest or a checkpoint; it cannot be changed, and has no unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")
