"""What runs when, against a model of the queue: first come, first served, in full batches."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batcher import Arrays, Batcher
from service.errors import QueueFullError
from tests.service.conftest import Quiet

# Batches of the graph "b" are smaller.
MAX_BATCH = {"a": 4, "b": 2}
MAX_QUEUE = 12
Window = tuple[int, int]


class Held:
    """Holds the first batch until told to go on, and notes every one after it."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()
        self.batches: list[tuple[str, list[Window]]] = []

    def __call__(self, graph: str, feeds: Arrays) -> Arrays:
        if self.entered.is_set():
            self.batches.append((graph, [(work, row) for work, row in feeds["window"].tolist()]))
        else:
            self.entered.set()
            assert self.go_on.wait(30)
        return {"window": feeds["window"]}


def batches_of(works: list[tuple[int, str, int]]) -> list[tuple[str, list[Window]]]:
    """The batches that works `(number, graph, windows)`, oldest first, should run in."""
    left = [(graph, (number, row)) for number, graph, windows in works for row in range(windows)]
    batches = []
    while left:
        graph = left[0][0]
        batch = [window for other, window in left if other == graph][: MAX_BATCH[graph]]
        left = [(other, window) for other, window in left if window not in batch]
        batches.append((graph, batch))
    return batches


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(1, 7), st.sampled_from([None, None, 0, 1, 2])),
        max_size=12,
    )
)
def test_first_come_first_served_in_full_batches(plan: list[tuple[str, int, int | None]]) -> None:
    held = Held()
    batcher = Batcher(
        held,
        workers=1,
        max_batch=max(MAX_BATCH.values()),
        max_queue=MAX_QUEUE,
        observer=Quiet(),
        graph_limits=MAX_BATCH,
    )
    deadline = time.monotonic() + 3600
    batcher.submit("first", {"window": np.zeros((1, 2))}, deadline=deadline)
    assert held.entered.wait(30)
    waiting: list[tuple[int, str, int]] = []
    futures = {}
    for number, (graph, windows, cancelled) in enumerate(plan):
        feeds = {"window": np.array([(number, row) for row in range(windows)])}
        if sum(work[2] for work in waiting) + windows > MAX_QUEUE:
            with pytest.raises(QueueFullError):
                batcher.submit(graph, feeds, deadline=deadline)
        else:
            futures[number] = batcher.submit(graph, feeds, deadline=deadline)
            waiting.append((number, graph, windows))
        assert batcher.waiting <= MAX_QUEUE
        if cancelled is not None and cancelled < len(waiting):
            assert futures.pop(waiting.pop(cancelled)[0]).cancel()
    held.go_on.set()
    batcher.close(30)
    assert held.batches == batches_of(waiting)
    for number, _, windows in waiting:
        expected = [[number, row] for row in range(windows)]
        assert futures[number].result(0)["window"].tolist() == expected
