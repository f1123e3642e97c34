from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait

import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.batcher import Batcher
from foretell.service.batching.queue import Queue
from foretell.service.errors import (
    DeadlineExceededError,
    DeviceLostError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
)
from tests.service.conftest import Quiet

LATER = time.monotonic() + 3600
MAX_BATCH = 4
MAX_WINDOWS = 16


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
        self.dropped = threading.Semaphore(0)

    def waited(self, seconds: float) -> None:
        self.said.append(("waited", seconds >= 0))

    def assembled(self, seconds: float) -> None:
        self.said.append(("assembled", seconds >= 0))

    def ran(self, windows: int, seconds: float) -> None:
        self.said.append(("ran", windows, seconds >= 0))

    def filled(self, fraction: float) -> None:
        self.said.append(("filled", fraction))

    def expired(self) -> None:
        self.said.append(("expired",))
        self.dropped.release()

    def cancelled(self) -> None:
        self.said.append(("cancelled",))
        self.dropped.release()


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def make(gate: Gate) -> Iterator[Callable[..., Batcher]]:
    made: list[Batcher] = []

    def build(workers: int = 1) -> Batcher:
        made.append(Batcher(workers))
        return made[-1]

    yield build
    gate.open.set()
    for batcher in made:
        batcher.close(5)


@pytest.fixture
def batcher(make: Callable[..., Batcher]) -> Batcher:
    return make()


@pytest.fixture
def queue(batcher: Batcher, gate: Gate) -> Queue:
    return add(batcher, gate)


def add(batcher: Batcher, run: Callable[..., Arrays], **options: object) -> Queue:
    limits = {"max_batch": MAX_BATCH, "max_windows": MAX_WINDOWS, "max_bytes": 1 << 20}
    return batcher.add(run, **{**limits, "observer": Quiet(), **options})  # type: ignore[arg-type]


def submit(
    queue: Queue, *values: int, graph: str = "g", deadline: float = LATER, admitted: bool = False
) -> Future[Arrays]:
    return queue.submit(graph, {"x": np.array(values)}, deadline=deadline, admitted=admitted)


def occupy(queue: Queue, gate: Gate) -> Future[Arrays]:
    """Keep the only worker busy, so that what follows waits."""
    future = submit(queue, 0)
    assert gate.entered.acquire(timeout=30)
    return future


def result(future: Future[Arrays]) -> list[int]:
    values: list[int] = future.result(30)["y"].tolist()
    return values


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_runs_alone_at_once(queue: Queue, gate: Gate) -> None:
    gate.open.set()
    assert result(submit(queue, 1, 2)) == [10, 20]


def test_whatever_waits_goes_together_up_to_the_largest_batch(queue: Queue, gate: Gate) -> None:
    first = occupy(queue, gate)
    futures = [submit(queue, value) for value in range(1, 7)]
    gate.open.set()
    assert [result(future) for future in [first, *futures]] == [[v * 10] for v in range(7)]
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [5, 6]]


def test_large_work_is_split_and_holds_up_no_small_work(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    large = submit(queue, 1, 2, 3, 4, 5, 6)
    small = submit(queue, 7)
    gate.open.set()
    assert result(large) == [10, 20, 30, 40, 50, 60]
    assert result(small) == [70]
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 7], [4, 5, 6]]


def test_graphs_never_share_a_batch(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    futures = [submit(queue, 1, graph="a"), submit(queue, 2, graph="b")]
    futures.append(submit(queue, 3, graph="a"))
    gate.open.set()
    for future in futures:
        future.result(30)
    assert gate.batches[1:] == [("a", [1, 3]), ("b", [2])]


def test_queues_never_share_a_batch(batcher: Batcher, queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    other = add(batcher, lambda worker, graph, feeds: {"y": -feeds["x"]})
    futures = [submit(other, 1), submit(queue, 2), submit(other, 3)]
    gate.open.set()
    assert [result(future) for future in futures] == [[-1], [20], [-3]]


def test_a_graph_may_have_smaller_batches(batcher: Batcher, gate: Gate) -> None:
    queue = add(batcher, gate, graph_limits={"large": 2})
    gate.open.set()
    futures = [submit(queue, 1, 2, 3, graph=graph) for graph in ("large", "g")]
    assert [result(future) for future in futures] == [[10, 20, 30]] * 2
    assert sorted(gate.batches) == [("g", [1, 2, 3]), ("large", [1, 2]), ("large", [3])]


def test_free_workers_share_what_waits(make: Callable[..., Batcher], gate: Gate) -> None:
    queue = add(make(workers=2), gate)
    future = submit(queue, 1, 2, 3, 4)
    for _ in range(2):
        assert gate.entered.acquire(timeout=30)
    gate.open.set()
    assert result(future) == [10, 20, 30, 40]
    assert sorted(values for _, values in gate.batches) == [[1, 2], [3, 4]]
    assert {worker for worker, _ in gate.workers} == {0, 1}


def test_a_single_work_is_not_copied(batcher: Batcher) -> None:
    seen: list[Arrays] = []

    def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
        seen.append(feeds)
        return feeds

    rows = np.arange(3)
    outputs = add(batcher, run).submit("g", {"x": rows}, deadline=LATER).result(30)
    assert np.shares_memory(seen[0]["x"], rows)
    assert np.shares_memory(outputs["x"], rows)


def test_a_full_queue_refuses_and_says_when_to_retry(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    submit(queue, *range(MAX_WINDOWS - 1))
    queue.check_room()
    submit(queue, 1)
    assert queue.waiting == MAX_WINDOWS
    with pytest.raises(
        QueueFullError, match="16 windows are waiting and 1 more do not fit: at most 16"
    ) as full:
        submit(queue, 1)
    assert full.value.retry_after == 1
    with pytest.raises(QueueFullError):
        queue.check_room()


def test_what_continues_accepted_work_always_has_room(queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    submit(queue, *range(MAX_WINDOWS))
    more = submit(queue, 1, 2, admitted=True)
    assert queue.waiting == MAX_WINDOWS + 2
    gate.open.set()
    assert result(more) == [10, 20]


def test_bytes_are_bounded_too(batcher: Batcher, gate: Gate) -> None:
    queue = add(batcher, gate, max_bytes=10 * np.array([0]).nbytes)
    occupy(queue, gate)
    waiting = submit(queue, *range(9))
    with pytest.raises(QueueFullError):
        queue.check_room()
    with pytest.raises(QueueFullError):
        submit(queue, 1)
    waiting.cancel()
    gate.open.set()
    assert result(submit(queue, *range(9))) == [10 * value for value in range(9)]


def test_cancelled_work_frees_its_place_at_once_and_is_not_run(batcher: Batcher) -> None:
    gate, told = Gate(), Told()
    queue = add(batcher, gate, observer=told)
    occupy(queue, gate)
    gone, kept = submit(queue, *range(MAX_WINDOWS - 1)), submit(queue, 3)
    assert gone.cancel()
    assert queue.waiting == 1
    assert ("cancelled",) in told.said
    # Who waits for several of them is not kept waiting.
    assert wait([gone], timeout=30).done
    gate.open.set()
    assert result(kept) == [30]
    assert gate.batches[1:] == [("g", [3])]
    assert queue.waiting == 0


def test_expired_work_is_told_and_frees_its_place_while_all_workers_are_busy(
    batcher: Batcher,
) -> None:
    gate, told = Gate(), Told()
    queue = add(batcher, gate, observer=told)
    occupy(queue, gate)
    kept = submit(queue, 2)
    late = [submit(queue, 1, 1, deadline=time.monotonic() + wait) for wait in (0.05, 0, 0.01)]
    for future in late:
        assert isinstance(future.exception(30), DeadlineExceededError)
        assert told.dropped.acquire(timeout=30)
    assert queue.waiting == 1
    assert told.said.count(("expired",)) == 3
    gate.open.set()
    assert result(kept) == [20]
    assert gate.batches[1:] == [("g", [2])]


def test_who_waits_for_a_batch_that_runs_for_too_long_is_told_too(batcher: Batcher) -> None:
    gate, told = Gate(), Told()
    queue = add(batcher, gate, observer=told)
    running = submit(queue, 1, deadline=time.monotonic() + 0.02)
    assert isinstance(running.exception(30), DeadlineExceededError)
    gate.open.set()
    assert result(submit(queue, 2)) == [20]
    # It was run, and so was not dropped.
    assert ("expired",) not in told.said


@pytest.mark.parametrize("end", ["cancel", "expire"])
def test_split_work_that_ends_half_way_is_not_continued(queue: Queue, gate: Gate, end: str) -> None:
    deadline = time.monotonic() + 0.05 if end == "expire" else LATER
    large = submit(queue, 1, 2, 3, 4, 5, deadline=deadline)
    assert gate.entered.acquire(timeout=30)
    if end == "cancel":
        assert large.cancel()
    else:
        assert isinstance(large.exception(30), DeadlineExceededError)
    assert queue.waiting == 0
    gate.open.set()
    assert result(submit(queue, 6)) == [60]
    assert [values for _, values in gate.batches] == [[1, 2, 3, 4], [6]]


def test_a_failure_reaches_every_waiter_of_the_batch_and_no_other(queue: Queue, gate: Gate) -> None:
    gate.error = ValueError("broken")
    first = occupy(queue, gate)
    together = [submit(queue, 1), submit(queue, 2, 3, 4, 5, 6)]
    gate.open.set()
    failures = [future.exception(30) for future in (first, *together)]
    assert {type(failure) for failure in failures} == {ModelFailedError}
    assert all(failure is not None and failure.__cause__ is gate.error for failure in failures)
    assert len(set(map(id, failures))) == 3
    gate.error = None
    assert result(submit(queue, 7)) == [70]
    # The failed part of the split work was enough: its rest was dropped.
    assert [values for _, values in gate.batches] == [[0], [1, 2, 3, 4], [7]]


@pytest.mark.parametrize(
    "error",
    [
        NotReadyError("not now", param="model"),
        QueueFullError("full elsewhere", retry_after=7),
    ],
)
def test_a_domain_error_stays_what_it_is(queue: Queue, gate: Gate, error: Exception) -> None:
    gate.error = error
    error.__cause__ = reason = OSError("gone")
    gate.open.set()
    failure = submit(queue, 1).exception(30)
    assert failure is not None
    assert failure is not error
    assert type(failure) is type(error)
    assert (str(failure), vars(failure), failure.__cause__) == (str(error), vars(error), reason)


@pytest.mark.parametrize("error", [MemoryError(), SystemExit(1), KeyboardInterrupt()])
def test_whatever_a_run_raises_is_told_and_the_worker_lives_on(
    queue: Queue, gate: Gate, error: BaseException
) -> None:
    gate.error = error
    gate.open.set()
    failure = submit(queue, 1).exception(30)
    assert isinstance(failure, ModelFailedError)
    assert failure.__cause__ is error
    gate.error = None
    assert result(submit(queue, 2)) == [20]


@pytest.mark.parametrize("rows", [np.zeros(1), np.zeros(3), np.float64(0)])
def test_outputs_that_are_not_one_for_each_window_are_nobodys(
    batcher: Batcher, rows: np.ndarray
) -> None:
    queue = add(batcher, lambda worker, graph, feeds: {"y": rows})
    failure = submit(queue, 1, 2).exception(30)
    assert isinstance(failure, ModelFailedError)
    assert "a batch of 2 windows came out as y" in failure.message


class Failing(Quiet):
    """An observer that fails at whatever it is told."""

    def __getattribute__(self, name: str) -> Callable[..., None]:
        def fail(*_: object) -> None:
            raise MemoryError(name)

        return fail


def test_an_observer_that_fails_costs_nobody_an_answer(
    batcher: Batcher, gate: Gate, caplog: pytest.LogCaptureFixture
) -> None:
    queue = add(batcher, gate, observer=Failing())
    first = occupy(queue, gate)
    assert submit(queue, 1).cancel()
    late = submit(queue, 1, deadline=time.monotonic())
    assert isinstance(late.exception(30), DeadlineExceededError)
    gate.open.set()
    assert result(first) == [0]
    assert result(submit(queue, 2)) == [20]
    assert "a queue's observer failed" in caplog.text


def test_tells_of_every_batch(batcher: Batcher) -> None:
    gate, told = Gate(), Told()
    queue = add(batcher, gate, observer=told, graph_limits={"g": 2})
    future = submit(queue, 1, 2, 3)
    gate.open.set()
    assert result(future) == [10, 20, 30]
    queue.close(30)
    assert told.said == [
        ("waited", True),
        ("assembled", True),
        ("ran", 2, True),
        ("filled", 1.0),
        ("assembled", True),
        ("ran", 1, True),
        ("filled", 0.5),
    ]


def test_every_worker_makes_a_call_before_its_next_batch(
    make: Callable[..., Batcher], gate: Gate
) -> None:
    batcher = make(workers=2)
    queue = add(batcher, gate)
    running = [submit(queue, 1), submit(queue, 2)]
    for _ in running:
        assert gate.entered.acquire(timeout=30)
    waiting = submit(queue, 3, 4)
    order: list[object] = []
    calls = batcher.on_workers(
        lambda worker: order.append((worker, threading.current_thread().name, len(gate.batches)))
    )
    gate.open.set()
    for call in calls:
        call.result(30)
    assert result(waiting) == [30, 40]
    names = {(worker, name) for worker, name, _ in order}  # type: ignore[attr-defined]
    assert names == gate.workers == {(0, "batcher-0"), (1, "batcher-1")}
    assert order[0][2] == 2  # type: ignore[index]


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_what_a_call_raises_is_its_future_s(batcher: Batcher, error: BaseException) -> None:
    def fail(worker: int) -> None:
        raise error

    (future,) = batcher.on_workers(fail)
    assert future.exception(30) is error
    (future,) = batcher.on_workers(lambda worker: None)
    assert future.result(30) is None


def test_a_cancelled_call_is_not_made(batcher: Batcher, queue: Queue, gate: Gate) -> None:
    occupy(queue, gate)
    made: list[int] = []
    (first,) = batcher.on_workers(made.append)
    assert first.cancel()
    (second,) = batcher.on_workers(made.append)
    gate.open.set()
    second.result(30)
    assert made == [0]


def close_in_thread(close: Callable[[float], None], queue: Queue) -> threading.Thread:
    """Begin to close with time enough; returns once new work is refused."""
    closing = threading.Thread(target=close, args=(30,))
    closing.start()
    until(lambda: queue._backlog.draining)
    return closing


def test_a_worker_whose_device_is_lost_leaves_the_work_to_others(
    make: Callable[..., Batcher],
) -> None:
    batcher = make(workers=2)
    ran: list[int] = []

    def run(worker: int, graph: str, feeds: Arrays) -> Arrays:
        ran.append(worker)
        if worker == 1:
            raise DeviceLostError("GPU 1 is lost")
        return {"y": feeds["x"] * 10}

    queue = add(batcher, run)
    lost = 0
    while not lost:
        (error,) = (submit(queue, 1).exception(30),)
        if error is not None:
            assert isinstance(error, DeviceLostError)
            assert error.message == "GPU 1 is lost"
            lost += 1
    until(lambda: not batcher._workers[1].is_alive())
    ran.clear()
    for value in range(20):
        assert result(submit(queue, value)) == [10 * value]
    assert set(ran) == {0}
    (call,) = batcher.on_workers(lambda worker: ran.append(worker))
    call.result(30)


def test_a_device_that_is_lost_in_a_call(make: Callable[..., Batcher]) -> None:
    batcher = make(workers=2)

    def fail(worker: int) -> None:
        if worker == 0:
            raise DeviceLostError("GPU 0 is lost")

    first, second = batcher.on_workers(fail)
    assert isinstance(first.exception(30), DeviceLostError)
    second.result(30)
    until(lambda: not batcher._workers[0].is_alive())
    assert len(batcher.on_workers(fail)) == 1


def test_without_any_device_all_that_waits_is_told(
    batcher: Batcher, queue: Queue, gate: Gate
) -> None:
    futures = [occupy(queue, gate), *(submit(queue, value) for value in range(6))]
    (call,) = batcher.on_workers(lambda worker: None)
    gate.error = DeviceLostError("GPU 0 is lost")
    gate.open.set()
    for future in (*futures, call):
        error = future.exception(30)
        assert isinstance(error, DeviceLostError)
        assert error.message == "GPU 0 is lost"
    for refused in (lambda: submit(queue, 1), queue.check_room):
        with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
            refused()
    assert len(gate.batches) == 1
    queue.close(30)


@pytest.mark.parametrize("which", ["queue", "batcher"])
def test_close_finishes_what_was_accepted(
    batcher: Batcher, queue: Queue, gate: Gate, which: str
) -> None:
    futures = [occupy(queue, gate), *(submit(queue, value) for value in range(1, 8))]
    closing = close_in_thread(queue.close if which == "queue" else batcher.close, queue)
    with pytest.raises(NotReadyError, match="stopping"):
        submit(queue, 9)
    futures.append(submit(queue, 8, admitted=True))
    gate.open.set()
    closing.join(30)
    assert not closing.is_alive()
    assert [future.result(0)["y"].tolist() for future in futures] == [[v * 10] for v in range(9)]
    with pytest.raises(NotReadyError, match="stopping"):
        submit(queue, 9, admitted=True)


def test_a_closed_queue_is_no_matter_to_others(batcher: Batcher, queue: Queue, gate: Gate) -> None:
    gate.open.set()
    other = add(batcher, gate)
    queue.close(30)
    assert result(submit(other, 1)) == [10]
    queue.close(30)
    assert result(submit(add(batcher, gate), 1)) == [10]


@pytest.mark.parametrize("which", ["queue", "batcher"])
def test_close_gives_up_in_time(batcher: Batcher, queue: Queue, gate: Gate, which: str) -> None:
    running = occupy(queue, gate)
    large, small = submit(queue, *range(9)), submit(queue, 1)
    (call,) = batcher.on_workers(lambda worker: None)
    (queue if which == "queue" else batcher).close(0.01)
    for waiting in (large, small):
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
    batcher: Batcher, queue: Queue, gate: Gate
) -> None:
    before = threading.active_count()
    batcher.close(30)
    assert threading.active_count() == before - 2
    for take in (
        lambda: submit(queue, 1),
        lambda: add(batcher, gate),
        lambda: batcher.on_workers(lambda worker: None),
    ):
        with pytest.raises(NotReadyError):
            take()


def test_a_caller_that_cancels_as_the_batch_ends_harms_nobody(queue: Queue, gate: Gate) -> None:
    futures = [submit(queue, value) for value in range(8)]
    gate.open.set()
    for future in futures[::2]:
        future.cancel()
    for value, future in enumerate(futures):
        try:
            assert result(future) == [10 * value]
        except CancelledError:
            assert value % 2 == 0
    assert queue.waiting == 0
