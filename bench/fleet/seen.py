"""What a row of the page says, of real servers or of a simulation."""

from __future__ import annotations

from dataclasses import dataclass

from bench.fleet.outcome import Outcome


@dataclass(frozen=True)
class Seen:
    """What was seen.

    Attributes:
        rate: Answers a second.
        p50: Median seconds of the answered.
        p99: Their 99th percentile.
        batch: Windows of a run, on average.
        refused: Part of all requests that found no room.
    """

    rate: float
    p50: float
    p99: float
    batch: float
    refused: float

    @classmethod
    def of(cls, outcome: Outcome, batch: float | None = None) -> Seen:
        """Of an outcome, whose batches may be known on average alone."""
        return cls(
            outcome.rate,
            outcome.percentile(0.5),
            outcome.percentile(0.99),
            outcome.batch if batch is None else batch,
            outcome.refused_share,
        )
