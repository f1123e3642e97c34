"""Timing several contenders against each other on a machine that is not idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from statistics import median
from typing import TypeVar

Name = TypeVar("Name")
Call = Callable[[], object]
Clock = Callable[[], float]

# Seconds a contender runs before it is the next one's turn, and the fewest turns each gets.
_TURN = 0.06
_FEWEST_TURNS = 3


def interleaved_medians(
    calls: Mapping[Name, Call], seconds: float, clock: Clock = time.perf_counter
) -> dict[Name, float]:
    """Median seconds of one call of each contender, taken in turns.

    In turns, because another process or the clock of the CPU would hit one contender and not the
    other. The first call of a turn is not counted: it finds the caches full of the one before.

    Args:
        calls: By name.
        seconds: For all of them together; each gets a few turns in any case.
        clock: What the calls are timed with.
    """
    times: dict[Name, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    turns = 0
    while turns < _FEWEST_TURNS or time.perf_counter() < end:
        for name, call in calls.items():
            call()
            times[name] += _turn(call, clock)
        turns += 1
    return {name: median(found) for name, found in times.items()}


def _turn(call: Call, clock: Clock) -> list[float]:
    found: list[float] = []
    while sum(found) < _TURN:
        start = clock()
        call()
        found.append(clock() - start)
    return found
