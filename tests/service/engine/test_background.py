"""Background runs: they wait for all others, and cost them nothing."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError

import pytest

from foretell.service.engine import background
from foretell.service.engine.queues import Queue
from foretell.service.engine.scheduler import Scheduler
from foretell.service.errors import DeadlineExceededError, NotReadyError, QueueFullError
from tests.service.engine.conftest import (
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


def test_background_runs_wait_for_the_windows_of_all_models(
    scheduler: Scheduler, queue: Queue, gate: Gate
) -> None:
    other = add(scheduler, gate)
    first = occupy(queue, gate)
    behind = submit(queue, 1, 2, background=True)
    others = [submit(queue, 3), submit(other, 4)]
    gate.open.set()
    assert result(behind) == [10, 20]
    assert [result(run) for run in (first, *others)] == [[0], [30], [40]]
    batches = [values for _, values in gate.batches]
    assert sorted(batches[:3]) == [[0], [3], [4]]
    assert batches[3:] == [[1, 2]]


def test_background_batches_have_no_other_windows(queue: Queue, gate: Gate) -> None:
    first = occupy(queue, gate)
    runs = [submit(queue, *range(1, 7), background=True), submit(queue, 7, background=True)]
    gate.open.set()
    assert result(first) == [0]
    assert result(runs[0]) == [10, 20, 30, 40, 50, 60]
    assert result(runs[1]) == [70]
    assert gate.batches[1:] == [("g", [1, 2, 3, 4]), ("g", [5, 6]), ("g", [7])]


def test_one_background_batch_runs_at_a_time(make: Callable[..., Scheduler], gate: Gate) -> None:
    queue = add(make(threads=2), gate)
    runs = [submit(queue, 1, background=True), submit(queue, 2, background=True)]
    assert gate.entered.acquire(timeout=30)
    # The other thread is free for a run with a waiting client.
    other = submit(queue, 3)
    assert gate.entered.acquire(timeout=30)
    assert [values for _, values in gate.batches] == [[1], [3]]
    gate.open.set()
    assert [result(run) for run in (*runs, other)] == [[10], [20], [30]]


def test_background_windows_do_not_fill_the_queue(queue: Queue, gate: Gate) -> None:
    first = occupy(queue, gate)
    behind = [submit(queue, *range(MAX_WINDOWS), background=True) for _ in range(3)]
    assert (queue.usage.windows, queue.usage.bytes) == (0, 8)
    full = submit(queue, *range(MAX_WINDOWS))
    gate.open.set()
    for run in (first, full, *behind):
        result(run)
    assert (queue.usage.windows, queue.usage.bytes) == (0, 0)


@pytest.mark.parametrize(("bound", "most"), [("MOST_WINDOWS", 5), ("MOST_BYTES", 40)])
def test_full_background_refuses_at_once(
    queue: Queue, gate: Gate, monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(background, bound, most)
    occupy(queue, gate)
    before = [submit(queue, 1, 2, 3, background=True), submit(queue, 4, 5, background=True)]
    with pytest.raises(QueueFullError, match="5 windows wait in the background, with 40 bytes"):
        submit(queue, 6, background=True)
    # A run that was cancelled makes room.
    assert before[1].cancel()
    after = submit(queue, 6, background=True)
    gate.open.set()
    assert [result(run) for run in (before[0], after)] == [[10, 20, 30], [60]]
    assert [values for _, values in gate.batches[1:]] == [[1, 2, 3], [6]]


def test_late_and_cancelled_background_runs_are_not_run(scheduler: Scheduler, clock: Clock) -> None:
    observer = Observed()
    queue = add(scheduler, SlowRun(clock), observer=observer)
    busy = BusyThreads(scheduler)
    late = submit(queue, 1, background=True, deadline=clock.now + 1)
    cancelled = submit(queue, 2, background=True)
    kept = submit(queue, 3, background=True)
    cancelled.cancel()
    clock.now += 2
    busy.release()
    assert result(kept) == [30]
    assert isinstance(error_of(late), DeadlineExceededError)
    assert isinstance(cancelled.error, CancelledError)
    until(lambda: observer.calls == [("ran in background", True)])


def test_a_background_run_ends_late_ones_to_fit(
    scheduler: Scheduler, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "MOST_WINDOWS", 1)
    queue = add(scheduler, SlowRun(clock))
    busy = BusyThreads(scheduler)
    late = submit(queue, 1, background=True, deadline=clock.now + 1)
    clock.now += 2
    kept = submit(queue, 2, background=True)
    assert isinstance(error_of(late), DeadlineExceededError)
    busy.release()
    assert result(kept) == [20]


def test_background_batches_change_neither_pace_nor_shares(
    scheduler: Scheduler, clock: Clock
) -> None:
    queue = add(scheduler, SlowRun(clock))
    result(submit(queue, 1, background=True))
    until(lambda: not queue.running)
    assert queue.service == 0
    assert queue._graphs["g"].pace == 0


def test_background_runs_load_no_model_and_do_not_delay_its_end(queue: Queue, gate: Gate) -> None:
    first = occupy(queue, gate)
    asked: list[str] = []
    waiting = submit(queue, 1, background=True)
    queue.pause("g", lambda: asked.append("g"))
    assert isinstance(error_of(waiting), NotReadyError)
    with pytest.raises(NotReadyError, match="a run in the background does not load it"):
        submit(queue, 2, background=True)
    assert asked == []
    queue.resume("g", 4)
    waiting = submit(queue, 3, background=True)
    queue.close(0.0)
    assert isinstance(error_of(waiting), NotReadyError)
    with pytest.raises(NotReadyError):
        submit(queue, 4, background=True)
    gate.open.set()
    assert result(first) == [0]


def test_error_of_a_background_batch_is_of_its_run_alone(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    gate.error = NotReadyError("closed")
    assert isinstance(error_of(submit(queue, 1, 2, background=True)), NotReadyError)
    gate.error = None
    assert result(submit(queue, 3, background=True)) == [30]
