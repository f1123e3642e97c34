"""Gauges of a ledger, without a ledger."""

from __future__ import annotations

from collections.abc import Iterator

from foretell.service.ledger.gauges import Recent, Waiting, write

_SCORES = ("mae", "mase", "bias_ratio", "coverage")


def ledger_gauges() -> Iterator[bytes]:
    """All of them in Prometheus' text format, with a sample for each combination of labels."""
    recent = Recent({("m", "1", "day"): dict.fromkeys(_SCORES, 1.0)}, {("m", "1"): 0})
    return write(recent, Waiting(0, 0, 1), up=True)
