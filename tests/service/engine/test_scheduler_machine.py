"""Each run has one outcome, in any order of submissions, pauses, cancellations and closing."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foretell.service.arrays import Arrays
from foretell.service.engine.queues import Queue
from foretell.service.engine.run import Run
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.usage import Limits
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
    """A run, and how often its callback was called."""

    queue: int
    graph: str
    number: int
    windows: int
    fails: bool
    ends: str
    run: Run
    outcomes: int = 0

    def count(self, _: Run) -> None:
        self.outcomes += 1


class ObservedScheduler:
    """A scheduler of two queues whose batches wait for permits, and all that was submitted."""

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
        """Run a batch; a row has the number of its run, its own number, and whether it fails."""
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

    def change(self, change: str, queue: Queue, graph: str) -> None:
        """Change whether the session of a graph is open."""
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
        self,
        queue: int,
        graph: str,
        windows: int,
        *,
        ends: str = "",
        admitted: bool = False,
        background: bool = False,
    ) -> None:
        with self._lock:
            number = next(self._numbers)
        fails = ends == "fail"
        rows = np.array([(number, row, fails and row == windows - 1) for row in range(windows)])
        seconds = {"late": -1.0, "soon": 0.002}.get(ends, LONG)
        try:
            run = self.queues[queue].submit(
                graph,
                {"x": rows},
                deadline=time.monotonic() + seconds,
                admitted=admitted,
                background=background,
            )
        except (QueueFullError, NotReadyError) as error:
            if admitted and isinstance(error, QueueFullError):
                self.wrong.append("an admitted run was refused")
            return
        one = Submitted(queue, graph, number, windows, fails, ends, run)
        with self._lock:
            self.submitted.append(one)
        run.add_done_callback(one.count)
        if ends == "cancel":
            run.cancel()

    def cancel(self, number: int) -> None:
        if self.submitted:
            one = self.submitted[number % len(self.submitted)]
            if one.run.cancel():
                one.ends = "cancel"

    def check(self) -> None:
        """Check all outcomes after all runs have ended."""
        assert self.wrong == []
        assert all(call.done() for call in self.calls)
        background = self.scheduler._root.background
        assert not background.running
        assert not background.runs
        assert (background._windows, background._bytes) == (0, 0)
        for queue in self.queues:
            assert queue.left == 0
            assert queue.usage.bytes == 0
            assert queue.running == 0
            assert queue.active == {}
            assert queue.held == 0
        failing = {(one.queue, one.graph) for one in self.submitted if one.fails}
        for one in self.submitted:
            assert one.outcomes == 1
            rows = self._seen.get(one.number, [])
            assert sorted(rows) == sorted(set(rows)), "a window ran twice"
            assert one.ends != "late" or rows == [], "a late run was run"
            self._check_outcome(one, (one.queue, one.graph) in failing)

    def _check_outcome(self, one: Submitted, failing: bool) -> None:
        error = one.run.error
        if isinstance(error, CancelledError):
            assert one.ends == "cancel"
        elif error is None:
            assert one.ends in ("", "soon", "cancel")
            rows = np.array([(one.number, row) for row in range(one.windows)])
            expected = rows * 10 + (ord(one.graph) + 1000 * one.queue)
            np.testing.assert_array_equal(one.run.result(0)["y"], expected)
        elif isinstance(error, DeadlineExceededError):
            assert one.ends in ("late", "soon")
        elif isinstance(error, ModelFailedError):
            # A failing row fails all runs of its batch.
            assert failing
        else:
            assert isinstance(error, NotReadyError)


def _refuse() -> None:
    raise NotReadyError("not now")


QUEUE, GRAPH = st.integers(0, QUEUES - 1), st.sampled_from("ab")


class SchedulerMachine(RuleBasedStateMachine):
    """Runs are submitted, cancelled and late, and graphs paused, in any order."""

    @initialize(workers=st.integers(1, 3), waits=st.booleans())
    def start(self, workers: int, waits: bool) -> None:
        self.world, self.waits, self.admitted = ObservedScheduler(workers), waits, [0] * QUEUES

    @rule(
        queue=QUEUE,
        graph=GRAPH,
        windows=st.one_of(st.integers(1, 3), st.integers(1, 12)),
        ends=st.sampled_from(["", "", "", "cancel", "late", "soon", "fail"]),
        admitted=st.booleans(),
    )
    def submit(self, queue: int, graph: str, windows: int, ends: str, admitted: bool) -> None:
        self.world.submit(queue, graph, windows, ends=ends, admitted=admitted)
        self.admitted[queue] += windows * admitted

    @rule(
        queue=QUEUE,
        graph=GRAPH,
        windows=st.integers(1, 12),
        ends=st.sampled_from(["", "", "", "cancel", "late", "soon", "fail"]),
    )
    def submit_in_background(self, queue: int, graph: str, windows: int, ends: str) -> None:
        self.world.submit(queue, graph, windows, ends=ends, background=True)

    @rule(number=st.integers(0, 30))
    def cancel(self, number: int) -> None:
        self.world.cancel(number)

    @rule(batches=st.integers(1, 5))
    def run_batches(self, batches: int) -> None:
        self.world.permits.release(batches)

    @rule()
    def call(self) -> None:
        self.world.calls += self.world.scheduler.on_threads(lambda worker: None)

    @rule(
        change=st.sampled_from(["pause", "resume", "refuse", "fail", "load", "settle"]),
        queue=QUEUE,
        graph=GRAPH,
    )
    def session(self, change: str, queue: int, graph: str) -> None:
        self.world.change(change, self.world.queues[queue], graph)

    @rule(queue=QUEUE, seconds=st.sampled_from([0.0, 0.001]))
    def close(self, queue: int, seconds: float) -> None:
        self.world.queues[queue].close(seconds)

    @invariant()
    def queues_are_bounded(self) -> None:
        for queue, admitted in zip(self.world.queues, self.admitted, strict=True):
            assert queue.usage.windows <= MAX_WINDOWS + admitted

    def teardown(self) -> None:
        world = self.world
        for queue in world.queues:
            for graph in "ab":
                world.change("resume", queue, graph)
        world.permits.release(10_000)
        for one in world.submitted if self.waits else ():
            with suppress(CancelledError, ServiceError):
                one.run.result(30)
        world.scheduler.close(30)
        assert not world.scheduler.going
        world.check()


TestSchedulerMachine = cast("type", SchedulerMachine).TestCase
TestSchedulerMachine.settings = settings(stateful_step_count=25)


def test_concurrent_runs_have_one_outcome() -> None:
    """Callers that submit and cancel at once, while deadlines pass and batches fail."""
    world = ObservedScheduler(workers=3)
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
