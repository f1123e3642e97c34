"""When requests come."""

from __future__ import annotations

from random import Random


def poisson(rate: float, count: int, random: Random) -> list[float]:
    """Of many callers who know nothing of each other: `count` times in seconds, from 0."""
    times, now = [], 0.0
    for _ in range(count):
        now += random.expovariate(rate)
        times.append(now)
    return times
