from __future__ import annotations

import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.batching.backlog import Backlog
from foretell.service.batching.room import Room
from foretell.service.batching.work import Work
from tests.service.conftest import Quiet

BYTES = np.zeros(1).nbytes


def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
    raise AssertionError("a backlog runs nothing")


def work(windows: int, graph: str = "g") -> Work:
    return Work(graph, {"x": np.zeros(windows)}, deadline=0.0, submitted=0.0)


@pytest.fixture
def backlog() -> Backlog:
    return Backlog(run, Quiet(), Room(100, 10_000), 4, {"small": 2, "huge": 1000})


def test_a_batch_is_of_one_graph_and_within_its_limit(backlog: Backlog) -> None:
    for graph in ("g", "small", "huge"):
        backlog.add(work(5, graph))
    batches = [backlog.take(1000, now=0.0) for _ in range(3)]
    graphs = [{part.work.graph for part in batch.slices} for batch in batches]
    assert graphs == [{"g"}, {"small"}, {"huge"}]
    assert [batch.windows for batch in batches] == [4, 2, 4]
    assert [batch.lane.max_batch for batch in batches] == [4, 2, 4]
    assert backlog.waiting == 15 - 10
    assert backlog.running == 3


def test_graphs_have_even_shares_of_the_seconds(backlog: Backlog) -> None:
    backlog.add(work(100))
    backlog.add(work(100, "slow"))
    order = []
    for _ in range(10):
        batch = backlog.take(4, now=0.0)
        graph = batch.slices[0].work.graph
        order.append(graph)
        backlog.done(batch, 4.0 if graph == "slow" else 1.0)
    assert order == ["g", "slow", *["g"] * 3, "slow", *["g"] * 4]


def test_what_runs_elsewhere_is_counted_with_what_it_will_take(backlog: Backlog) -> None:
    backlog.add(work(4))
    backlog.add(work(4, "slow"))
    for seconds in (1.0, 8.0):
        backlog.done(backlog.take(4, now=0.0), seconds)
    backlog.add(work(100))
    backlog.add(work(100, "slow"))
    # None of these batches is done.
    order = [backlog.take(4, now=0.0).slices[0].work.graph for _ in range(8)]
    assert order == [*["g"] * 7, "slow"]


def test_knows_how_long_all_of_it_takes(backlog: Backlog) -> None:
    for graph, seconds in (("g", 2.0), ("slow", 8.0)):
        backlog.add(work(4, graph))
        backlog.done(backlog.take(4, now=0.0), seconds)
    assert backlog.seconds() == 0.0
    backlog.add(work(10))
    backlog.add(work(3, "slow"))
    assert backlog.seconds() == 10 * 0.5 + 3 * 2.0


def test_bytes_are_held_until_the_end_and_those_of_outputs_from_the_first_part(
    backlog: Backlog,
) -> None:
    large, small = work(6), work(2)
    for one in (large, small):
        backlog.add(one)
    assert backlog.room.bytes == 8 * BYTES
    backlog.take(4, now=0.0)
    assert backlog.room.bytes == 8 * BYTES
    kept = backlog.keep(large, {"y": np.zeros((2, 3))})
    assert kept["y"].shape == (6, 3)
    assert backlog.keep(large, {"y": np.zeros((1, 3))})["y"] is kept["y"]
    assert backlog.room.bytes == (8 + 6 * 3) * BYTES
    assert backlog.end(small) == 0
    assert backlog.end(large) == 4
    assert backlog.room.bytes == 0
    assert backlog.waiting == 0


def test_work_that_ends_is_not_taken(backlog: Backlog) -> None:
    gone, kept = work(2, "a"), work(1, "b")
    for one in (gone, kept):
        backlog.add(one)
    assert backlog.works() == [gone, kept]
    assert backlog.end(gone) == 2
    assert backlog.busy
    batch = backlog.take(100, now=0.0)
    assert [part.work for part in batch.slices] == [kept]
    assert backlog.busy
    backlog.done(batch, 0.0)
    assert not backlog.busy
