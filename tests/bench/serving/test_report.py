from __future__ import annotations

import math

from bench.serving.contenders import OURS
from bench.serving.load import Load
from bench.serving.report import compared
from bench.serving.result import CONNECTIONS, Raw, Result, Served


def served(rate: float, p99: float, memory: int) -> Served:
    turns = [Load(rate, 0.0, p99, 0)] * 3
    return Served(
        turns=dict.fromkeys(CONNECTIONS, turns), memory=memory, large_turns=[4 * rate] * 3
    )


def test_measures_are_compared_turn_by_turn() -> None:
    raw = Raw(math.nan, math.nan)
    names = OURS, f"{OURS} abc"
    one = Result("one", raw, dict(zip(names, (served(98, 1, 9), served(100, 1, 9)), strict=True)))
    two = Result("two", raw, dict(zip(names, (served(96, 2, 9), served(100, 1, 6)), strict=True)))
    # Without its peer of before nothing is compared.
    three = Result("three", raw, {OURS: served(1, 1, 1)})
    assert compared([one, two, three], "abc").splitlines()[2:] == [
        "| model | server | 1: req/s | 16: req/s | 64: req/s | 256 series | 64: p99 | memory |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        "| one | foretell | 0.980 | 0.980 | 0.980 (reached: 0.97) | 0.980 (reached: 0.97) "
        "| 1.000 (reached: 1.05) | 1.000 (reached: 1.0) |",
        "| two | foretell | 0.960 | 0.960 | 0.960 (missed: 0.97) | 0.960 (missed: 0.97) "
        "| 2.000 (missed: 1.05) | 1.500 (missed: 1.0) |",
    ]
