from __future__ import annotations

from tests.support.trained import bundles, checkpoints, data, in_turn

__all__ = ["bundles", "checkpoints", "data", "in_turn"]
