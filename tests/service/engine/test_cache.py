from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import cast

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from foretell.service.engine.run import Run
from foretell.service.errors import (
    LoadFailedError,
    ModelLoadingError,
    NotReadyError,
)
from tests.service.engine.cached import PATIENCE, Scene, scenes
from tests.support.waiting import until


@pytest.fixture
def make() -> Iterator[Callable[..., Scene]]:
    with scenes() as make:
        yield make


Make = Callable[..., Scene]


def test_waiting_runs_share_one_load(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    start = time.monotonic()
    runs = [scene.ask("one") for _ in range(3)]
    assert not any(run.done() for run in runs)
    time.sleep(0.01)
    scene.gate.set()
    for run in runs:
        assert run.result(PATIENCE)["history"].tolist() == [[4.0, 4.0]]
        # The time of loading is not part of the time in the queue.
        assert run.loading >= 0.01
        assert start + run.loading <= run.submitted <= run.began <= run.ended
    assert scene.began == ["one"]
    until(lambda: len(scene.counted.waits) == 3)
    assert scene.counted.events == ["loaded one@1"]
    assert scene.counted.waits == [("loaded", run.loading) for run in runs]
    assert scene.ask("one").result(PATIENCE)
    assert scene.ask("one").loading == 0


def test_loads_follow_the_order_of_the_first_requests(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask(name) for name in ("one", "two", "three", "two", "one")]
    scene.gate.set()
    for run in runs:
        run.result(PATIENCE)
    assert scene.began == ["one", "two", "three"]


def test_busy_model_is_evicted_after_idle_ones(make: Make) -> None:
    scene = make(most=2)
    scene.held.add("one")
    run = scene.ask("one")
    scene.bring("two")
    assert not run.done()
    scene.bring("three")
    assert scene.present == ["one", "three"]
    assert not run.done()
    # If all models have runs, the runs of the oldest one are finished first.
    scene.held.add("four")
    scene.ask("four")
    until(lambda: "four" in scene.present)
    scene.bring("five")
    assert scene.present == ["five", "four"]
    assert run.result(0)


def test_wait_for_a_load_is_bounded_and_the_load_continues(make: Make) -> None:
    scene = make(wait_seconds=0.05)
    scene.gate.clear()
    run, other = scene.ask("one"), scene.ask("two")
    with pytest.raises(ModelLoadingError, match=r"^one@1 is being loaded, .* the 0\.05 s") as late:
        run.result(PATIENCE)
    with pytest.raises(ModelLoadingError, match="two@1"):
        other.result(PATIENCE)
    assert late.value.headers == {"Retry-After": "1"}
    assert late.value.param == "model"
    until(lambda: scene.counted.waits == [("expired", 0.05)] * 2)
    assert scene.model("one").queue.usage.windows == 0
    # A later run waits for the whole time.
    began = time.monotonic()
    with pytest.raises(ModelLoadingError, match="one@1"):
        scene.ask("one").result(PATIENCE)
    assert time.monotonic() - began >= 0.05
    scene.gate.set()
    scene.cache.load(scene.entry("two"))
    assert scene.present == ["one", "two"]
    assert scene.began == ["one", "two"]


def test_each_run_waits_for_the_whole_wait_seconds(make: Make) -> None:
    scene = make(wait_seconds=0.2)
    scene.gate.clear()
    ended: dict[int, float] = {}
    starts: dict[int, float] = {}
    for number in range(3):
        starts[number] = time.monotonic()
        run = scene.ask("one")
        run.add_done_callback(lambda _, number=number: ended.update({number: time.monotonic()}))
        time.sleep(0.05)
    until(lambda: len(ended) == 3)
    assert all(0.2 <= ended[number] - starts[number] < 2 for number in range(3))
    scene.gate.set()


def test_waiting_models_take_no_threads(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    names = [f"m{number}" for number in range(20)]
    for name in names:
        scene.model(name)
    threads = threading.active_count()
    runs = [scene.ask(name) for name in names]
    assert threading.active_count() == threads
    scene.gate.set()
    assert all(run.result(PATIENCE) for run in runs)


def test_eviction_right_after_a_load_leaves_no_run_waiting(make: Make) -> None:
    scene = make(most=1)
    opening = scene.cache._opening
    runs: list[Run] = []

    class Opening:
        """A lock that another thread gets first after the first load."""

        def __enter__(self) -> None:
            opening.acquire()

        def __exit__(self, *_: object) -> None:
            opening.release()
            if not runs and scene.began:
                runs.append(first)
                with scene.cache.room(Path("/models/kept/1")):
                    assert scene.present == []
                runs.append(scene.ask("one"))

    scene.cache._opening = Opening()  # type: ignore[assignment]
    first = scene.ask("one")
    assert first.result(PATIENCE)
    until(lambda: len(runs) == 2)
    assert runs[1].result(5)
    assert scene.began == ["one", "one"]


def test_wait_before_an_eviction_counts_against_wait_seconds(make: Make) -> None:
    scene = make(most=1, wait_seconds=60.0)
    scene.bring("one")
    model, late = scene.models["one"], []
    evict = model.evict

    def unfinished(timeout: float) -> None:
        evict(timeout)
        run = scene.ask("one")
        # The run has waited for a load, and then for the attention graph.
        run.loading, run.submitted = 10.0, run.submitted - 50.0
        late.append(run)

    model.evict = unfinished  # type: ignore[method-assign]
    scene.gate.clear()
    scene.ask("two")
    until(lambda: late)
    with pytest.raises(ModelLoadingError, match="one@1"):
        late[0].result(5)
    assert [outcome for outcome, _ in scene.counted.waits] == ["loaded"]


def test_retry_after_is_the_time_of_earlier_loads(make: Make) -> None:
    scene = make(wait_seconds=0.05)
    scene.bring("one", "two")
    for name in ("one", "two"):
        scene.cache._evict(scene.entry(name))
    # The duration of the model's last load, or the mean of others if it was never loaded.
    scene.entry("one").seconds, scene.entry("two").seconds = 2.5, 3.5
    scene.cache._mean = 20.0
    scene.gate.clear()
    seconds = []
    for name in ("one", "two", "new", "newer", "newest"):
        run = scene.ask(name)
        with pytest.raises(ModelLoadingError) as late:
            run.result(PATIENCE)
        seconds.append(late.value.retry_after)
    # 2.5, 6, 26, 46 and 66 seconds, less what has passed; a minute at most.
    assert seconds == [3, 6, 26, 46, 60]
    assert scene.cache.retry_after(scene.entry("new")) == 26


def test_refused_model_is_retried_with_doubling_pauses(make: Make) -> None:
    scene = make()
    scene.bad.add("one")
    entry = scene.entry("one")
    for pause in (1.0, 2.0, 4.0):
        with pytest.raises(NotReadyError) as refused:
            scene.ask("one").result(PATIENCE)
        assert refused.value.headers == {"Retry-After": str(int(pause))}
        # No load is tried before that time.
        with pytest.raises(NotReadyError, match="/readyz says why") as again:
            scene.ask("one")
        assert again.value.headers == {"Retry-After": str(int(pause))}
        assert entry.refused == "one/1: bad weights"
        entry.retry_at = 0.0
    assert scene.began == ["one"] * 3
    assert scene.model("one").queue.usage.bytes == 0
    until(lambda: len(scene.counted.waits) == 3)
    assert {outcome for outcome, _ in scene.counted.waits} == {"refused"}
    assert scene.counted.events == ["refused one@1"] * 3
    scene.bad.clear()
    scene.bring("one")
    assert (entry.refused, entry.pause, entry.retry_at) == ("", 0.0, 0.0)


def test_explicit_load_waits_for_no_pause(make: Make) -> None:
    scene = make()
    scene.bad.add("one")
    for _ in range(2):
        with pytest.raises(LoadFailedError, match=r"^one/1: bad weights$"):
            scene.cache.load(scene.entry("one"))
    scene.bad.clear()
    scene.cache.load(scene.entry("one"))
    scene.cache.load(scene.entry("one"))
    assert scene.began == ["one"] * 3
    # One that does not work any more is loaded again.
    model = scene.models["one"]
    model.failure = "lost"
    changes = scene.counted.changes
    scene.cache.load(model.entry)
    assert model.evicted is not None
    assert scene.counted.changes == changes + 1
    assert scene.began == ["one"] * 4
    assert scene.present == ["one"]


def test_model_closed_before_its_load_is_not_loaded(make: Make) -> None:
    scene = make(most=1)
    scene.gate.clear()
    first, closed = scene.ask("one"), scene.ask("two")
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(scene.cache.load, scene.entry("two"))
        until(loading.running)
        scene.models["two"].close()
        scene.gate.set()
        for waiting in (closed, loading):
            with pytest.raises(NotReadyError, match="the model is stopping"):
                waiting.result(PATIENCE)
    assert first.result(PATIENCE)
    assert scene.began == scene.present == ["one"]


def test_stop_fails_runs_and_loads_that_wait(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask("one"), scene.ask("two")]
    until(lambda: scene.began == ["one"])
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(scene.cache.load, scene.entry("two"))
        scene.cache.stop()
        for run in runs:
            with pytest.raises(NotReadyError, match="the server is stopping"):
                run.result(PATIENCE)
        with pytest.raises((LoadFailedError, NotReadyError), match="the server is stopping"):
            loading.result(PATIENCE)
    with pytest.raises(NotReadyError, match="the server is stopping"):
        scene.ask("three")
    scene.gate.set()
    scene.cache.join(PATIENCE)
    assert scene.began == ["one"]


def test_concurrent_runs_end_once_during_loads_and_evictions(make: Make) -> None:
    scene = make(most=2)
    names = ("one", "two", "three", "four")
    for name in names:
        scene.model(name)
    outcomes: list[object] = []

    def ask(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(60):
            run = scene.ask(names[random.integers(4)])
            if random.random() < 0.1:
                run.cancel()
            run.add_done_callback(lambda run: outcomes.append(run.error))
            with suppress(CancelledError):
                assert run.result(PATIENCE)["history"].tolist() == [[4.0, 4.0]]

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(ask, seed) for seed in range(4)]:
            done.result(2 * PATIENCE)
    assert len(outcomes) == 240
    assert all(error is None or isinstance(error, CancelledError) for error in outcomes)
    assert len(scene.present) <= 2
    assert all(model.queue.usage.bytes == 0 for model in scene.models.values())
    assert all(model.queue.held == 0 for model in scene.models.values())


NAMES = st.sampled_from(["one", "two", "three", "four"])


class CacheMachine(RuleBasedStateMachine):
    """Requests for one model after another: the most recently used ones are in memory."""

    @initialize(most=st.sampled_from([1, 2, 3, None]))
    def start(self, most: int | None) -> None:
        self._scenes = scenes()
        self.scene = self._scenes.__enter__()(most=most)
        self.most = most or 1000
        # The least recently used first.
        self.present: list[str] = []
        self.events: list[str] = []
        self.closed: set[str] = set()

    def teardown(self) -> None:
        self._scenes.__exit__(None, None, None)

    @rule(name=NAMES, what=st.sampled_from(["bad", "never"]))
    def change(self, name: str, what: str) -> None:
        names = self.scene.bad if what == "bad" else self.scene.memory.never
        names ^= {name}

    @rule(room=st.sampled_from([0, 1, 2, 1000]))
    def change_memory(self, room: int) -> None:
        self.scene.memory.room = room

    @rule(name=NAMES)
    def ask(self, name: str) -> None:
        if name in self.closed:
            with pytest.raises(NotReadyError, match="the model is stopping"):
                self.scene.ask(name)
        elif self._expect(name):
            self.scene.bring(name)
        else:
            for _ in range(2):
                # The second request is refused at once.
                with pytest.raises(NotReadyError, match=f"^{name}@1 could not be loaded; /readyz"):
                    self.scene.ask(name).result(PATIENCE)
            self.scene.entry(name).retry_at = 0.0

    @rule(name=NAMES, fails=st.booleans())
    def load(self, name: str, fails: bool) -> None:
        model = self.scene.model(name)
        if fails and name in self.present:
            model.failure = "lost"
            self.present.remove(name)
        if name in self.closed:
            with pytest.raises(NotReadyError, match="the model is stopping"):
                self.scene.cache.load(model.entry)
        elif self._expect(name):
            self.scene.cache.load(model.entry)
        else:
            with pytest.raises(LoadFailedError, match=f"^{name}/1: "):
                self.scene.cache.load(model.entry)
            assert model.entry.refused.startswith(f"{name}/1: ")
            model.entry.retry_at = 0.0

    @rule()
    def pin(self) -> None:
        fits = self._make_room("kept")
        with (
            nullcontext() if fits else pytest.raises(LoadFailedError),
            self.scene.cache.room(Path("/models/kept/1")),
        ):
            assert self.scene.present == sorted(self.present)

    @rule(name=NAMES)
    def close(self, name: str) -> None:
        self.scene.model(name).close()
        self.closed.add(name)
        self.present = [each for each in self.present if each != name]

    @invariant()
    def holds_those_used_last(self) -> None:
        assert self.scene.present == sorted(self.present)
        assert self.scene.counted.events == self.events
        for name, model in self.scene.models.items():
            assert model.queue.usage.bytes == 0, name
            assert model.evicted in (None, 7.0)

    def _expect(self, name: str) -> bool:
        if name in self.present:
            self.present.remove(name)
        elif not self._make_room(name) or name in self.scene.bad:
            self.events.append(f"refused {name}@1")
            return False
        else:
            self.events.append(f"loaded {name}@1")
        self.present.append(name)
        return True

    def _make_room(self, name: str) -> bool:
        memory = self.scene.memory
        if name in memory.never:
            return False
        while len(self.present) >= min(self.most, memory.room):
            if not self.present:
                return False
            self.events.append(f"evicted {self.present.pop(0)}@1")
        return True


TestCacheMachine = cast("type", CacheMachine).TestCase
TestCacheMachine.settings = settings(stateful_step_count=15)
