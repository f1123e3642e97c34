"""Who runs what, on a clock of the test's own and without threads that run anything."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.batching import schedule as module
from foretell.service.batching.backlog import Backlog, Batch
from foretell.service.batching.call import Call
from foretell.service.batching.room import Room
from foretell.service.batching.schedule import Schedule
from foretell.service.batching.work import Work
from foretell.service.errors import DeviceLostError, NotReadyError, QueueFullError
from tests.service.conftest import Quiet


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


@pytest.fixture
def schedule(clock: Clock) -> Schedule:
    return Schedule(workers=2)


def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
    raise AssertionError("a schedule runs nothing")


def add(schedule: Schedule, max_windows: int = 1000) -> Backlog:
    backlog = Backlog(run, Quiet(), Room(max_windows, 1 << 20), 4, {})
    schedule.add(backlog)
    return backlog


def put(
    schedule: Schedule, backlog: Backlog, windows: int, graph: str = "g", seconds: float = 3600.0
) -> Work:
    now = module.time.monotonic()
    work = Work(graph, {"x": np.zeros(windows)}, now + seconds, submitted=now)
    schedule.put(backlog, work, admitted=False)
    return work


def take(schedule: Schedule, worker: int = 0) -> Batch:
    assert schedule._waiting, "it would wait for ever"
    batch = schedule.next(worker)
    assert isinstance(batch, Batch)
    return batch


def test_queues_have_even_shares_of_the_workers(schedule: Schedule, clock: Clock) -> None:
    fast, slow = add(schedule), add(schedule)
    for backlog in (fast, slow):
        put(schedule, backlog, 900)
    windows = {fast: 0, slow: 0}
    for _ in range(100):
        batch = take(schedule)
        clock.now += 3.0 if batch.backlog is slow else 1.0
        schedule.delivered(batch)
        schedule.done(batch)
        windows[batch.backlog] += batch.windows
    assert windows == {fast: 4 * 75, slow: 4 * 25}


def test_a_queue_that_comes_is_not_behind_one_that_was_there_before(
    schedule: Schedule, clock: Clock
) -> None:
    hot, rare = add(schedule), add(schedule)
    put(schedule, hot, 900)
    for _ in range(50):
        batch = take(schedule)
        clock.now += 1.0
        schedule.done(batch)
    put(schedule, rare, 1)
    assert take(schedule).backlog is rare


def test_says_when_to_retry_by_what_was_measured(schedule: Schedule, clock: Clock) -> None:
    backlog, other = add(schedule, max_windows=40), add(schedule)
    put(schedule, backlog, 4)
    batch = take(schedule)
    clock.now += 2.0
    schedule.delivered(batch)
    schedule.done(batch)
    put(schedule, backlog, 40)
    for windows, seconds in ((40, 10), (20, 5)):
        # Half a second a window, and there are two workers.
        with pytest.raises(QueueFullError) as full:
            put(schedule, backlog, windows)
        assert full.value.retry_after == seconds
    put(schedule, other, 1)
    with pytest.raises(QueueFullError) as full:
        put(schedule, backlog, 40)
    assert full.value.retry_after == 20, "another queue has half of the workers"
    with pytest.raises(QueueFullError) as full:
        schedule.check_room(backlog)
    assert full.value.retry_after == 1


def test_work_ends_once(schedule: Schedule) -> None:
    backlog = add(schedule)
    one, two, three = (put(schedule, backlog, 1) for _ in range(3))
    batch = take(schedule)
    assert schedule.drop(backlog, one)
    assert not schedule.drop(backlog, one)
    assert schedule.delivered(batch) == [two, three]
    assert schedule.failed(batch) == []
    assert schedule.delivered(batch) == []
    assert not schedule.drop(backlog, two)
    assert schedule.close(backlog, 0) == []


def test_work_knows_when_its_batches_ran(schedule: Schedule, clock: Clock) -> None:
    backlog = add(schedule)
    work = put(schedule, backlog, 6)
    batches = []
    for _ in range(2):
        clock.now += 1.0
        batches.append(take(schedule))
    for batch in batches:
        clock.now += 1.0
        schedule.delivered(batch)
    assert (work.began, work.ended) == (work.submitted + 1.0, work.submitted + 4.0)
    assert work.batch == 4


def test_what_has_expired_is_in_nobodys_way(schedule: Schedule, clock: Clock) -> None:
    backlog = add(schedule, max_windows=4)
    late = put(schedule, backlog, 3, seconds=1.0)
    clock.now += 1.0
    # Whoever comes first finds out.
    work = put(schedule, backlog, 4)
    assert [part.work for part in take(schedule).slices] == [work]
    late_too = put(schedule, backlog, 4, seconds=0.0)
    schedule.check_room(backlog)
    assert schedule.late() == [(backlog, late), (backlog, late_too)]


def test_split_work_that_has_ended_keeps_no_outputs(schedule: Schedule) -> None:
    backlog = add(schedule)
    work = put(schedule, backlog, 8)
    take(schedule)
    outputs = {"y": np.zeros((4, 2))}
    assert schedule.keep(backlog, work, outputs)["y"].shape == (8, 2)
    schedule.drop(backlog, work)
    assert schedule.keep(backlog, work, outputs) == {}
    assert backlog.room.bytes == 0


def test_a_timer_waits_for_the_earliest_deadline() -> None:
    schedule = Schedule(workers=1)
    backlog = add(schedule)
    late: list[tuple[Backlog, Work]] = []

    def watch() -> None:
        while len(late) < 3:
            late.extend(schedule.late() or ())

    timer = threading.Thread(target=watch, daemon=True)
    timer.start()
    put(schedule, backlog, 1, seconds=3600.0)
    gone = put(schedule, backlog, 1, seconds=0.01)
    schedule.drop(backlog, gone)
    works = [put(schedule, backlog, 1, seconds=seconds) for seconds in (0.04, 0.02, -1.0)]
    timer.join(30)
    assert not timer.is_alive()
    assert time.monotonic() >= works[0].deadline
    assert [work for _, work in late] == works[::-1]
    assert backlog.waiting == 1


def test_calls_come_before_batches_and_are_lost_when_it_stops(schedule: Schedule) -> None:
    backlog = add(schedule)
    work = put(schedule, backlog, 8)
    calls = schedule.call(print)
    assert schedule.next(1) is calls[1]
    assert take(schedule, worker=1).windows == 4
    assert schedule.close(None, timeout=0) == [work]
    assert schedule.stop() == [calls[0]]
    assert schedule.next(0) is None
    assert schedule.late() is None
    for come in (lambda: schedule.call(print), lambda: schedule.add(backlog)):
        with pytest.raises(NotReadyError):
            come()


def test_who_has_left_is_called_no_more(schedule: Schedule) -> None:
    calls = schedule.call(print)
    assert schedule.retire(1, "GPU 1 is lost") == calls[1:]
    backlog = add(schedule)
    work = put(schedule, backlog, 1)
    assert len(schedule.call(print)) == 1
    assert schedule.next(0) is calls[0]
    assert isinstance(schedule.next(0), Call)
    assert [part.work for part in take(schedule).slices] == [work]


def test_who_is_left_sets_the_pace(schedule: Schedule, clock: Clock) -> None:
    backlog = add(schedule, max_windows=40)
    put(schedule, backlog, 4)
    batch = take(schedule)
    clock.now += 2.0
    schedule.delivered(batch)
    schedule.done(batch)
    schedule.retire(1, "GPU 1 is lost")
    put(schedule, backlog, 40)
    with pytest.raises(QueueFullError) as full:
        put(schedule, backlog, 40)
    assert full.value.retry_after == 20


def test_without_workers_nothing_waits(schedule: Schedule) -> None:
    backlogs = [add(schedule), add(schedule)]
    works = [put(schedule, backlog, 6) for backlog in backlogs]
    batch = take(schedule)
    assert schedule.retire(1, "GPU 1 is lost") == []
    schedule.failed(batch)
    schedule.done(batch)
    left = [work for work in works if work is not batch.slices[0].work]
    assert schedule.retire(0, "GPU 0 is lost") == left
    for refused in (
        lambda: put(schedule, backlogs[0], 1),
        lambda: schedule.check_room(backlogs[0]),
    ):
        with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
            refused()
    assert schedule.call(print) == []
    assert schedule.close(None, timeout=30) == []


def test_a_queue_that_was_closed_is_forgotten(schedule: Schedule, clock: Clock) -> None:
    backlog, other = add(schedule), add(schedule)
    works = [put(schedule, backlog, 4) for _ in range(2)]
    batch = take(schedule)
    assert schedule.close(backlog, 0) == works[1:]
    kept = put(schedule, other, 1)
    assert [part.work for part in take(schedule).slices] == [kept]
    clock.now += 1.0
    assert schedule.delivered(batch) == works[:1]
    schedule.done(batch)
    assert not backlog.busy
    assert len(schedule._turns._had) == 1
