"""Runs that a queue accepts, holds and refuses, and the end of waiting runs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError

import numpy as np
import pytest

from foretell.service.engine.queues import Queue
from foretell.service.engine.scheduler import Scheduler
from foretell.service.errors import (
    DeadlineExceededError,
    DeviceLostError,
    NotReadyError,
    QueueFullError,
    TooLargeError,
)
from tests.service.engine.conftest import (
    LATER,
    MAX_BATCH,
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


def test_pause_holds_runs_until_resume(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    calls: list[str] = []
    queue.pause("h", lambda: calls.append("never"))
    queue.pause("h", lambda: calls.append("h"))
    held = [submit(queue, 1, 2, graph="h"), submit(queue, 3, graph="h")]
    assert calls == ["h", "h"]
    assert result(submit(queue, 4)) == [40]
    assert queue.usage.windows == 3
    assert not any(run.done() for run in held)
    queue.resume("h", MAX_BATCH)
    queue.resume("h", MAX_BATCH)
    assert [result(run) for run in held] == [[10, 20], [30]]
    assert gate.batches == [("g", [4]), ("h", [1, 2, 3])]
    assert queue.usage.windows == 0


def test_settle_waits_for_runs_accepted_before_the_pause(queue: Queue, gate: Gate) -> None:
    occupied = occupy(queue, gate)
    before = submit(queue, 1, 2, graph="h")
    queue.pause("h", lambda: None)
    held = submit(queue, 3, graph="h")
    assert queue.usage.windows == 3
    queue.settle(0.01)
    assert not occupied.done()
    settling = threading.Thread(target=queue.settle, args=(30,))
    settling.start()
    gate.open.set()
    assert [result(occupied), result(before)] == [[0], [10, 20]]
    settling.join(30)
    assert not settling.is_alive()
    assert not held.done()
    queue.resume("h", 1)
    assert result(held) == [30]


def test_refusal_fails_held_and_new_runs(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    queue.pause("h", lambda: None)
    held = submit(queue, 1, graph="h")

    def refuse() -> None:
        raise NotReadyError("not now")

    queue.pause("h", refuse)
    with pytest.raises(NotReadyError, match="not now"):
        held.result(0)
    with pytest.raises(NotReadyError, match="not now"):
        submit(queue, 1, graph="h")
    assert queue.usage.windows == queue.usage.bytes == 0
    assert result(submit(queue, 4)) == [40]


def test_held_runs_fail_after_their_total_wait(scheduler: Scheduler, clock: Clock) -> None:
    queue = add(scheduler, SlowRun(clock))
    queue.pause("h", lambda: None)
    made = clock.now
    old = submit(queue, 1, 2, graph="h")
    for seconds, counted in ((2.0, [old]), (5.0, [])):
        clock.now = made + seconds
        # A second load makes the wait longer, but the run is counted once.
        assert queue.note_loaded() == counted
        assert (old.loading, old.submitted) == (seconds, clock.now)
        assert queue.held_since == made
    new = submit(queue, 3, graph="h")
    assert queue.fail_held(NotReadyError("too long"), before=made - 1) == []
    assert queue.fail_held(NotReadyError("too long"), before=made) == [old]
    assert isinstance(error_of(old), NotReadyError)
    assert not new.done()
    assert queue.usage.windows == 1
    assert queue.fail_held(NotReadyError("refused")) == [new]
    assert queue.usage.bytes == 0


def test_failure_of_held_runs_is_by_graph(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    for graph in ("g", "h"):
        queue.pause(graph, lambda: None)
    kept, failing = submit(queue, 1), submit(queue, 2, graph="h")
    failed = threading.Thread(target=queue.wait_while_held, args=("h", 30))
    failed.start()
    assert queue.fail_held(NotReadyError("not opened"), graph="h") == [failing]
    failed.join(30)
    assert not failed.is_alive()
    assert not kept.done()
    resumed = threading.Thread(target=queue.wait_while_held, args=("g", 30))
    resumed.start()
    queue.resume("g", 1)
    resumed.join(30)
    assert not resumed.is_alive()
    assert result(kept) == [10]


def test_held_runs_count_against_the_limits_and_end_before_close(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    calls: list[str] = []
    queue.pause("h", lambda: calls.append("h"))
    with pytest.raises(TooLargeError):
        submit(queue, *range(MAX_WINDOWS + 1), graph="h")
    # A refused run requests no session.
    assert not calls
    held = [submit(queue, *range(MAX_WINDOWS // 2), graph="h") for _ in range(2)]
    with pytest.raises(QueueFullError, match=f"^{MAX_WINDOWS} windows are waiting and 1 more"):
        submit(queue, 1)
    assert held[0].cancel()
    assert result(submit(queue, 1)) == [10]
    closing = threading.Thread(target=queue.close, args=(30,))
    closing.start()
    until(lambda: queue.closing)
    queue.resume("h", MAX_BATCH)
    assert len(result(held[1])) == MAX_WINDOWS // 2
    closing.join(30)
    assert not closing.is_alive()


def test_full_queue_refuses_all_but_admitted_runs(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    submit(queue, *range(MAX_WINDOWS - 1))
    with pytest.raises(QueueFullError, match="15 windows are waiting and 2 more do not fit"):
        submit(queue, 1, 2)
    submit(queue, 1)
    with pytest.raises(QueueFullError, match="1 more do not fit: at most 16 may wait") as full:
        submit(queue, 1)
    assert full.value.retry_after == 1
    more = submit(queue, 1, 2, admitted=True)
    assert queue.waiting == MAX_WINDOWS + 2
    gate.open.set()
    assert result(more) == [10, 20]


@pytest.mark.parametrize("limits", [{}, {"windows": 100, "bytes": 100}])
def test_run_larger_than_the_queue_is_too_large(
    scheduler: Scheduler, limits: dict[str, int]
) -> None:
    queue = add(scheduler, lambda worker, graph, feeds: feeds, **limits)
    with pytest.raises(TooLargeError, match="17 more do not fit"):
        submit(queue, *range(MAX_WINDOWS + 1))
    queue.submit("g", {"x": np.zeros(MAX_WINDOWS, np.int8)}, deadline=LATER).result(30)


@pytest.mark.parametrize(
    ("seconds", "workers", "lost", "shared", "retry_after"),
    [
        *((2.0, 1, 0, False, (10, 20)), (2.0, 2, 0, False, (5, 10)), (0.001, 1, 0, False, (1, 1))),
        *((60.0, 2, 0, False, (60, 60)), (2.0, 2, 1, False, (10, 20)), (2.0, 1, 0, True, (20, 40))),
    ],
)
def test_full_queue_sets_retry_after_by_its_measured_pace(
    make: Callable[..., Scheduler],
    clock: Clock,
    seconds: float,
    workers: int,
    lost: int,
    shared: bool,
    retry_after: tuple[int, int],
) -> None:
    """Lost workers, and other queues of the same workers, make the wait longer."""

    def lose(worker: int) -> None:
        if worker >= workers - lost:
            raise DeviceLostError("the GPU is lost")

    scheduler = make(workers)
    queue = add(scheduler, SlowRun(clock, g=seconds), windows=40)
    for call in scheduler.on_threads(lose):
        call.exception(30)
    until(lambda: len(scheduler.on_threads(lambda _: None)) == workers - lost)
    busy = BusyThreads(scheduler)
    first = submit(queue, 1, 2, 3, 4)
    busy.release()
    first.result(30)
    busy = BusyThreads(scheduler)
    submit(queue, *range(40))
    if shared:
        submit(add(scheduler, SlowRun(clock)), 1)
    for windows, expected in zip((20, 40), retry_after, strict=True):
        with pytest.raises(QueueFullError) as full:
            submit(queue, *range(windows))
        assert full.value.retry_after == expected
    busy.release()


def test_queue_bounds_bytes(scheduler: Scheduler, gate: Gate) -> None:
    queue = add(scheduler, gate, bytes=10 * np.array([0]).nbytes)
    occupy(queue, gate)
    waiting = submit(queue, *range(9))
    with pytest.raises(QueueFullError, match="hold 80 bytes, where there are 80 and 8 more"):
        submit(queue, 1)
    assert waiting.cancel()
    gate.open.set()
    assert result(submit(queue, *range(9))) == [10 * value for value in range(9)]


def test_outputs_of_a_split_run_count_as_bytes(scheduler: Scheduler, gate: Gate) -> None:
    queue = add(scheduler, gate, bytes=20 * np.array([0]).nbytes)
    large = submit(queue, *range(8))
    assert gate.entered.acquire(timeout=30)
    submit(queue, *range(12)).cancel()
    gate.open.set()
    gate.open = threading.Event()
    assert gate.entered.acquire(timeout=30)
    # Half of the outputs are done, in one array for all rows.
    with pytest.raises(QueueFullError, match="where there are 128 and 40 more"):
        submit(queue, *range(5))
    fitting = submit(queue, *range(4))
    gate.open.set()
    assert result(large) == [10 * value for value in range(8)]
    fitting.result(30)
    submit(queue, *range(MAX_WINDOWS)).result(30)


def test_cancelled_run_frees_its_place_and_is_not_run(scheduler: Scheduler) -> None:
    gate, observed = Gate(), Observed()
    queue = add(scheduler, gate, observer=observed)
    occupy(queue, gate)
    cancelled, kept = submit(queue, *range(MAX_WINDOWS - 1)), submit(queue, 3)
    assert cancelled.cancel()
    assert cancelled.cancel()
    assert cancelled.done()
    assert queue.waiting == 1
    assert observed.calls.count(("cancelled",)) == 1
    gate.open.set()
    assert result(kept) == [30]
    assert gate.batches[1:] == [("g", [3])]
    assert queue.waiting == 0


def test_running_run_is_not_reported_as_dropped(scheduler: Scheduler) -> None:
    gate, observed = Gate(), Observed()
    queue = add(scheduler, gate, observer=observed)
    running = occupy(queue, gate)
    # The deadline has already passed.
    assert submit(queue, 1, deadline=time.monotonic()).cancel()
    assert observed.calls == [("expired",)]
    # A running batch is not interrupted.
    assert running.cancel()
    gate.open.set()
    queue.close(30)
    with pytest.raises(CancelledError):
        running.result(0)
    assert not {("cancelled",), ("expired",)} & set(observed.calls[1:])


def test_expired_runs_are_dropped_and_later_ones_move_up(
    scheduler: Scheduler, clock: Clock
) -> None:
    gate, observed = Gate(), Observed()
    queue = add(scheduler, gate, observer=observed)
    busy = BusyThreads(scheduler)
    late = [submit(queue, 1, 1, deadline=clock.now + seconds) for seconds in (1, 2)]
    kept = submit(queue, 2, deadline=clock.now + 3)
    clock.now += 2
    assert not any(future.done() for future in late)
    busy.release()
    for future in late:
        assert isinstance(error_of(future), DeadlineExceededError)
    assert gate.entered.acquire(timeout=30)
    # Expired runs are observed before the batch ends.
    assert observed.calls == [("expired",)] * 2
    gate.open.set()
    assert result(kept) == [20]
    assert gate.batches == [("g", [2])]


def test_full_queue_drops_expired_runs_first(scheduler: Scheduler, clock: Clock) -> None:
    gate, observed = Gate(), Observed()
    queue = add(scheduler, gate, observer=observed)
    busy = BusyThreads(scheduler)
    late = submit(queue, *range(5), deadline=clock.now + 1)
    kept = submit(queue, *range(8), deadline=clock.now + 2)
    clock.now += 1
    with pytest.raises(QueueFullError, match="8 windows are waiting and 9 more do not fit"):
        submit(queue, *range(9))
    assert late.done()
    assert isinstance(error_of(late), DeadlineExceededError)
    assert observed.calls == [("expired",)]
    assert not kept.done()
    clock.now += 1
    submit(queue, *range(9))
    assert kept.done()
    assert queue.waiting == 9
    gate.open.set()
    busy.release()


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_split_run_is_not_continued_after_its_end(
    queue: Queue, gate: Gate, clock: Clock, end: str
) -> None:
    large = submit(queue, 1, 2, 3, 4, 5, deadline=clock.now + 1)
    assert gate.entered.acquire(timeout=30)
    if end == "cancel":
        assert large.cancel()
        assert queue.waiting == 0
    else:
        clock.now += 1
    gate.open.set()
    assert result(submit(queue, 6)) == [60]
    with pytest.raises(CancelledError if end == "cancel" else DeadlineExceededError):
        large.result(30)
    assert large.outputs == {}, "the first part of split work is of no use"
    assert queue.waiting == 0
    assert [values for _, values in gate.batches] == [[1, 2, 3, 4], [6]]


def close_in_thread(close: Callable[[float], None], queue: Queue) -> threading.Thread:
    """Begin to close with time enough; returns once new work is refused."""
    closing = threading.Thread(target=close, args=(30,))
    closing.start()
    until(lambda: queue.closing)
    return closing


@pytest.mark.parametrize("which", ["queue", "scheduler"])
def test_close_finishes_accepted_runs(
    scheduler: Scheduler, queue: Queue, gate: Gate, which: str
) -> None:
    futures = [occupy(queue, gate), *(submit(queue, value) for value in range(1, 8))]
    closing = close_in_thread(queue.close if which == "queue" else scheduler.close, queue)
    with pytest.raises(NotReadyError, match="stopping"):
        submit(queue, 9)
    futures.append(submit(queue, 8, admitted=True))
    gate.open.set()
    closing.join(30)
    assert not closing.is_alive()
    assert [future.result(0)["y"].tolist() for future in futures] == [[v * 10] for v in range(9)]
    with pytest.raises(NotReadyError, match="stopping"):
        submit(queue, 9, admitted=True)


def test_close_waits_only_for_its_own_batches(scheduler: Scheduler) -> None:
    gate = Gate()
    idle, busy = add(scheduler, gate), add(scheduler, gate)
    running = occupy(busy, gate)
    waiting = submit(idle, 1)
    closing = [close_in_thread(queue.close, queue) for queue in (idle, busy)]
    assert waiting.cancel()
    # The running batch has no waiting caller.
    assert running.cancel()
    closing[0].join(10)
    closing[1].join(0.05)
    assert [thread.is_alive() for thread in closing] == [False, True]
    gate.open.set()
    closing[1].join(10)
    assert not closing[1].is_alive()
    # Other queues continue.
    assert result(submit(add(scheduler, gate), 1)) == [10]
    busy.close(30)


@pytest.mark.parametrize("which", ["queue", "scheduler"])
def test_close_fails_runs_after_its_timeout(
    scheduler: Scheduler, queue: Queue, gate: Gate, which: str
) -> None:
    running = occupy(queue, gate)
    queue.pause("h", lambda: None)
    large, small, held = submit(queue, *range(9)), submit(queue, 1), submit(queue, 1, graph="h")
    (call,) = scheduler.on_threads(lambda worker: None)
    (queue if which == "queue" else scheduler).close(0.01)
    for waiting in (large, small, held):
        with pytest.raises(NotReadyError, match="stopped before"):
            waiting.result(0)
    assert queue.waiting == 0
    if which == "scheduler":
        assert isinstance(call.exception(0), NotReadyError)
    # The batch that runs is not interrupted, and a second call waits for it.
    assert not running.done()
    gate.open.set()
    queue.close(30)
    assert running.result(0)["y"].tolist() == [0]
