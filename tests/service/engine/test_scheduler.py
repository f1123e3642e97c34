from __future__ import annotations

import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.engine import queues
from foretell.service.engine import run as runs
from foretell.service.engine import scheduler as module
from foretell.service.engine.queues import Limits, Queue
from foretell.service.engine.run import Run
from foretell.service.engine.scheduler import Scheduler, assemble
from foretell.service.errors import (
    DeadlineExceededError,
    DeviceLostError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
    ServiceError,
    TooLargeError,
)
from tests.service.conftest import Quiet
from tests.support.waiting import until

LATER = time.monotonic() + 3600
MAX_BATCH = 4
MAX_WINDOWS = 16
LIMITS = Limits(MAX_BATCH, MAX_WINDOWS, bytes=1 << 20)


class Gate:
    """A run function that notes its batches and holds them until told to go on."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[int]]] = []
        self.workers: set[tuple[int, str]] = set()
        self.entered = threading.Semaphore(0)
        self.open = threading.Event()
        self.error: BaseException | None = None

    def __call__(self, worker: int, graph: str, feeds: Arrays) -> Arrays:
        self.batches.append((graph, feeds["x"].tolist()))
        self.workers.add((worker, threading.current_thread().name))
        self.entered.release()
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        return {"y": feeds["x"] * 10}


class Told(Quiet):
    """An observer that notes what it is told."""

    def __init__(self) -> None:
        self.said: list[tuple[object, ...]] = []
        self.left = threading.Semaphore(0)

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        self.said.append(("ran", windows, limit, assembled >= 0, ran >= 0))

    def dropped(self, reason: str) -> None:
        self.said.append((reason,))
        self.left.release()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make(gate: Gate) -> Iterator[Callable[..., Scheduler]]:
    made: list[Scheduler] = []

    def build(threads: int = 1) -> Scheduler:
        made.append(Scheduler(threads))
        return made[-1]

    yield build
    gate.open.set()
    for scheduler in made:
        scheduler.close(5)


@pytest.fixture
def scheduler(make: Callable[..., Scheduler]) -> Scheduler:
    return make()


@pytest.fixture
def queue(scheduler: Scheduler, gate: Gate) -> Queue:
    return add(scheduler, gate)


def add(
    scheduler: Scheduler, run: Callable[..., Arrays], *, observer: Any = None, **limits: Any
) -> Queue:
    return scheduler.add(run, LIMITS._replace(**limits), observer or Quiet())


def submit(
    queue: Queue, *values: int, graph: str = "g", deadline: float = LATER, admitted: bool = False
) -> Run:
    return queue.submit(graph, {"x": np.array(values)}, deadline=deadline, admitted=admitted)


def occupy(queue: Queue, gate: Gate) -> Run:
    """Keep the only worker busy, so that what follows waits."""
    future = submit(queue, 0)
    assert gate.entered.acquire(timeout=30)
    return future


def result(future: Run) -> list[int]:
    values: list[int] = future.result(30)["y"].tolist()
    return values


def error_of(future: Run) -> ServiceError:
    with pytest.raises(ServiceError) as raised:
        future.result(30)
    return raised.value


def run_of(*values: int) -> Run:
    feeds = {"x": np.array(values), "z": np.array([[value, -value] for value in values])}
    return Run(Run.notify, "g", feeds)


class Held:
    """Keeps workers busy until it is released; all, or those with an index from `first` on."""

    def __init__(self, scheduler: Scheduler, first: int = 0) -> None:
        self._go_on = threading.Event()
        entered = threading.Semaphore(0)

        def hold(worker: int) -> None:
            entered.release()
            assert worker < first or self._go_on.wait(30)

        for _ in scheduler.on_threads(hold):
            assert entered.acquire(timeout=30)

    def release(self) -> None:
        self._go_on.set()


class Clock:
    """A clock of the test's own, for the batcher alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for user in (module, queues, runs):
        monkeypatch.setattr(user, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


class Costly:
    """A run function that takes some seconds of the clock for a batch of a graph, 1 if not said."""

    def __init__(self, clock: Clock, order: list[str] | None = None, **seconds: float) -> None:
        self.clock = clock
        self.seconds = seconds
        self.order: list[str] = [] if order is None else order
        self.then: Callable[[], None] = lambda: None

    def __call__(self, worker: int, graph: str, feeds: Arrays) -> Arrays:
        self.order.append(graph)
        self.clock.now += self.seconds.get(graph, 1.0)
        self.then()
        return {"y": feeds["x"] * 10}


@pytest.mark.parametrize(
    ("work", "batches"),
    [
        ([("g", [each]) for each in range(1, 7)], [("g", [1, 2, 3, 4]), ("g", [5, 6])]),
        # Large work holds up no small work.
        ([("g", [1, 2, 3, 4, 5, 6]), ("g", [7])], [("g", [1, 2, 3, 7]), ("g", [4, 5, 6])]),
        ([("a", [1]), ("b", [2]), ("a", [3])], [("a", [1, 3]), ("b", [2])]),
        ([("small", [1, 2, 3])], [("small", [1, 2]), ("small", [3])]),
    ],
)
def test_what_waits_goes_together(
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


def test_what_is_paused_waits_for_no_thread(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    asked: list[str] = []
    queue.pause("h", lambda: asked.append("never"))
    queue.pause("h", lambda: asked.append("h"))
    held = [submit(queue, 1, 2, graph="h"), submit(queue, 3, graph="h")]
    assert asked == ["h", "h"]
    assert result(submit(queue, 4)) == [40]
    assert queue.usage.windows == 3
    assert not any(run.done() for run in held)
    queue.resume("h", MAX_BATCH)
    queue.resume("h", MAX_BATCH)
    assert [result(run) for run in held] == [[10, 20], [30]]
    assert gate.batches == [("g", [4]), ("h", [1, 2, 3])]
    assert queue.usage.windows == 0


def test_what_waited_before_the_pause_is_run(queue: Queue, gate: Gate) -> None:
    occupied = occupy(queue, gate)
    before = submit(queue, 1, 2, graph="h")
    queue.pause("h", lambda: None)
    held = submit(queue, 3, graph="h")
    assert queue.usage.windows == 3
    settling = threading.Thread(target=queue.settle, args=(30,))
    settling.start()
    gate.open.set()
    assert [result(occupied), result(before)] == [[0], [10, 20]]
    settling.join(30)
    assert not settling.is_alive()
    assert not held.done()
    queue.resume("h", 1)
    assert result(held) == [30]


def test_settling_ends_in_time(queue: Queue, gate: Gate) -> None:
    running = occupy(queue, gate)
    began = time.monotonic()
    queue.settle(0.01)
    assert time.monotonic() - began >= 0.01
    assert not running.done()
    gate.open.set()
    assert result(running) == [0]


def test_what_cannot_be_had_is_refused(queue: Queue, gate: Gate) -> None:
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


def test_what_is_held_fails_together_or_by_age(scheduler: Scheduler, clock: Clock) -> None:
    queue = add(scheduler, Costly(clock))
    queue.pause("h", lambda: None)
    old = submit(queue, 1, 2, graph="h")
    clock.now += 1
    new = submit(queue, 3, graph="h")
    assert queue.fail_held(NotReadyError("too long"), before=clock.now - 1) == [old]
    assert isinstance(error_of(old), NotReadyError)
    assert not new.done()
    assert queue.usage.windows == 1
    clock.now += 2
    assert queue.note_loaded() == [new]
    assert (new.loading, new.submitted) == (2.0, clock.now)
    assert queue.fail_held(NotReadyError("refused")) == [new]
    assert queue.usage.bytes == 0


def test_a_run_that_waits_for_several_loads(scheduler: Scheduler, clock: Clock) -> None:
    queue = add(scheduler, Costly(clock))
    queue.pause("h", lambda: None)
    made = clock.now
    run = submit(queue, 1, graph="h")
    for seconds, counted in ((2.0, [run]), (5.0, [])):
        clock.now = made + seconds
        # It is counted once, and its age is that of all its waits.
        assert queue.note_loaded() == counted
        assert (run.loading, run.submitted) == (seconds, clock.now)
        assert queue.held_since == made
    assert queue.fail_held(NotReadyError("too long"), before=made - 1) == []
    assert queue.fail_held(NotReadyError("too long"), before=made) == [run]


def test_the_held_runs_of_one_graph_fail_alone(queue: Queue, gate: Gate) -> None:
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


def test_calls_beside_the_inference_threads_follow_one_another(scheduler: Scheduler) -> None:
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


def test_calls_beside_that_have_not_begun_are_cancelled_at_the_end(scheduler: Scheduler) -> None:
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


def test_what_is_paused_has_its_place_in_the_queue(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    queue.pause("h", lambda: None)
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


def test_slices_are_put_together_in_order_and_one_by_itself_is_not_copied() -> None:
    one = run_of(1, 2, 3)
    feeds = assemble([(one, 1, 3)])
    assert feeds["x"].tolist() == [2, 3]
    assert all(np.shares_memory(rows, one.feeds[name]) for name, rows in feeds.items())
    feeds = assemble([(one, 1, 3), (run_of(4), 0, 1)])
    assert feeds["x"].tolist() == [2, 3, 4]
    assert feeds["z"].tolist() == [[2, -2], [3, -3], [4, -4]]


def test_queues_never_share_a_batch(scheduler: Scheduler, queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    other = add(scheduler, lambda worker, graph, feeds: {"y": -feeds["x"]})
    futures = [submit(other, 1), submit(queue, 2), submit(other, 3)]
    gate.open.set()
    assert [result(future) for future in futures] == [[-1], [20], [-3]]


def test_free_workers_share_what_waits(make: Callable[..., Scheduler], gate: Gate) -> None:
    queue = add(make(threads=2), gate)
    future = submit(queue, 1, 2, 3, 4)
    for _ in range(2):
        assert gate.entered.acquire(timeout=30)
    gate.open.set()
    assert result(future) == [10, 20, 30, 40]
    assert sorted(values for _, values in gate.batches) == [[1, 2], [3, 4]]
    assert {worker for worker, _ in gate.workers} == {0, 1}


def test_the_last_worker_to_fall_asleep_wakes_first(make: Callable[..., Scheduler]) -> None:
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


def test_queues_have_even_shares_of_the_workers(scheduler: Scheduler, clock: Clock) -> None:
    run = Costly(clock, slow=3.0)
    held = Held(scheduler)
    futures = [submit(add(scheduler, run), *range(16), graph=graph) for graph in ("fast", "slow")]
    futures += [submit(add(scheduler, run), *range(16), graph="rest")]
    held.release()
    for future in futures:
        future.result(30)
    order = "".join(graph[0] for graph in run.order)
    assert order == "fsrfrfrsfrss"


def test_a_queue_that_comes_is_not_behind_one_that_was_there_before(
    scheduler: Scheduler, clock: Clock
) -> None:
    run = Costly(clock)
    hot, rare = add(scheduler, run, windows=400), add(scheduler, run)
    came: list[Run] = []

    def come() -> None:
        if len(run.order) == 50:
            came.append(submit(rare, 1, graph="rare"))

    run.then = come
    submit(hot, *range(400)).result(30)
    came[0].result(30)
    assert run.order.index("rare") == 50


def test_graphs_have_even_shares_of_a_queue(scheduler: Scheduler, clock: Clock) -> None:
    run = Costly(clock, slow=4.0)
    queue = add(scheduler, run, windows=100)
    held = Held(scheduler)
    futures = [submit(queue, *range(40), graph=graph) for graph in ("g", "slow")]
    held.release()
    for future in futures:
        future.result(30)
    assert run.order[:10] == ["g", "slow", *["g"] * 3, "slow", *["g"] * 4]


def test_what_runs_is_counted_with_what_it_will_take(
    make: Callable[..., Scheduler], clock: Clock
) -> None:
    scheduler = make(threads=8)
    run = Costly(clock, slow=8.0)
    queue = add(scheduler, run, windows=100)
    for graph in ("g", "slow"):
        held = Held(scheduler)
        future = submit(queue, 1, 2, 3, 4, graph=graph)
        held.release()
        future.result(30)
    run.order.clear()
    entered, go_on = threading.Semaphore(0), threading.Event()

    def wait() -> None:
        entered.release()
        assert go_on.wait(30)

    run.then = wait
    held = Held(scheduler)
    futures = [submit(queue, *range(40), graph=graph) for graph in ("g", "slow")]
    held.release()
    for _ in range(8):
        assert entered.acquire(timeout=30)
    # None of these batches is done.
    assert sorted(run.order) == [*["g"] * 7, "slow"]
    go_on.set()
    for future in futures:
        future.result(30)


def test_a_full_queue_refuses(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    submit(queue, *range(MAX_WINDOWS - 1))
    with pytest.raises(QueueFullError, match="15 windows are waiting and 2 more do not fit"):
        submit(queue, 1, 2)
    submit(queue, 1)
    assert queue.waiting == MAX_WINDOWS
    with pytest.raises(QueueFullError, match="1 more do not fit: at most 16 may wait") as full:
        submit(queue, 1)
    assert full.value.retry_after == 1


@pytest.mark.parametrize("limits", [{}, {"windows": 100, "bytes": 100}])
def test_what_never_fits_is_not_to_come_again(scheduler: Scheduler, limits: dict[str, int]) -> None:
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
def test_says_when_to_retry_by_the_pace_it_measured(
    make: Callable[..., Scheduler],
    clock: Clock,
    seconds: float,
    workers: int,
    lost: int,
    shared: bool,
    retry_after: tuple[int, int],
) -> None:
    """Workers that are lost, and queues that share them, make the wait longer."""

    def lose(worker: int) -> None:
        if worker >= workers - lost:
            raise DeviceLostError("the GPU is lost")

    scheduler = make(workers)
    queue = add(scheduler, Costly(clock, g=seconds), windows=40)
    for call in scheduler.on_threads(lose):
        call.exception(30)
    until(lambda: len(scheduler.on_threads(lambda _: None)) == workers - lost)
    held = Held(scheduler)
    first = submit(queue, 1, 2, 3, 4)
    held.release()
    first.result(30)
    held = Held(scheduler)
    submit(queue, *range(40))
    if shared:
        submit(add(scheduler, Costly(clock)), 1)
    for windows, expected in zip((20, 40), retry_after, strict=True):
        with pytest.raises(QueueFullError) as full:
            submit(queue, *range(windows))
        assert full.value.retry_after == expected
    held.release()


def test_what_continues_accepted_work_always_has_room(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    submit(queue, *range(MAX_WINDOWS))
    more = submit(queue, 1, 2, admitted=True)
    assert queue.waiting == MAX_WINDOWS + 2
    gate.open.set()
    assert result(more) == [10, 20]


def test_bytes_are_bounded_too(scheduler: Scheduler, gate: Gate) -> None:
    queue = add(scheduler, gate, bytes=10 * np.array([0]).nbytes)
    occupy(queue, gate)
    waiting = submit(queue, *range(9))
    with pytest.raises(QueueFullError, match="hold 80 bytes, where there are 80 and 8 more"):
        submit(queue, 1)
    assert waiting.cancel()
    gate.open.set()
    assert result(submit(queue, *range(9))) == [10 * value for value in range(9)]


def test_the_outputs_of_split_work_are_held_too(scheduler: Scheduler, gate: Gate) -> None:
    queue = add(scheduler, gate, bytes=20 * np.array([0]).nbytes)
    large = submit(queue, *range(8))
    assert gate.entered.acquire(timeout=30)
    submit(queue, *range(12)).cancel()
    gate.open.set()
    gate.open = threading.Event()
    assert gate.entered.acquire(timeout=30)
    # Half of the outputs are there, in an array for all.
    with pytest.raises(QueueFullError, match="where there are 128 and 40 more"):
        submit(queue, *range(5))
    fitting = submit(queue, *range(4))
    gate.open.set()
    assert result(large) == [10 * value for value in range(8)]
    fitting.result(30)
    submit(queue, *range(MAX_WINDOWS)).result(30)


def test_of_split_work_only_what_is_wanted_is_held(scheduler: Scheduler) -> None:
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


def test_cancelled_work_frees_its_place_at_once_and_is_not_run(scheduler: Scheduler) -> None:
    gate, told = Gate(), Told()
    queue = add(scheduler, gate, observer=told)
    occupy(queue, gate)
    gone, kept = submit(queue, *range(MAX_WINDOWS - 1)), submit(queue, 3)
    assert gone.cancel()
    assert gone.cancel()
    assert gone.done()
    assert queue.waiting == 1
    assert told.said.count(("cancelled",)) == 1
    gate.open.set()
    assert result(kept) == [30]
    assert gate.batches[1:] == [("g", [3])]
    assert queue.waiting == 0


def test_what_is_told_of_cancelled_work(scheduler: Scheduler) -> None:
    gate, told = Gate(), Told()
    queue = add(scheduler, gate, observer=told)
    running = occupy(queue, gate)
    # Its time was over already.
    assert submit(queue, 1, deadline=time.monotonic()).cancel()
    assert told.said == [("expired",)]
    # It runs: none of it is dropped.
    assert running.cancel()
    gate.open.set()
    queue.close(30)
    with pytest.raises(CancelledError):
        running.result(0)
    assert not {("cancelled",), ("expired",)} & set(told.said[1:])


def test_late_work_is_not_run_and_makes_way_for_other_work(
    scheduler: Scheduler, clock: Clock
) -> None:
    gate, told = Gate(), Told()
    queue = add(scheduler, gate, observer=told)
    held = Held(scheduler)
    late = [submit(queue, 1, 1, deadline=clock.now + seconds) for seconds in (1, 2)]
    kept = submit(queue, 2, deadline=clock.now + 3)
    clock.now += 2
    assert not any(future.done() for future in late)
    held.release()
    for future in late:
        assert isinstance(error_of(future), DeadlineExceededError)
    assert gate.entered.acquire(timeout=30)
    # They were told before the batch is done.
    assert told.said == [("expired",)] * 2
    gate.open.set()
    assert result(kept) == [20]
    assert gate.batches == [("g", [2])]


def test_a_worker_that_finds_late_work_alone_goes_on(scheduler: Scheduler, clock: Clock) -> None:
    gate, told = Gate(), Told()
    gate.open.set()
    queue = add(scheduler, gate, observer=told)
    late = submit(queue, *range(9), deadline=clock.now)
    assert isinstance(error_of(late), DeadlineExceededError)
    assert result(submit(queue, 1)) == [10]
    assert gate.batches == [("g", [1])]
    queue.close(30)


def test_a_full_queue_drops_what_is_late_first(scheduler: Scheduler, clock: Clock) -> None:
    gate, told = Gate(), Told()
    queue = add(scheduler, gate, observer=told)
    held = Held(scheduler)
    late = submit(queue, *range(5), deadline=clock.now + 1)
    kept = submit(queue, *range(8), deadline=clock.now + 2)
    clock.now += 1
    with pytest.raises(QueueFullError, match="8 windows are waiting and 9 more do not fit"):
        submit(queue, *range(9))
    assert late.done()
    assert isinstance(error_of(late), DeadlineExceededError)
    assert told.said == [("expired",)]
    assert not kept.done()
    clock.now += 1
    submit(queue, *range(9))
    assert kept.done()
    assert queue.waiting == 9
    gate.open.set()
    held.release()


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_split_work_that_ends_half_way_is_not_continued(
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


def test_work_knows_when_its_batches_ran(scheduler: Scheduler, clock: Clock) -> None:
    queue = add(scheduler, Costly(clock))
    held = Held(scheduler)
    work = submit(queue, *range(6))
    clock.now += 1
    held.release()
    work.result(30)
    assert (work.submitted, work.began, work.ended) == (1000.0, 1001.0, 1003.0)
    assert work.batch == 4


def test_a_failure_reaches_every_waiter_of_the_batch_and_no_other(queue: Queue, gate: Gate) -> None:
    gate.error = ValueError("broken")
    first = occupy(queue, gate)
    together = [submit(queue, 1), submit(queue, 2, 3, 4, 5, 6)]
    gate.open.set()
    failures = [error_of(future) for future in (first, *together)]
    assert {type(failure) for failure in failures} == {ModelFailedError}
    assert all(failure.__cause__ is gate.error for failure in failures)
    assert len(set(map(id, failures))) == 3
    gate.error = None
    assert result(submit(queue, 7)) == [70]
    # The failed part of the split work was enough: its rest was dropped.
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [7]]


def test_a_failure_holds_nothing_of_its_batch(queue: Queue, gate: Gate) -> None:
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


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(1), KeyboardInterrupt()])
def test_whatever_a_run_raises_is_told_and_the_worker_lives_on(
    queue: Queue, gate: Gate, error: BaseException
) -> None:
    gate.error = error
    gate.open.set()
    failure = error_of(submit(queue, 1))
    assert isinstance(failure, ModelFailedError)
    assert failure.__cause__ is error
    gate.error = None
    assert result(submit(queue, 2)) == [20]


@pytest.mark.parametrize("rows", [np.zeros(1), np.zeros(3), np.float64(0)])
def test_outputs_that_are_not_one_for_each_window_are_nobodys(
    scheduler: Scheduler, rows: np.ndarray
) -> None:
    queue = add(scheduler, lambda worker, graph, feeds: {"y": rows})
    failure = error_of(submit(queue, 1, 2))
    assert isinstance(failure, ModelFailedError)
    assert "a batch of 2 windows came out as y" in failure.message


class Failing(Quiet):
    """An observer that fails at whatever it is told."""

    def __getattribute__(self, name: str) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise MemoryError(name)

        return fail


def test_an_observer_that_fails_costs_nobody_an_answer(
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


def test_tells_of_every_batch_that_did_not_fail(scheduler: Scheduler) -> None:
    gate, told = Gate(), Told()
    queue = add(scheduler, gate, observer=told)
    queue.resume("g", 2)
    future = submit(queue, 1, 2, 3)
    gate.open.set()
    assert result(future) == [10, 20, 30]
    gate.error = ValueError("broken")
    error_of(submit(queue, 1))
    scheduler.close(30)
    assert told.said == [("ran", 2, 2, True, True), ("ran", 1, 2, True, True)]


def test_every_worker_makes_a_call_before_its_next_batch(
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
def test_what_a_call_raises_is_its_future_s(scheduler: Scheduler, error: BaseException) -> None:
    (failing,) = scheduler.on_threads(Mock(side_effect=error))
    assert failing.exception(30) is error
    (future,) = scheduler.on_threads(lambda worker: None)
    assert future.result(30) is None


def test_a_cancelled_call_is_not_made(scheduler: Scheduler, queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    made: list[int] = []
    (first,) = scheduler.on_threads(made.append)
    assert first.cancel()
    (second,) = scheduler.on_threads(made.append)
    gate.open.set()
    second.result(30)
    assert made == [0]


def close_in_thread(close: Callable[[float], None], queue: Queue) -> threading.Thread:
    """Begin to close with time enough; returns once new work is refused."""
    closing = threading.Thread(target=close, args=(30,))
    closing.start()
    until(lambda: queue.closing)
    return closing


def test_a_worker_whose_device_is_lost_leaves_the_work_to_others(
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
    held = Held(scheduler, first=1)
    with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
        submit(queue, 1).result(30)
    until(lambda: len(scheduler.on_threads(lambda _: None)) == 1)
    waiting = submit(queue, 2)
    held.release()
    assert result(waiting) == [20]
    for value in range(20):
        assert result(submit(queue, value)) == [10 * value]
    assert set(ran[1:]) == {1}
    (call,) = scheduler.on_threads(lambda worker: ran.append(worker))
    call.result(30)


def test_a_device_that_is_lost_in_a_call(make: Callable[..., Scheduler]) -> None:
    def fail(worker: int) -> None:
        if worker == 0:
            raise DeviceLostError("GPU 0 is lost")

    scheduler = make(threads=2)
    first, second = scheduler.on_threads(fail)
    assert isinstance(first.exception(30), DeviceLostError)
    second.result(30)
    until(lambda: len(scheduler.on_threads(lambda _: None)) == 1)


def test_without_any_device_all_that_waits_is_told(
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


@pytest.mark.parametrize("which", ["queue", "batcher"])
def test_close_finishes_what_was_accepted(
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


def test_close_waits_for_what_runs_and_for_no_more(scheduler: Scheduler) -> None:
    gate = Gate()
    idle, busy = add(scheduler, gate), add(scheduler, gate)
    running = occupy(busy, gate)
    waiting = submit(idle, 1)
    closing = [close_in_thread(queue.close, queue) for queue in (idle, busy)]
    assert waiting.cancel()
    # Nobody waits for the batch that runs.
    assert running.cancel()
    closing[0].join(10)
    closing[1].join(0.05)
    assert [thread.is_alive() for thread in closing] == [False, True]
    gate.open.set()
    closing[1].join(10)
    assert not closing[1].is_alive()
    # Others go on.
    assert result(submit(add(scheduler, gate), 1)) == [10]
    busy.close(30)


@pytest.mark.parametrize("which", ["queue", "batcher"])
def test_close_gives_up_in_time(scheduler: Scheduler, queue: Queue, gate: Gate, which: str) -> None:
    running = occupy(queue, gate)
    queue.pause("h", lambda: None)
    large, small, held = submit(queue, *range(9)), submit(queue, 1), submit(queue, 1, graph="h")
    (call,) = scheduler.on_threads(lambda worker: None)
    (queue if which == "queue" else scheduler).close(0.01)
    for waiting in (large, small, held):
        with pytest.raises(NotReadyError, match="stopped before"):
            waiting.result(0)
    assert queue.waiting == 0
    if which == "batcher":
        assert isinstance(call.exception(0), NotReadyError)
    # The batch that runs is not interrupted, and a second call waits for it.
    assert not running.done()
    gate.open.set()
    queue.close(30)
    assert running.result(0)["y"].tolist() == [0]


def test_a_closed_batcher_takes_nothing_and_its_threads_have_ended(
    scheduler: Scheduler, queue: Queue, gate: Gate
) -> None:
    before = threading.active_count()
    scheduler.close(30)
    # One inference thread, and the one beside them.
    assert threading.active_count() == before - 2
    for take in (
        lambda: submit(queue, 1),
        lambda: add(scheduler, gate),
        lambda: scheduler.on_threads(lambda worker: None),
    ):
        with pytest.raises(NotReadyError):
            take()
