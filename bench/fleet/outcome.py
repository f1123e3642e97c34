"""What came of requests, in a simulation or of real servers."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import nan
from statistics import fmean


@dataclass
class Outcome:
    """What came of them.

    Attributes:
        seconds: Of each request that was answered, until its answer was there.
        refused: How many found no room in a queue.
        batches: Windows of each run.
        span: Seconds from the first request to the last answer.
    """

    seconds: list[float] = field(default_factory=list)
    refused: int = 0
    batches: list[int] = field(default_factory=list)
    span: float = 0.0

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the answered was answered; nan of none."""
        ranked = sorted(self.seconds)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else nan

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.span if self.span else nan

    @property
    def batch(self) -> float:
        """Windows of a run, on average."""
        return fmean(self.batches) if self.batches else nan

    @property
    def refused_share(self) -> float:
        """Of all requests."""
        return self.refused / max(1, self.refused + len(self.seconds))
