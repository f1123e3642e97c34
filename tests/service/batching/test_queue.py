"""A queue whose work nobody runs: what a caller sees of it by himself."""

from __future__ import annotations

import time

import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.batching.backlog import Backlog, Batch
from foretell.service.batching.queue import Queue
from foretell.service.batching.room import Room
from foretell.service.batching.schedule import Schedule
from foretell.service.errors import NotReadyError, QueueFullError, TooLargeError
from tests.service.conftest import Quiet


class Counting(Quiet):
    """An observer that counts what is dropped."""

    def __init__(self) -> None:
        self.dropped: list[str] = []

    def expired(self) -> None:
        self.dropped.append("expired")

    def cancelled(self) -> None:
        self.dropped.append("cancelled")


def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
    raise AssertionError("there are no workers")


@pytest.fixture
def observer() -> Counting:
    return Counting()


@pytest.fixture
def schedule() -> Schedule:
    return Schedule(workers=1)


@pytest.fixture
def queue(schedule: Schedule, observer: Counting) -> Queue:
    backlog = Backlog(run, observer, Room(8, 1 << 20), 4, {})
    schedule.add(backlog)
    return Queue(schedule, backlog)


def feeds(windows: int) -> Arrays:
    return {"x": np.zeros(windows)}


def later() -> float:
    return time.monotonic() + 3600


def test_counts_windows(queue: Queue) -> None:
    future = queue.submit("g", feeds(5), deadline=later())
    assert queue.waiting == 5
    assert not future.done()


def test_refuses_what_does_not_fit(queue: Queue) -> None:
    queue.submit("g", feeds(5), deadline=later())
    with pytest.raises(QueueFullError):
        queue.submit("g", feeds(4), deadline=later())
    with pytest.raises(TooLargeError):
        queue.submit("g", feeds(9), deadline=later())
    queue.submit("g", feeds(9), deadline=later(), admitted=True)
    assert queue.waiting == 14
    with pytest.raises(QueueFullError):
        queue.check_room()


def test_who_cancels_is_dropped(queue: Queue, observer: Counting) -> None:
    future = queue.submit("g", feeds(5), deadline=later())
    assert future.cancel()
    assert future.cancel()
    assert queue.waiting == 0
    assert observer.dropped == ["cancelled"]


def test_who_cancels_when_his_time_is_over_has_expired(queue: Queue, observer: Counting) -> None:
    """Callers watch the deadline too, and may be the first to find out."""
    queue.submit("g", feeds(5), deadline=time.monotonic()).cancel()
    assert observer.dropped == ["expired"]


def test_what_is_being_run_is_not_dropped(
    queue: Queue, schedule: Schedule, observer: Counting
) -> None:
    future = queue.submit("g", feeds(4), deadline=later())
    batch = schedule.next(0)
    assert isinstance(batch, Batch)
    assert future.cancel()
    assert observer.dropped == []
    assert schedule.delivered(batch) == []


def test_a_closed_queue_refuses(queue: Queue) -> None:
    left = queue.submit("g", feeds(1), deadline=later())
    queue.close(0)
    assert isinstance(left.exception(0), NotReadyError)
    for admitted in (False, True):
        with pytest.raises(NotReadyError, match="stopping"):
            queue.submit("g", feeds(1), deadline=later(), admitted=admitted)
