from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from weakref import ref

import numpy as np
import pytest

from foretell.bundle.errors import BundleError
from foretell.service.engine.cache import CacheEntry, ModelCache
from foretell.service.engine.limits import Memory
from foretell.service.engine.queues import Limits
from foretell.service.engine.run import Run
from foretell.service.engine.scheduler import Scheduler
from foretell.service.errors import (
    LoadFailedError,
    ModelLoadingError,
    NotReadyError,
    QueueFullError,
    TooLargeError,
)
from tests.service.conftest import Quiet
from tests.service.served import Recorder
from tests.support.waiting import until

_PATIENCE = 30.0


class Fake:
    """A model whose session comes and goes by words alone; its runs may wait for the test."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.manifest: Any = SimpleNamespace(name=name, version="1")
        self.name, self.version = name, "1"
        self.folder = Path(f"/models/{name}/1")
        self.used = 0.0
        self.failure: str | None = None
        self.is_present = False
        self.evicted: float | None = None
        self.go_on = threading.Event()
        self.ran: list[float] = []
        self.entry = CacheEntry(self)
        self.queue = scene.scheduler.add(self.run, Limits(4, 4, 1000), Quiet())
        self.hold()

    def hold(self) -> None:
        self.queue.pause("g", partial(self.scene.cache.want, self.entry))

    def run(self, thread: int, graph: str, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        if not self.is_present:
            raise NotReadyError("the model was closed before this was run")
        if self.name in self.scene.held:
            assert self.go_on.wait(_PATIENCE)
        self.ran += feeds["history"][:, 0].tolist()
        return {"history": feeds["history"] + 1}

    def open(self) -> list[Run]:
        self.scene.began.append(self.name)
        assert self.scene.gate.wait(_PATIENCE)
        if self.name in self.scene.bad:
            raise BundleError(f"{self.folder}: bad weights")
        self.is_present, self.failure = True, None
        waited = self.queue.note_loaded()
        self.queue.resume("g", 4)
        return waited

    def evict(self, timeout: float) -> None:
        self.evicted = timeout
        self.hold()
        self.go_on.set()
        self.queue.settle(timeout)
        self.is_present = False

    def close(self) -> None:
        self.scene.cache.forget(self.entry)
        self.go_on.set()
        self.queue.close(_PATIENCE)
        self.is_present = False


class Counted(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.waits: list[tuple[str, float]] = []

    def evicted(self, name: str, version: str) -> None:
        self.events.append(f"evicted {name}@{version}")

    def waited(self, outcome: str, seconds: float) -> None:
        assert seconds >= 0
        self.waits.append((outcome, seconds))


class Fits(Memory):
    """Memory by numbers: so many models fit, and those in `never` do not fit at all."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(None)
        self._scene = scene
        self.room = 1000
        self.never: set[str] = set()

    def check(self, folder: Path) -> None:
        if len(self._scene.present) >= self.room:
            raise LoadFailedError(f"{folder}: needs more memory")

    def check_alone(self, folder: Path) -> None:
        if folder.parent.name in self.never:
            raise LoadFailedError(f"{folder}: never fits")


class Scene:
    """A cache of fakes, which are opened once `gate` is set."""

    def __init__(self, *, most: int | None = None, wait_seconds: float = _PATIENCE) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.began: list[str] = []
        self.bad: set[str] = set()
        self.held: set[str] = set()
        self.counted = Counted()
        self.memory = Fits(self)
        self.scheduler = Scheduler(4)
        self.models: dict[str, Fake] = {}
        self.cache = ModelCache(
            self.memory, self.counted, most=most, wait_seconds=wait_seconds, drain_seconds=7.0
        )

    @property
    def present(self) -> list[str]:
        return sorted(name for name, model in self.models.items() if model.is_present)

    def model(self, name: str) -> Fake:
        if name not in self.models:
            self.models[name] = Fake(self, name)
        return self.models[name]

    def entry(self, name: str) -> CacheEntry:
        return self.model(name).entry

    def ask(self, name: str, windows: int = 1, *, admitted: bool = False) -> Run:
        rows = np.full((windows, 2), 3.0, np.float32)
        model = self.model(name)
        model.used = time.monotonic()
        deadline = time.monotonic() + _PATIENCE
        return model.queue.submit("g", {"history": rows}, deadline=deadline, admitted=admitted)

    def bring(self, *names: str) -> None:
        for name in names:
            assert self.ask(name).result(_PATIENCE)
            # Its load has ended.
            until(lambda name=name: self.entry(name).load is None)


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scene]]:
    # All that the tests have imported would be looked through for each model that goes.
    monkeypatch.setattr("foretell.service.engine.cache.gc", Mock())
    scenes: list[Scene] = []

    def one(**given: Any) -> Scene:
        scenes.append(Scene(**given))
        return scenes[-1]

    yield one
    for scene in scenes:
        scene.gate.set()
        for model in scene.models.values():
            model.go_on.set()
        scene.cache.stop()
        scene.cache.join(_PATIENCE)
        scene.scheduler.close(5)
        assert not scene.cache.going


Make = Callable[..., Scene]


def test_one_load_for_all_runs_that_wait(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    asked = time.monotonic()
    runs = [scene.ask("one") for _ in range(3)]
    assert not any(run.done() for run in runs)
    time.sleep(0.01)
    scene.gate.set()
    for run in runs:
        assert run.result(_PATIENCE)["history"].tolist() == [[4.0, 4.0]]
        # The wait is no part of its time in the queue.
        assert run.loading >= 0.01
        assert asked + run.loading <= run.submitted <= run.began <= run.ended
    assert scene.began == ["one"]
    until(lambda: len(scene.counted.waits) == 3)
    assert scene.counted.events == ["loaded one@1"]
    assert scene.counted.waits == [("loaded", run.loading) for run in runs]
    assert scene.ask("one").result(_PATIENCE)
    assert scene.ask("one").loading == 0


def test_loads_follow_the_order_of_the_first_requests(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask(name) for name in ("one", "two", "three", "two", "one")]
    scene.gate.set()
    for run in runs:
        run.result(_PATIENCE)
    assert scene.began == ["one", "two", "three"]


def test_the_least_recently_used_is_evicted(make: Make) -> None:
    scene = make(most=2)
    scene.bring("one", "two")
    scene.bring("one", "three")
    assert scene.present == ["one", "three"]
    assert scene.models["two"].evicted == 7.0
    assert scene.counted.events[-2:] == ["evicted two@1", "loaded three@1"]
    # It comes again, and answers.
    scene.bring("two")
    assert scene.present == ["three", "two"]


def test_a_model_with_work_is_evicted_after_idle_ones(make: Make) -> None:
    scene = make(most=2)
    scene.held.add("one")
    run = scene.ask("one")
    scene.bring("two")
    assert not run.done()
    scene.bring("three")
    assert scene.present == ["one", "three"]
    assert not run.done()
    # Where all have some, it is finished first.
    scene.held.add("four")
    scene.ask("four")
    until(lambda: "four" in scene.present)
    scene.bring("five")
    assert scene.present == ["five", "four"]
    assert run.result(0)


def test_a_run_that_comes_as_its_model_is_evicted_waits_for_the_next_load(make: Make) -> None:
    scene = make(most=1)
    scene.held.add("one")
    before = scene.ask("one")
    until(lambda: scene.present == ["one"])
    model, late = scene.models["one"], []
    evict = model.evict

    def meanwhile(timeout: float) -> None:
        model.hold()
        late.append(scene.ask("one"))
        evict(timeout)

    model.evict = meanwhile  # type: ignore[method-assign]
    scene.bring("two")
    assert before.result(0)
    assert late[0].result(_PATIENCE)
    assert scene.began == ["one", "two", "one"]


def test_as_many_go_as_memory_needs(make: Make) -> None:
    scene = make()
    scene.bring("one", "two", "three")
    scene.memory.room = 2
    scene.bring("four")
    assert scene.present == ["four", "three"]
    assert scene.counted.events[-3:] == ["evicted one@1", "evicted two@1", "loaded four@1"]


def test_what_never_fits_evicts_nothing(make: Make) -> None:
    scene = make()
    scene.bring("one")
    scene.memory.never.add("huge")
    with pytest.raises(NotReadyError, match=r"^huge@1 could not be loaded; /readyz says why$"):
        scene.ask("huge").result(_PATIENCE)
    assert scene.entry("huge").refused == "huge/1: never fits"
    assert scene.present == ["one"]


def test_what_does_not_fit_beside_others_is_refused_in_the_end(make: Make) -> None:
    scene = make()
    scene.bring("one")
    scene.memory.room = 0
    with pytest.raises(NotReadyError, match="could not be loaded"):
        scene.ask("two").result(_PATIENCE)
    assert scene.entry("two").refused == "two/1: needs more memory"


def test_pinned_models_make_room_too_and_are_not_counted(make: Make) -> None:
    scene = make(most=1)
    scene.bring("one")
    with scene.cache.room(Path("/models/kept/1")):
        assert scene.present == []
    scene.bring("two")
    scene.bring("three")
    assert scene.present == ["three"]


def test_a_wait_is_bounded_and_the_load_goes_on(make: Make) -> None:
    scene = make(wait_seconds=0.05)
    scene.gate.clear()
    run, other = scene.ask("one"), scene.ask("two")
    with pytest.raises(ModelLoadingError, match=r"^one@1 is being loaded, .* the 0\.05 s") as late:
        run.result(_PATIENCE)
    with pytest.raises(ModelLoadingError, match="two@1"):
        other.result(_PATIENCE)
    assert late.value.headers == {"Retry-After": "1"}
    assert late.value.param == "model"
    until(lambda: scene.counted.waits == [("expired", 0.05)] * 2)
    assert scene.model("one").queue.usage.windows == 0
    # Later runs have their own time, and not less.
    began = time.monotonic()
    with pytest.raises(ModelLoadingError, match="one@1"):
        scene.ask("one").result(_PATIENCE)
    assert time.monotonic() - began >= 0.05
    scene.gate.set()
    scene.cache.load(scene.entry("two"))
    assert scene.present == ["one", "two"]
    assert scene.began == ["one", "two"]


def test_each_run_waits_as_long(make: Make) -> None:
    scene = make(wait_seconds=0.2)
    scene.gate.clear()
    ended: dict[int, float] = {}
    asked: dict[int, float] = {}
    for number in range(3):
        asked[number] = time.monotonic()
        run = scene.ask("one")
        run.add_done_callback(lambda _, number=number: ended.update({number: time.monotonic()}))
        time.sleep(0.05)
    until(lambda: len(ended) == 3)
    assert all(0.2 <= ended[number] - asked[number] < 2 for number in range(3))
    scene.gate.set()


def test_models_that_wait_to_be_loaded_take_no_threads(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    names = [f"m{number}" for number in range(20)]
    for name in names:
        scene.model(name)
    threads = threading.active_count()
    runs = [scene.ask(name) for name in names]
    assert threading.active_count() == threads
    scene.gate.set()
    assert all(run.result(_PATIENCE) for run in runs)


def test_an_eviction_right_after_a_load(make: Make) -> None:
    scene = make(most=1)
    opening = scene.cache._opening
    runs: list[Run] = []

    class Opening:
        """After the first load another thread is the first to get the lock."""

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
    assert first.result(_PATIENCE)
    until(lambda: len(runs) == 2)
    assert runs[1].result(5)
    assert scene.began == ["one", "one"]


def test_the_wait_before_an_eviction_counts(make: Make) -> None:
    scene = make(most=1, wait_seconds=60.0)
    scene.bring("one")
    model, late = scene.models["one"], []
    evict = model.evict

    def unfinished(timeout: float) -> None:
        evict(timeout)
        run = scene.ask("one")
        # It has waited for a load already, and then for its graph of attention.
        run.loading, run.submitted = 10.0, run.submitted - 50.0
        late.append(run)

    model.evict = unfinished  # type: ignore[method-assign]
    scene.gate.clear()
    scene.ask("two")
    until(lambda: late)
    with pytest.raises(ModelLoadingError, match="one@1"):
        late[0].result(5)
    assert [outcome for outcome, _ in scene.counted.waits] == ["loaded"]


def test_retry_after_is_what_loads_took(make: Make) -> None:
    scene = make(wait_seconds=0.05)
    scene.bring("one", "two")
    for name in ("one", "two"):
        scene.cache._evict(scene.entry(name))
    # Of itself what its own took, of what was never loaded what others did.
    scene.entry("one").seconds, scene.entry("two").seconds = 2.5, 3.5
    scene.cache._mean = 20.0
    scene.gate.clear()
    seconds = []
    for name in ("one", "two", "new", "newer", "newest"):
        run = scene.ask(name)
        with pytest.raises(ModelLoadingError) as late:
            run.result(_PATIENCE)
        seconds.append(late.value.retry_after)
    # 2.5, 6, 26, 46 and 66 seconds, less what has passed; a minute at most.
    assert seconds == [3, 6, 26, 46, 60]
    assert scene.cache.retry_after(scene.entry("new")) == 26


def test_what_waits_is_bounded(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    with pytest.raises(TooLargeError, match=r"0 windows are waiting and 5 more do not fit"):
        scene.ask("one", windows=5)
    assert scene.entry("one").load is None
    first = scene.ask("one", windows=3)
    with pytest.raises(QueueFullError, match=r"3 windows .* and 2 more do not fit: at most 4"):
        scene.ask("one", windows=2)
    usage = scene.model("one").queue.usage
    assert (usage.windows, usage.bytes) == (3, 24)
    # What was accepted is continued all the same; what is given up leaves room.
    scene.ask("one", windows=2, admitted=True)
    assert first.cancel()
    second = scene.ask("one", windows=2)
    scene.gate.set()
    assert len(second.result(_PATIENCE)["history"]) == 2
    until(lambda: len(scene.counted.waits) == 2)
    assert len(scene.models["one"].ran) == 4


def test_what_is_given_up_is_not_run(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    rows = np.zeros((1, 2), np.float32)
    numbers = ref(rows)
    queue = scene.model("one").queue
    run = queue.submit("g", {"history": rows}, deadline=time.monotonic() + _PATIENCE)
    other = scene.ask("one")
    assert run.cancel()
    with pytest.raises(CancelledError):
        run.result(0)
    scene.gate.set()
    assert other.result(_PATIENCE)
    assert len(scene.models["one"].ran) == 1
    del rows, run
    until(lambda: numbers() is None)


def test_what_was_refused_is_tried_again_later_and_later(make: Make) -> None:
    scene = make()
    scene.bad.add("one")
    entry = scene.entry("one")
    for pause in (1.0, 2.0, 4.0):
        with pytest.raises(NotReadyError) as refused:
            scene.ask("one").result(_PATIENCE)
        assert refused.value.headers == {"Retry-After": str(int(pause))}
        # Nothing is tried before.
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


def test_a_load_by_request_waits_for_no_pause(make: Make) -> None:
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


def test_a_model_is_closed_for_good(make: Make) -> None:
    scene = make()
    scene.bring("one")
    scene.gate.clear()
    waiting = scene.ask("two")
    scene.models["one"].close()
    until(lambda: scene.began == ["one", "two"])
    scene.models["two"].close()
    with pytest.raises(NotReadyError, match="the model is stopping"):
        waiting.result(_PATIENCE)
    for name in ("one", "two"):
        with pytest.raises(NotReadyError, match="the model is stopping"):
            scene.ask(name)
        with pytest.raises(NotReadyError, match="the model is stopping"):
            scene.cache.load(scene.entry(name))
    scene.gate.set()
    scene.bring("three")
    assert scene.cache._present == {scene.entry("three")}


def test_what_is_closed_takes_no_room(make: Make) -> None:
    scene = make(most=1)
    scene.bring("one")
    scene.models["one"].close()
    scene.bring("two")
    assert scene.counted.events == ["loaded one@1", "loaded two@1"]


def test_what_was_closed_before_its_load_is_not_loaded(make: Make) -> None:
    scene = make(most=1)
    scene.gate.clear()
    first, gone = scene.ask("one"), scene.ask("two")
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(scene.cache.load, scene.entry("two"))
        until(loading.running)
        scene.models["two"].close()
        scene.gate.set()
        for waiting in (gone, loading):
            with pytest.raises(NotReadyError, match="the model is stopping"):
                waiting.result(_PATIENCE)
    assert first.result(_PATIENCE)
    assert scene.began == scene.present == ["one"]


def test_the_server_stops(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask("one"), scene.ask("two")]
    until(lambda: scene.began == ["one"])
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(scene.cache.load, scene.entry("two"))
        scene.cache.stop()
        for run in runs:
            with pytest.raises(NotReadyError, match="the server is stopping"):
                run.result(_PATIENCE)
        with pytest.raises((LoadFailedError, NotReadyError), match="the server is stopping"):
            loading.result(_PATIENCE)
    with pytest.raises(NotReadyError, match="the server is stopping"):
        scene.ask("three")
    scene.gate.set()
    scene.cache.join(_PATIENCE)
    assert scene.began == ["one"]


def test_runs_of_many_threads_end_once_while_models_come_and_go(make: Make) -> None:
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
                assert run.result(_PATIENCE)["history"].tolist() == [[4.0, 4.0]]

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(ask, seed) for seed in range(4)]:
            done.result(2 * _PATIENCE)
    assert len(outcomes) == 240
    assert all(error is None or isinstance(error, CancelledError) for error in outcomes)
    assert len(scene.present) <= 2
    assert all(model.queue.usage.bytes == 0 for model in scene.models.values())
    assert all(model.queue.held == 0 for model in scene.models.values())
