"""Whatever comes, and in whatever order: everyone gets one outcome, which is his."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.arrays import Arrays
from foretell.service.engine.queues import Limits, Queue
from foretell.service.engine.run import Run
from foretell.service.engine.scheduler import Scheduler
from foretell.service.errors import (
    DeadlineExceededError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
    ServiceError,
)
from tests.service.conftest import Quiet

MAX_BATCH = 4
GRAPH_LIMITS = {"b": 2}
MAX_WINDOWS = 16
MAX_BYTES = 24 * 3 * 8
QUEUES = 2
LONG = 3600.0


@dataclass
class Submitted:
    """Some work, and what became of it."""

    queue: int
    graph: str
    number: int
    windows: int
    fails: bool
    ends: str
    work: Run
    outcomes: int = 0

    def count(self, _: Run) -> None:
        self.outcomes += 1


class World:
    """A batcher of two queues whose runs wait for permits, and all that was submitted."""

    def __init__(self, workers: int) -> None:
        self.scheduler = Scheduler(workers)
        self.permits = threading.Semaphore(0)
        self.queues = [self._add(number) for number in range(QUEUES)]
        self.submitted: list[Submitted] = []
        self.calls: list[Future[None]] = []
        self.wrong: list[str] = []
        self._seen: dict[int, list[int]] = {}
        self._lock = threading.Lock()
        self._numbers = iter(range(10**9))

    def _add(self, number: int) -> Queue:
        queue = self.scheduler.add(
            lambda worker, graph, feeds: self._run(number, graph, feeds),
            Limits(MAX_BATCH, MAX_WINDOWS, MAX_BYTES),
            Quiet(),
        )
        for graph, most in GRAPH_LIMITS.items():
            queue.resume(graph, most)
        return queue

    def _run(self, queue: int, graph: str, feeds: Arrays) -> Arrays:
        """Rows are number of work, number of row, and whether that fails."""
        rows = feeds["x"]
        if len(rows) > GRAPH_LIMITS.get(graph, MAX_BATCH):
            self.wrong.append(f"a batch of {len(rows)}")
        with self._lock:
            for number, row, _ in rows.tolist():
                self._seen.setdefault(number, []).append(row)
        if not self.permits.acquire(timeout=30):
            self.wrong.append("no permit came")
        if rows[:, 2].any():
            raise ValueError("as planned")
        return {"y": rows[:, :2] * 10 + (ord(graph) + 1000 * queue)}

    def do(self, step: tuple[Any, ...]) -> None:
        """A step of a plan."""
        match step:
            case "submit", queue, graph, windows, ends, admitted:
                self.submit(queue, graph, windows, ends=ends, admitted=admitted)
            case "cancel", number:
                self.cancel(number)
            case "run", batches:
                self.permits.release(batches)
            case ("call",):
                self.calls += self.scheduler.on_threads(lambda worker: None)
            case "session", change, queue, graph:
                self.change(change, self.queues[queue], graph)
            case "close", queue, seconds:
                self.queues[queue].close(seconds)

    def change(self, change: str, queue: Queue, graph: str) -> None:
        """The session of a graph comes, goes, or cannot be had."""
        match change:
            case "pause":
                queue.pause(graph, lambda: None)
            case "refuse":
                queue.pause(graph, _refuse)
            case "resume":
                queue.resume(graph, GRAPH_LIMITS.get(graph, MAX_BATCH))
            case "fail":
                queue.fail_held(NotReadyError("could not be loaded"))
            case "load":
                queue.note_loaded()
            case "settle":
                queue.settle(0.001)

    def submit(
        self, queue: int, graph: str, windows: int, *, ends: str = "", admitted: bool = False
    ) -> None:
        with self._lock:
            number = next(self._numbers)
        fails = ends == "fail"
        rows = np.array([(number, row, fails and row == windows - 1) for row in range(windows)])
        seconds = {"late": -1.0, "soon": 0.002}.get(ends, LONG)
        try:
            work = self.queues[queue].submit(
                graph, {"x": rows}, deadline=time.monotonic() + seconds, admitted=admitted
            )
        except (QueueFullError, NotReadyError) as error:
            if admitted and isinstance(error, QueueFullError):
                self.wrong.append("work that continues was refused")
            return
        one = Submitted(queue, graph, number, windows, fails, ends, work)
        with self._lock:
            self.submitted.append(one)
        work.add_done_callback(one.count)
        if ends == "cancel":
            work.cancel()

    def cancel(self, number: int) -> None:
        if self.submitted:
            one = self.submitted[number % len(self.submitted)]
            if one.work.cancel():
                one.ends = "cancel"

    def check(self) -> None:
        """To be called once everything is over."""
        assert self.wrong == []
        assert all(call.done() for call in self.calls)
        for queue in self.queues:
            assert queue.left == 0
            assert queue._bytes == 0
            assert queue.running == 0
            assert queue.active == {}
            assert queue.held == 0
        assert self.scheduler._root.waiting == 0
        assert self.scheduler._root.active == {}
        assert self.scheduler._root.ended == []
        failing = {(one.queue, one.graph) for one in self.submitted if one.fails}
        for one in self.submitted:
            assert one.outcomes == 1
            run = self._seen.get(one.number, [])
            assert sorted(run) == sorted(set(run)), "a window ran twice"
            assert one.ends != "late" or run == [], "late work was run"
            self._check_outcome(one, (one.queue, one.graph) in failing)

    def _check_outcome(self, one: Submitted, failing: bool) -> None:
        error = one.work.error
        if isinstance(error, CancelledError):
            assert one.ends == "cancel"
        elif error is None:
            assert one.ends in ("", "soon", "cancel")
            rows = np.array([(one.number, row) for row in range(one.windows)])
            expected = rows * 10 + (ord(one.graph) + 1000 * one.queue)
            np.testing.assert_array_equal(one.work.result(0)["y"], expected)
        elif isinstance(error, DeadlineExceededError):
            assert one.ends in ("late", "soon")
        elif isinstance(error, ModelFailedError):
            # Rows that fail take others of their batch along.
            assert failing
        else:
            assert isinstance(error, NotReadyError)


def _refuse() -> None:
    raise NotReadyError("not now")


def submissions() -> st.SearchStrategy[tuple[Any, ...]]:
    return st.tuples(
        st.just("submit"),
        st.integers(0, QUEUES - 1),
        st.sampled_from("ab"),
        st.one_of(st.integers(1, 3), st.integers(1, 12)),
        st.sampled_from(["", "", "", "cancel", "late", "soon", "fail"]),
        st.booleans(),
    )


STEPS = st.one_of(
    submissions(),
    submissions(),
    st.tuples(st.just("cancel"), st.integers(0, 30)),
    st.tuples(st.just("run"), st.integers(1, 5)),
    st.tuples(st.just("call")),
    st.tuples(
        st.just("session"),
        st.sampled_from(["pause", "resume", "refuse", "fail", "load", "settle"]),
        st.integers(0, QUEUES - 1),
        st.sampled_from("ab"),
    ),
    st.tuples(st.just("close"), st.integers(0, QUEUES - 1), st.sampled_from([0.0, 0.001])),
)


@given(st.integers(1, 3), st.lists(STEPS, max_size=25), st.booleans())
def test_every_work_has_one_outcome(
    workers: int, steps: list[tuple[Any, ...]], waits: bool
) -> None:
    world = World(workers)
    more = [0] * QUEUES
    for step in steps:
        world.do(step)
        if step[0] == "submit" and step[-1]:
            more[step[1]] += step[3]
        for queue, allowed in zip(world.queues, more, strict=True):
            assert queue.usage.windows <= MAX_WINDOWS + allowed
    for queue in world.queues:
        for graph in "ab":
            world.change("resume", queue, graph)
    world.permits.release(10_000)
    if waits:
        for one in world.submitted:
            with suppress(CancelledError, ServiceError):
                one.work.result(30)
    world.scheduler.close(30)
    assert not any(thread.is_alive() for thread in world.scheduler._threads)
    world.check()


def test_every_work_of_many_threads_has_one_outcome() -> None:
    """Callers that submit and cancel at once, while deadlines pass and batches fail."""
    world = World(workers=3)
    world.permits.release(100_000)

    def call(seed: int) -> None:
        chance = random.Random(seed)
        for _ in range(150):
            world.submit(
                chance.randrange(QUEUES),
                chance.choice("ab"),
                chance.choice([1, 1, 1, 2, 5, 12]),
                ends=chance.choice(["", "", "", "cancel", "late", "soon", "fail"]),
                admitted=chance.random() < 0.1,
            )
            if chance.random() < 0.3:
                world.cancel(chance.randrange(1000))

    threads = [threading.Thread(target=call, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    world.scheduler.close(30)
    assert len(world.submitted) > 50
    world.check()
