from __future__ import annotations

import pytest

from bench.server import in_turns, middle, part_of
from bench.serving.load import Load


def test_the_loop_and_servers_take_turns() -> None:
    done: list[tuple[str, int]] = []

    def part(name: str) -> int:
        return len([each for each, _ in done if each == name])

    def loop(span: int) -> int:
        done.append(("loop", span))
        return part("loop")

    def server(span: int) -> int:
        done.append(("server", span))
        return 10 * part("server")

    assert in_turns([loop, server], 6) == [[1, 2, 3], [10, 20, 30]]
    assert done == [("loop", 2), ("server", 2)] * 3


def test_medians_of_turns() -> None:
    turns = [Load(50, 1, 2, 0), Load(30, 3, 4, 2), Load(100, 5, 6, 1)]
    assert middle(turns) == Load(50, 1, 2, failed=3)
    assert part_of([100.0, 50.0, 400.0], turns) == pytest.approx(0.5)
