from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.batcher import Arrays, Batcher
from service.errors import (
    DeadlineExceededError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
)
from tests.service.conftest import Quiet

LATER = time.monotonic() + 3600
MAX_BATCH = 4
MAX_QUEUE = 16


class Gate:
    """A run function that notes its batches and holds them until told to go on."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.error: Exception | None = None

    def __call__(self, graph: str, feeds: Arrays) -> Arrays:
        self.batches.append((graph, feeds["x"].tolist()))
        self.entered.release()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        return {"y": feeds["x"] * 10}


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make(gate: Gate) -> Iterator[Callable[..., Batcher]]:
    made: list[Batcher] = []

    def build(workers: int = 1) -> Batcher:
        made.append(
            Batcher(
                gate,
                workers=workers,
                max_batch=MAX_BATCH,
                max_queue=MAX_QUEUE,
                observer=Quiet(),
            )
        )
        return made[-1]

    yield build
    gate.open.set()
    for batcher in made:
        batcher.close(5)


@pytest.fixture
def batcher(make: Callable[..., Batcher]) -> Batcher:
    return make()


def submit(batcher: Batcher, *values: int, graph: str = "g", deadline: float = LATER):
    return batcher.submit(graph, {"x": np.array(values)}, deadline=deadline)


def occupy(batcher: Batcher, gate: Gate) -> Future[Arrays]:
    """Keep the only worker busy, so that what follows waits."""
    future = submit(batcher, 0)
    assert gate.entered.acquire(timeout=30)
    return future


def result(future: Future[Arrays]) -> list[int]:
    values: list[int] = future.result(30)["y"].tolist()
    return values


def test_runs_alone_at_once(batcher: Batcher, gate: Gate) -> None:
    gate.open.set()
    assert result(submit(batcher, 1, 2)) == [10, 20]


def test_whatever_waits_goes_together_up_to_the_largest_batch(batcher: Batcher, gate: Gate) -> None:
    first = occupy(batcher, gate)
    futures = [submit(batcher, value) for value in range(1, 7)]
    gate.open.set()
    assert [result(future) for future in [first, *futures]] == [[v * 10] for v in range(7)]
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [5, 6]]


def test_large_work_is_split_and_the_rest_of_a_batch_filled(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    large = submit(batcher, 1, 2, 3, 4, 5)
    small = submit(batcher, 6)
    gate.open.set()
    assert result(large) == [10, 20, 30, 40, 50]
    assert result(small) == [60]
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [5, 6]]


def test_graphs_never_share_a_batch_and_the_oldest_goes_first(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    futures = [submit(batcher, 1, graph="a"), submit(batcher, 2, graph="b")]
    futures.append(submit(batcher, 3, graph="a"))
    gate.open.set()
    for future in futures:
        future.result(30)
    assert gate.batches[1:] == [("a", [1, 3]), ("b", [2])]


def test_a_graph_may_have_smaller_batches(gate: Gate) -> None:
    batcher = Batcher(
        gate,
        workers=1,
        max_batch=MAX_BATCH,
        max_queue=MAX_QUEUE,
        observer=Quiet(),
        graph_limits={"large": 2},
    )
    gate.open.set()
    futures = [submit(batcher, 1, 2, 3, graph=graph) for graph in ("large", "g")]
    assert [result(future) for future in futures] == [[10, 20, 30]] * 2
    batcher.close(5)
    assert gate.batches == [("large", [1, 2]), ("large", [3]), ("g", [1, 2, 3])]


def test_free_workers_share_what_waits(make: Callable[..., Batcher], gate: Gate) -> None:
    batcher = make(workers=2)
    future = submit(batcher, 1, 2, 3, 4)
    for _ in range(2):
        assert gate.entered.acquire(timeout=30)
    gate.open.set()
    assert result(future) == [10, 20, 30, 40]
    assert sorted(values for _, values in gate.batches) == [[1, 2], [3, 4]]


def test_a_full_queue_refuses_and_says_when_to_retry(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    submit(batcher, *range(MAX_QUEUE - 1))
    assert batcher.waiting == MAX_QUEUE - 1
    with pytest.raises(
        QueueFullError, match="15 windows are waiting and 2 more do not fit"
    ) as full:
        submit(batcher, 1, 2)
    assert full.value.retry_after >= 1
    batcher.check_room()
    submit(batcher, 1)
    assert batcher.waiting == MAX_QUEUE
    with pytest.raises(QueueFullError):
        batcher.check_room()


def test_cancelled_work_is_not_run(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    gone, kept = submit(batcher, 1, 2), submit(batcher, 3)
    assert gone.cancel()
    gate.open.set()
    assert result(kept) == [30]
    assert gate.batches[1:] == [("g", [3])]
    assert batcher.waiting == 0


def test_cancelled_and_expired_work_frees_its_place(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    gone = submit(batcher, *range(MAX_QUEUE - 2))
    late = submit(batcher, 1, graph="other", deadline=time.monotonic())
    kept = submit(batcher, 2)
    gone.cancel()
    new = submit(batcher, *range(MAX_QUEUE - 1))
    assert batcher.waiting == MAX_QUEUE
    assert isinstance(late.exception(0), DeadlineExceededError)
    gate.open.set()
    assert result(kept) == [20]
    assert result(new) == [10 * value for value in range(MAX_QUEUE - 1)]


def test_work_cancelled_half_way_is_not_continued(batcher: Batcher, gate: Gate) -> None:
    large = submit(batcher, 1, 2, 3, 4, 5)
    assert gate.entered.acquire(timeout=30)
    assert large.cancel()
    gate.open.set()
    assert result(submit(batcher, 6)) == [60]
    assert [values for _, values in gate.batches] == [[1, 2, 3, 4], [6]]


def test_expired_work_is_not_run(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    late = submit(batcher, 1, deadline=time.monotonic())
    kept = submit(batcher, 2)
    gate.open.set()
    with pytest.raises(DeadlineExceededError):
        late.result(30)
    assert result(kept) == [20]
    assert gate.batches[1:] == [("g", [2])]


def test_a_failure_reaches_every_waiter_of_the_batch_and_no_other(
    batcher: Batcher, gate: Gate
) -> None:
    gate.error = ValueError("broken")
    first = occupy(batcher, gate)
    together = [submit(batcher, 1), submit(batcher, 2, 3, 4, 5, 6)]
    gate.open.set()
    failures = [future.exception(30) for future in (first, *together)]
    assert {type(failure) for failure in failures} == {ModelFailedError}
    assert all(failure is not None and failure.__cause__ is gate.error for failure in failures)
    assert len(set(map(id, failures))) == 3
    gate.error = None
    assert result(submit(batcher, 7)) == [70]
    # The failed half of the split work was enough: its rest was dropped.
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [7]]


def test_a_domain_error_stays_what_it_is(batcher: Batcher, gate: Gate) -> None:
    gate.error = NotReadyError("not now", param="model")
    gate.error.__cause__ = reason = OSError("gone")
    gate.open.set()
    failure = submit(batcher, 1).exception(30)
    assert isinstance(failure, NotReadyError)
    assert failure is not gate.error
    assert (failure.message, failure.param, failure.__cause__) == ("not now", "model", reason)


class Failing(Quiet):
    """An observer that fails once it is told of a batch."""

    def ran(self, windows: int, seconds: float) -> None:
        raise MemoryError


@pytest.mark.parametrize("part", ["observer", "_assemble", "_join"])
def test_whatever_fails_is_told_and_the_worker_lives_on(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    gate.open.set()
    batcher = Batcher(gate, workers=1, max_batch=MAX_BATCH, max_queue=MAX_QUEUE, observer=Quiet())

    def fail(*_: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        if part == "observer":
            patch.setattr(batcher, "_observer", Failing())
        else:
            patch.setattr(f"service.batcher.{part}", fail)
        failure = submit(batcher, 1).exception(30)
    assert isinstance(failure, ModelFailedError)
    assert isinstance(failure.__cause__, MemoryError)
    assert result(submit(batcher, 2)) == [20]
    batcher.close(5)


def test_close_finishes_what_was_accepted(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    waiting = [submit(batcher, value) for value in range(8)]
    closing = threading.Thread(target=batcher.close, args=(30,))
    closing.start()
    while not batcher._closed:
        time.sleep(0.001)
    with pytest.raises(NotReadyError, match="stopping"):
        submit(batcher, 9)
    gate.open.set()
    closing.join(30)
    assert [result(future) for future in waiting] == [[v * 10] for v in range(8)]


def test_close_gives_up_in_time(batcher: Batcher, gate: Gate) -> None:
    occupy(batcher, gate)
    waiting = submit(batcher, 1)
    batcher.close(0.01)
    with pytest.raises(NotReadyError, match="stopped before"):
        waiting.result(30)
    assert batcher.waiting == 0


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.tuples(
            st.integers(1, 9),
            st.sampled_from(["a", "b"]),
            st.sampled_from(["run", "cancel", "expire", "fail"]),
        ),
        max_size=12,
    ),
    st.integers(1, 3),
)
def test_every_submission_has_exactly_one_outcome(
    plan: list[tuple[int, str, str]], workers: int
) -> None:
    def run(graph: str, feeds: Arrays) -> Arrays:
        if (feeds["fate"] == 1).any():
            raise ValueError(graph)
        return {"y": feeds["x"] + ord(graph)}

    batcher = Batcher(run, workers=workers, max_batch=MAX_BATCH, max_queue=200, observer=Quiet())
    outcomes = [0] * len(plan)
    futures: list[Future[Arrays]] = []
    for number, (windows, graph, fate) in enumerate(plan):
        feeds = {
            "x": np.arange(windows) + 100 * number,
            "fate": np.full(windows, fate == "fail"),
        }
        deadline = time.monotonic() if fate == "expire" else LATER
        future = batcher.submit(graph, feeds, deadline=deadline)

        def count(_: Future[Arrays], number: int = number) -> None:
            outcomes[number] += 1

        future.add_done_callback(count)
        if fate == "cancel":
            future.cancel()
        futures.append(future)
    batcher.close(30)
    assert outcomes == [1] * len(plan)
    assert batcher.waiting == 0
    for number, ((windows, graph, fate), future) in enumerate(zip(plan, futures, strict=True)):
        # Rows that fail may take others of their batch along, of the same graph.
        failing = any(other == graph and end == "fail" for _, other, end in plan)
        error = None if future.cancelled() else future.exception(0)
        if error is not None:
            assert failing or isinstance(error, DeadlineExceededError)
            assert fate != "run" or isinstance(error, ModelFailedError)
        elif future.cancelled():
            assert fate == "cancel"
        else:
            assert fate in ("run", "cancel")
            expected = np.arange(windows) + 100 * number + ord(graph)
            assert future.result(0)["y"].tolist() == expected.tolist()
