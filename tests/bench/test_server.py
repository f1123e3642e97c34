from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.server import in_turns
from bench.serving.load import Load


def test_the_loop_and_a_server_take_turns() -> None:
    spans: list[float] = []
    rates: Iterator[float] = iter((100.0, 50.0, 400.0))

    def loop(span: float) -> float:
        spans.append(span)
        return next(rates)

    loads = iter((Load(50, 1, 2, 0), Load(30, 3, 4, 2), Load(100, 5, 6, 1)))
    found, share = in_turns(lambda span: next(loads), loop, 6)
    assert found == Load(50, 1, 2, failed=3)
    assert share == pytest.approx(0.5)
    assert spans == [2, 2, 2]
