from __future__ import annotations

from tests.support.trained import bundles, checkpoints, data, every_mechanism, in_turn

__all__ = ["bundles", "checkpoints", "data", "every_mechanism", "in_turn"]
