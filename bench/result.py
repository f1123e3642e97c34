"""What was measured."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from bench.sizes import Size

BATCHES = (1, 8, 32)
MEMORY_BATCH = 32
# Of the distance from the floor, and of what the time goes into.
FLOOR_BATCH = 8


@dataclass
class Result:
    """What was measured of one model.

    Attributes:
        size: The model.
        flops: Of the matrix products of one window in our form.
        rate: Floating-point operations a second of a large matrix product, meanwhile.
        seconds: By batch, then by contender.
        memory: MiB by contender.
        shares: Share of our graph's time by group of operators.
        skipped: Reason by contender.
    """

    size: Size
    flops: float
    rate: float = math.nan
    seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
