"""Batches of a scheduler's threads, their order, and errors."""

from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import CancelledError
from unittest.mock import Mock

import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.engine.queues import Queue
from foretell.service.engine.run import Run
from foretell.service.engine.scheduler import Scheduler, assemble
from foretell.service.errors import (
    DeadlineExceededError,
    DeviceLostError,
    ModelFailedError,
    NotReadyError,
)
from tests.service.conftest import Quiet
from tests.service.engine.conftest import (
    LATER,
    MAX_WINDOWS,
    BusyThreads,
    Clock,
    Gate,
    Observed,
    SlowRun,
    add,
    error_of,
    occupy,
    result,
    submit,
)
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("work", "batches"),
    [
        ([("g", [each]) for each in range(1, 7)], [("g", [1, 2, 3, 4]), ("g", [5, 6])]),
        # A large request does not delay a small one.
        ([("g", [1, 2, 3, 4, 5, 6]), ("g", [7])], [("g", [1, 2, 3, 7]), ("g", [4, 5, 6])]),
        ([("a", [1]), ("b", [2]), ("a", [3])], [("a", [1, 3]), ("b", [2])]),
        ([("small", [1, 2, 3])], [("small", [1, 2]), ("small", [3])]),
    ],
    ids=["full batches", "large and small runs", "two graphs", "a smaller limit"],
)
def test_waiting_windows_of_a_graph_share_batches(
    queue: Queue, gate: Gate, work: list[tuple[str, list[int]]], batches: list[object]
) -> None:
    queue.resume("small", 2)
    first = occupy(queue, gate)
    futures = [submit(queue, *values, graph=graph) for graph, values in work]
    gate.open.set()
    assert result(first) == [0]
    for future, (_, values) in zip(futures, work, strict=True):
        assert result(future) == [10 * value for value in values]
    assert gate.batches[1:] == batches


def run_of(*values: int) -> Run:
    feeds = {"x": np.array(values), "z": np.array([[value, -value] for value in values])}
    return Run(Run.notify, "g", feeds)


def test_assemble_joins_slices_and_does_not_copy_one() -> None:
    one = run_of(1, 2, 3)
    feeds = assemble([(one, 1, 3)])
    assert feeds["x"].tolist() == [2, 3]
    assert all(np.shares_memory(rows, one.feeds[name]) for name, rows in feeds.items())
    feeds = assemble([(one, 1, 3), (run_of(4), 0, 1)])
    assert feeds["x"].tolist() == [2, 3, 4]
    assert feeds["z"].tolist() == [[2, -2], [3, -3], [4, -4]]


def test_idle_threads_share_waiting_windows(make: Callable[..., Scheduler], gate: Gate) -> None:
    queue = add(make(threads=2), gate)
    future = submit(queue, 1, 2, 3, 4)
    for _ in range(2):
        assert gate.entered.acquire(timeout=30)
    gate.open.set()
    assert result(future) == [10, 20, 30, 40]
    assert sorted(values for _, values in gate.batches) == [[1, 2], [3, 4]]
    assert {worker for worker, _ in gate.workers} == {0, 1}


def test_thread_that_fell_asleep_last_wakes_first(make: Callable[..., Scheduler]) -> None:
    scheduler = make(threads=3)
    go_on = [threading.Event() for _ in range(3)]
    scheduler.on_threads(lambda worker: go_on[worker].wait(30))
    for asleep, worker in enumerate((1, 2, 0)):
        go_on[worker].set()
        until(lambda asleep=asleep: len(scheduler._root.asleep) == asleep + 1)
    ran: list[int] = []
    entered, leave = threading.Semaphore(0), threading.Event()

    def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
        ran.append(worker)
        entered.release()
        assert leave.wait(30)
        return feeds

    queue = add(scheduler, run)
    for value in range(3):
        submit(queue, value)
        assert entered.acquire(timeout=30)
    assert ran == [0, 2, 1]
    leave.set()


@pytest.mark.parametrize("queues", [2, 1], ids=["two queues", "two graphs of a queue"])
def test_threads_give_even_shares_of_their_time(
    scheduler: Scheduler, clock: Clock, queues: int
) -> None:
    run = SlowRun(clock, slow=4.0)
    made = [add(scheduler, run, windows=100) for _ in range(queues)]
    busy = BusyThreads(scheduler)
    futures = [
        submit(queue, *range(40), graph=graph)
        for queue, graph in ((made[0], "g"), (made[-1], "slow"))
    ]
    busy.release()
    for future in futures:
        future.result(30)
    assert run.order[:10] == ["g", "slow", *["g"] * 3, "slow", *["g"] * 4]


def test_running_batches_are_charged_their_expected_time(
    make: Callable[..., Scheduler], clock: Clock
) -> None:
    scheduler = make(threads=8)
    run = SlowRun(clock, slow=8.0)
    queue = add(scheduler, run, windows=100)
    for graph in ("g", "slow"):
        busy = BusyThreads(scheduler)
        future = submit(queue, 1, 2, 3, 4, graph=graph)
        busy.release()
        future.result(30)
    run.order.clear()
    entered, go_on = threading.Semaphore(0), threading.Event()

    def wait() -> None:
        entered.release()
        assert go_on.wait(30)

    run.then = wait
    busy = BusyThreads(scheduler)
    futures = [submit(queue, *range(40), graph=graph) for graph in ("g", "slow")]
    busy.release()
    for _ in range(8):
        assert entered.acquire(timeout=30)
    # None of these batches is done.
    assert sorted(run.order) == [*["g"] * 7, "slow"]
    go_on.set()
    for future in futures:
        future.result(30)


def test_split_run_keeps_only_the_requested_attention(scheduler: Scheduler) -> None:
    def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
        rows = feeds["x"]
        return dict.fromkeys(("forecast", "margin", "one", "two"), rows)

    queue = add(scheduler, run)
    feeds = {"x": np.arange(MAX_WINDOWS)}
    found = queue.submit("g", feeds, attention=["two"], deadline=LATER)
    assert found.result(30).keys() == {"forecast", "margin", "two"}
    alone = queue.submit("g", {"x": feeds["x"][:1]}, attention=["one"], deadline=LATER)
    assert alone.result(30).keys() == {"forecast", "margin", "one"}
    plain = queue.submit("g", {"x": feeds["x"][:1]}, deadline=LATER)
    assert plain.result(30).keys() == {"forecast", "margin", "one", "two"}


def test_run_records_when_its_batches_ran(scheduler: Scheduler, clock: Clock) -> None:
    queue = add(scheduler, SlowRun(clock))
    busy = BusyThreads(scheduler)
    work = submit(queue, *range(6))
    clock.now += 1
    busy.release()
    work.result(30)
    assert (work.submitted, work.began, work.ended) == (1000.0, 1001.0, 1003.0)
    assert work.batch == 4


@pytest.mark.parametrize(
    "error", [ValueError("broken"), MemoryError(), SystemExit(1), KeyboardInterrupt()]
)
def test_failed_batch_fails_all_of_its_runs_and_no_others(
    queue: Queue, gate: Gate, error: BaseException
) -> None:
    gate.error = error
    first = occupy(queue, gate)
    together = [submit(queue, 1), submit(queue, 2, 3, 4, 5, 6)]
    gate.open.set()
    failures = [error_of(future) for future in (first, *together)]
    assert {type(failure) for failure in failures} == {ModelFailedError}
    assert all(failure.__cause__ is error for failure in failures)
    assert len(set(map(id, failures))) == 3
    gate.error = None
    assert result(submit(queue, 7)) == [70]
    # The failed part of the split work was enough: its rest was dropped.
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [7]]


def test_failed_run_keeps_no_reference_to_its_batch(queue: Queue, gate: Gate) -> None:
    gate.error = ValueError("broken")
    gate.open.set()
    feeds = {"x": np.array([1])}
    held = weakref.ref(feeds["x"])
    gc.disable()
    try:
        work = queue.submit("g", feeds, deadline=LATER)
        until(work.done)
        assert isinstance(work.error, ModelFailedError)
        assert work.error.__cause__ is gate.error
        del work, feeds
        until(lambda: held() is None)
    finally:
        gc.enable()


@pytest.mark.parametrize("rows", [np.zeros(1), np.zeros(3), np.float64(0)])
def test_outputs_without_a_row_for_each_window_fail(scheduler: Scheduler, rows: np.ndarray) -> None:
    queue = add(scheduler, lambda worker, graph, feeds: {"y": rows})
    failure = error_of(submit(queue, 1, 2))
    assert isinstance(failure, ModelFailedError)
    assert "expected 2 windows of outputs, got y" in failure.message


class Failing(Quiet):
    """An observer whose calls all raise errors."""

    def __getattribute__(self, name: str) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise MemoryError(name)

        return fail


def test_observer_that_fails_changes_no_outcome(
    scheduler: Scheduler, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    queue = add(scheduler, gate, observer=Failing())
    first = occupy(queue, gate)
    assert submit(queue, 1).cancel()
    late = submit(queue, 1, deadline=time.monotonic())
    gate.open.set()
    assert isinstance(error_of(late), DeadlineExceededError)
    assert result(first) == [0]
    assert result(submit(queue, 2)) == [20]
    assert "a callback of a run failed" in caplog.text


def test_observer_gets_only_successful_batches(scheduler: Scheduler) -> None:
    gate, observed = Gate(), Observed()
    queue = add(scheduler, gate, observer=observed)
    queue.resume("g", 2)
    future = submit(queue, 1, 2, 3)
    gate.open.set()
    assert result(future) == [10, 20, 30]
    gate.error = ValueError("broken")
    error_of(submit(queue, 1))
    scheduler.close(30)
    assert observed.calls == [("ran", 2, 2, True, True), ("ran", 1, 2, True, True)]


def test_every_thread_makes_a_call_before_its_next_batch(
    make: Callable[..., Scheduler], gate: Gate
) -> None:
    scheduler = make(threads=2)
    queue = add(scheduler, gate)
    running = [submit(queue, 1), submit(queue, 2)]
    for _ in running:
        assert gate.entered.acquire(timeout=30)
    waiting = submit(queue, 3, 4)
    order: list[object] = []
    calls = scheduler.on_threads(
        lambda worker: order.append((worker, threading.current_thread().name, len(gate.batches)))
    )
    gate.open.set()
    for call in calls:
        call.result(30)
    assert result(waiting) == [30, 40]
    names = {(worker, name) for worker, name, _ in order}  # type: ignore[attr-defined]
    assert names == gate.workers == {(0, "inference-0"), (1, "inference-1")}
    assert order[0][2] == 2  # type: ignore[index]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_call_may_fail_or_be_cancelled_before_it_is_made(
    scheduler: Scheduler, queue: Queue, gate: Gate, error: BaseException
) -> None:
    occupy(queue, gate)
    made_on: list[int] = []
    (failing,) = scheduler.on_threads(Mock(side_effect=error))
    (cancelled,), (made,) = (scheduler.on_threads(made_on.append) for _ in range(2))
    assert cancelled.cancel()
    gate.open.set()
    assert failing.exception(30) is error
    assert made.result(30) is None
    assert made_on == [0]


def test_side_calls_run_in_order(scheduler: Scheduler) -> None:
    began, go_on = threading.Event(), threading.Event()
    calls: list[int] = []

    def first() -> None:
        began.set()
        assert go_on.wait(30)
        calls.append(1)

    def fail() -> None:
        raise ValueError("wrong")

    futures = [scheduler.beside(each) for each in (first, fail, lambda: calls.append(3))]
    assert began.wait(30)
    scheduler.on_threads(lambda thread: None)[0].result(30)
    assert not calls
    go_on.set()
    futures[2].result(30)
    assert calls == [1, 3]
    assert isinstance(futures[1].exception(0), ValueError)


def test_close_cancels_side_calls_that_have_not_started(scheduler: Scheduler) -> None:
    began, go_on = threading.Event(), threading.Event()

    def first() -> None:
        began.set()
        assert go_on.wait(30)

    going, waiting = scheduler.beside(first), scheduler.beside(began.clear)
    assert began.wait(30)
    scheduler.close(0)
    assert scheduler.going
    with pytest.raises(NotReadyError):
        scheduler.beside(began.clear)
    go_on.set()
    going.result(30)
    with pytest.raises(CancelledError):
        waiting.result(30)
    assert began.is_set()


def test_thread_with_a_lost_device_leaves_its_runs_to_others(
    make: Callable[..., Scheduler],
) -> None:
    scheduler = make(threads=2)
    ran: list[int] = []

    def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
        ran.append(worker)
        if worker == 0:
            raise DeviceLostError("GPU 0 is lost")
        return {"y": feeds["x"] * 10}

    queue = add(scheduler, run)
    busy = BusyThreads(scheduler, first=1)
    with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
        submit(queue, 1).result(30)
    until(lambda: len(scheduler.on_threads(lambda _: None)) == 1)
    waiting = submit(queue, 2)
    busy.release()
    assert result(waiting) == [20]
    for value in range(20):
        assert result(submit(queue, value)) == [10 * value]
    assert set(ran[1:]) == {1}
    (call,) = scheduler.on_threads(lambda worker: ran.append(worker))
    call.result(30)


def test_last_lost_device_fails_all_waiting_runs(
    scheduler: Scheduler, queue: Queue, gate: Gate
) -> None:
    futures = [occupy(queue, gate), *(submit(queue, value) for value in range(6))]
    (call,) = scheduler.on_threads(lambda worker: None)
    gate.error = DeviceLostError("GPU 0 is lost")
    gate.open.set()
    for future in (*futures, call):
        with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
            future.result(30)
    for _ in range(2):
        with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
            submit(queue, 1)
    assert len(gate.batches) == 1
    assert scheduler.on_threads(lambda worker: None) == []
    queue.close(30)


def test_closed_scheduler_refuses_queues_and_has_no_threads(
    scheduler: Scheduler, queue: Queue, gate: Gate
) -> None:
    before = threading.active_count()
    scheduler.close(30)
    # One inference thread, and the thread of side calls.
    assert threading.active_count() == before - 2
    for take in (
        lambda: submit(queue, 1),
        lambda: add(scheduler, gate),
        lambda: scheduler.on_threads(lambda worker: None),
    ):
        with pytest.raises(NotReadyError):
            take()
