from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock
from weakref import ref

import numpy as np
import pytest

from foretell.bundle.errors import BundleError
from foretell.service.engine.cache import CacheEntry, ModelCache
from foretell.service.engine.limits import Memory
from foretell.service.engine.queues import Usage
from foretell.service.engine.run import Run
from foretell.service.engine.waiting import Waiting
from foretell.service.errors import (
    LoadFailedError,
    ModelLoadingError,
    NotReadyError,
    QueueFullError,
    TooLargeError,
)
from tests.service.served import Recorder
from tests.service.waiting import until

_PATIENCE = 30.0


class Present:
    """A model in memory, whose runs end when the test says so, or at once."""

    def __init__(self, manifest: object, *, holds: bool = False) -> None:
        self.manifest = manifest
        self.holds = holds
        self.failure: str | None = None
        self.works: list[Run] = []
        self.attention: list[tuple[str, ...]] = []
        self.closed: float | None = None

    @property
    def usage(self) -> Usage:
        held = sum(not work.over for work in self.works)
        return Usage(held, 64, held, 64)

    def submit(
        self,
        feeds: dict[str, np.ndarray],
        *,
        attention: tuple[str, ...] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Run:
        if self.closed is not None:
            raise NotReadyError("the model is stopping")
        assert admitted
        work = Run(self._drop, "graph", feeds, (), deadline)
        self.works.append(work)
        self.attention.append(attention)
        if not self.holds:
            self.end(work)
        return work

    def end(self, work: Run) -> None:
        work.began, work.ended, work.batch = 2.0, 3.0, 4
        work.outputs = {name: rows + 1 for name, rows in work.feeds.items()}
        work.over = True
        work.notify()

    def _drop(self, work: Run) -> None:
        work.error, work.over = CancelledError(), True
        work.notify()

    def close(self, timeout: float) -> None:
        self.closed = timeout
        for work in self.works:
            if not work.over:
                self.end(work)


class Told(Recorder):
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
        if self._scene.open >= self.room:
            raise LoadFailedError(f"{folder}: needs more memory")

    def check_alone(self, folder: Path) -> None:
        if folder.parent.name in self.never:
            raise LoadFailedError(f"{folder}: never fits")


class Scene:
    """Residents whose models are `Present`, opened once `gate` is set."""

    def __init__(self, *, most: int | None = None, wait_seconds: float = _PATIENCE) -> None:
        self.gate = threading.Event()
        self.gate.set()
        self.began: list[str] = []
        self.models: dict[str, Present] = {}
        self.bad: set[str] = set()
        self.held: set[str] = set()
        self.closed: set[str] = set()
        self.told = Told()
        self.memory = Fits(self)
        self.berths: dict[str, CacheEntry] = {}
        self.cache = ModelCache(
            self._open,
            self.memory,
            self.told,
            most=most,
            wait_seconds=wait_seconds,
            drain_seconds=7.0,
        )

    @property
    def open(self) -> int:
        return sum(model.closed is None for model in self.models.values())

    @property
    def present(self) -> list[str]:
        return sorted(name for name, berth in self.berths.items() if berth.model is not None)

    def berth(self, name: str) -> CacheEntry:
        if name not in self.berths:
            self.berths[name] = CacheEntry(Path("/models") / name / "1", Mock(), 4, 1000)
        return self.berths[name]

    def ask(self, name: str, *, windows: int = 1, admitted: bool = False) -> Waiting:
        feeds = {"history": np.full((windows, 2), len(name), np.float32)}
        run = Waiting(feeds, ("a",), time.monotonic() + _PATIENCE)
        berth = self.berth(name)
        berth.used = time.monotonic()
        self.cache.wait(berth, run, admitted=admitted)
        return run

    def bring(self, *names: str) -> None:
        for name in names:
            assert self.ask(name).result(_PATIENCE)

    def _open(self, folder: Path) -> Present:
        name = folder.parent.name
        self.began.append(name)
        assert self.gate.wait(_PATIENCE)
        if name in self.bad:
            raise BundleError(f"{folder}: bad weights")
        manifest = self.berths[name].manifest if name in self.berths else None
        self.models[name] = Present(manifest, holds=name in self.held)
        if name in self.closed:
            self.models[name].close(0.0)
        return self.models[name]


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Scene]]:
    # All that the tests have imported would be looked through for each model that goes.
    monkeypatch.setattr("foretell.service.engine.cache.gc", Mock())
    scenes: list[Scene] = []

    def one(**given: object) -> Scene:
        scenes.append(Scene(**given))
        return scenes[-1]

    yield one
    for scene in scenes:
        scene.gate.set()
        scene.cache.stop()
        scene.cache.join(_PATIENCE)


Make = Callable[..., Scene]


def test_one_load_for_all_who_ask(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask("one") for _ in range(3)]
    assert not any(run.done() for run in runs)
    scene.gate.set()
    for run in runs:
        assert run.result(_PATIENCE)["history"].tolist() == [[4.0, 4.0]]
        # Of its time in the queue, the wait is no part.
        assert (run.submitted, run.began, run.ended, run.batch) == (run.submitted, 2.0, 3.0, 4)
        assert run.submitted >= run.asked
        assert run.loading > 0
    assert scene.began == ["one"]
    assert scene.models["one"].attention == [("a",)] * 3
    assert scene.told.events == ["loaded one@1"]
    assert scene.told.waits == [("loaded", run.loading) for run in runs]


def test_loads_follow_the_order_of_the_first_to_ask(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask(name) for name in ("one", "two", "three", "two", "one")]
    scene.gate.set()
    for run in runs:
        run.result(_PATIENCE)
    assert scene.began == ["one", "two", "three"]


def test_who_was_not_asked_for_the_longest_time_goes(make: Make) -> None:
    scene = make(most=2)
    scene.bring("one", "two")
    scene.bring("one", "three")
    assert scene.present == ["one", "three"]
    assert scene.models["two"].closed == 7.0
    assert scene.told.events[-2:] == ["evicted two@1", "loaded three@1"]
    # It comes again, and answers.
    scene.bring("two")
    assert scene.present == ["three", "two"]


def test_who_has_work_goes_after_who_has_none(make: Make) -> None:
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
    assert run.result(_PATIENCE)


def test_as_many_go_as_memory_needs(make: Make) -> None:
    scene = make()
    scene.bring("one", "two", "three")
    scene.memory.room = 2
    scene.bring("four")
    assert scene.present == ["four", "three"]
    assert scene.told.events[-3:] == ["evicted one@1", "evicted two@1", "loaded four@1"]


def test_what_never_fits_puts_nothing_out(make: Make) -> None:
    scene = make()
    scene.bring("one")
    scene.memory.never.add("huge")
    with pytest.raises(NotReadyError, match=r"^huge@1 could not be loaded; /readyz says why$"):
        scene.ask("huge").result(_PATIENCE)
    assert scene.berth("huge").refused == "huge/1: never fits"
    assert scene.present == ["one"]


def test_what_does_not_fit_beside_others_is_refused_in_the_end(make: Make) -> None:
    scene = make()
    scene.bring("one")
    scene.memory.room = 0
    with pytest.raises(NotReadyError, match="could not be loaded"):
        scene.ask("two").result(_PATIENCE)
    assert scene.berth("two").refused == "two/1: needs more memory"


def test_kept_models_make_room_too_and_are_not_counted(make: Make) -> None:
    scene = make(most=1)
    scene.bring("one")
    kept = scene.cache.keep(Path("/models/kept/1"))
    assert kept is scene.models["kept"]
    assert scene.present == []
    scene.bring("two")
    scene.bring("three")
    assert scene.models["kept"].closed is None


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
    assert scene.told.waits == [("expired", 0.05)] * 2
    assert scene.berth("one").windows == 0
    scene.gate.set()
    scene.cache.load(scene.berth("two"))
    assert scene.present == ["one", "two"]
    assert scene.began == ["one", "two"]


def test_retry_after_is_what_loads_took(make: Make) -> None:
    scene = make(wait_seconds=0.05)
    scene.bring("one", "two")
    # Of itself what its own took, of what was never loaded what others did.
    scene.berth("one").seconds = 2.5
    scene.cache._mean = 20.0
    for name in ("one", "two"):
        scene.cache.load(scene.berth(name))
        scene.cache._put_out(scene.berth(name))
    scene.berth("one").seconds, scene.berth("two").seconds = 2.5, 3.5
    scene.cache._mean = 20.0
    scene.gate.clear()
    told = []
    for name in ("one", "two", "new", "newer", "newest"):
        run = scene.ask(name)
        with pytest.raises(ModelLoadingError) as late:
            run.result(_PATIENCE)
        told.append(late.value.retry_after)
    # 2.5, 6, 26, 46 and 66 seconds, less what has passed; a minute at most.
    assert told == [3, 6, 26, 46, 60]


def test_what_waits_is_bounded(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    with pytest.raises(TooLargeError, match=r"0 windows are waiting for one@1"):
        scene.ask("one", windows=5)
    first = scene.ask("one", windows=3)
    with pytest.raises(QueueFullError, match=r"3 windows .* and 2 more do not fit: at most 4"):
        scene.ask("one", windows=2)
    assert (scene.berth("one").windows, scene.berth("one").bytes) == (3, 24)
    # What was accepted is continued all the same; what is given up leaves room.
    scene.ask("one", windows=2, admitted=True)
    assert first.cancel()
    second = scene.ask("one", windows=2)
    scene.gate.set()
    assert len(second.result(_PATIENCE)["history"]) == 2
    assert len(scene.told.waits) == 2
    assert len(scene.models["one"].works) == 2


def test_who_comes_is_not_held_up_by_who_waits(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    looked = []
    done = Waiting.done
    monkeypatch.setattr(Waiting, "done", lambda run: looked.append(run) or done(run))
    scene = make()
    scene.gate.clear()
    berth = scene.berth("one")
    berth.max_windows = berth.max_bytes = 10_000
    runs = [scene.ask("one") for _ in range(100)]
    assert len(looked) < 1000
    for run in runs[::2]:
        assert run.cancel()
    assert (berth.windows, berth.bytes) == (50, 400)
    scene.gate.set()
    assert all(run.result(_PATIENCE) for run in runs[1::2])
    # Whoever has left does not leave again.
    assert (berth.windows, berth.bytes) == (0, 0)


def test_what_is_given_up_is_not_run_on(make: Make) -> None:
    scene = make()
    scene.held.add("one")
    run = scene.ask("one")
    until(lambda: bool(scene.models) and bool(scene.models["one"].works))
    assert run.cancel()
    assert scene.models["one"].works[0].over
    with pytest.raises(CancelledError):
        run.result(_PATIENCE)


def test_what_was_refused_is_tried_again_later_and_later(make: Make) -> None:
    scene = make()
    scene.bad.add("one")
    berth = scene.berth("one")
    for pause in (1.0, 2.0, 4.0):
        with pytest.raises(NotReadyError) as refused:
            scene.ask("one").result(_PATIENCE)
        assert refused.value.headers == {"Retry-After": str(int(pause))}
        # Nobody tries before.
        with pytest.raises(NotReadyError, match="/readyz says why") as again:
            scene.ask("one")
        assert again.value.headers == {"Retry-After": str(int(pause))}
        assert berth.refused == "one/1: bad weights"
        berth.retry_at = 0.0
    assert scene.began == ["one"] * 3
    assert scene.told.waits == [("refused", wait) for _, wait in scene.told.waits]
    assert scene.told.events == ["refused one@1"] * 3
    scene.bad.clear()
    scene.bring("one")
    assert (berth.refused, berth.pause, berth.retry_at) == ("", 0.0, 0.0)


def test_a_load_that_is_asked_for_waits_for_no_pause(make: Make) -> None:
    scene = make()
    scene.bad.add("one")
    for _ in range(2):
        with pytest.raises(LoadFailedError, match=r"^one/1: bad weights$"):
            scene.cache.load(scene.berth("one"))
    scene.bad.clear()
    scene.cache.load(scene.berth("one"))
    scene.cache.load(scene.berth("one"))
    assert scene.began == ["one"] * 3
    # One that does not work any more is another one then.
    old = scene.models["one"]
    old.failure = "lost"
    scene.cache.load(scene.berth("one"))
    assert old.closed is not None
    assert scene.berth("one").model is scene.models["one"] is not old


def test_a_model_is_closed_for_good(make: Make) -> None:
    scene = make()
    scene.bring("one")
    scene.gate.clear()
    waiting = scene.ask("two")
    scene.cache.close(scene.berth("one"), 3.0)
    assert scene.models["one"].closed == 3.0
    until(lambda: scene.began == ["one", "two"])
    scene.cache.close(scene.berth("two"), 3.0)
    with pytest.raises(NotReadyError, match="the model is stopping"):
        waiting.result(_PATIENCE)
    for name in ("one", "two"):
        with pytest.raises(NotReadyError, match="the model is stopping"):
            scene.ask(name)
    scene.gate.set()
    scene.bring("three")
    # What was loaded in vain does not stay.
    assert scene.models["two"].closed == 0.0
    assert scene.present == ["three"]


def test_what_is_closed_takes_no_room(make: Make) -> None:
    scene = make(most=1)
    scene.bring("one")
    scene.cache.close(scene.berth("one"), 3.0)
    scene.bring("two")
    assert scene.told.events == ["loaded one@1", "loaded two@1"]


def test_what_was_closed_before_its_load_is_not_loaded(make: Make) -> None:
    scene = make(most=1)
    scene.gate.clear()
    first, gone = scene.ask("one"), scene.ask("two")
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(scene.cache.load, scene.berth("two"))
        scene.cache.close(scene.berth("two"), 3.0)
        scene.gate.set()
        for waiting in (gone, loading):
            with pytest.raises(NotReadyError, match="the model is stopping"):
                waiting.result(_PATIENCE)
    assert first.result(_PATIENCE)
    assert scene.began == scene.present == ["one"]


def test_a_run_whose_model_is_closed_as_it_comes_is_told(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    run = scene.ask("one")
    until(lambda: scene.began == ["one"])
    scene.closed.add("one")
    scene.gate.set()
    with pytest.raises(NotReadyError, match="the model is stopping"):
        run.result(_PATIENCE)


def test_the_server_stops(make: Make) -> None:
    scene = make()
    scene.gate.clear()
    runs = [scene.ask("one"), scene.ask("two")]
    until(lambda: scene.began == ["one"])
    with ThreadPoolExecutor() as pool:
        loading = pool.submit(scene.cache.load, scene.berth("two"))
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
    assert scene.models["one"].closed == 0.0


def test_a_run_meets_a_model_that_goes(make: Make) -> None:
    scene = make(most=1)
    scene.bring("one")
    # Found, and gone by the time that it is asked.
    model = scene.models["one"]
    run = waiting()
    model.close(0.0)
    assert not run.start(model)
    assert not run.done()
    scene.bring("two")
    assert run.start(scene.models["two"])
    assert run.result(_PATIENCE)


def test_what_was_given_up_before_is_not_run() -> None:
    model, run = Mock(), waiting()
    assert run.cancel()
    assert run.start(model)
    model.submit.assert_not_called()
    assert run.loading == 0.0


def give_up(run: Waiting) -> None:
    assert run.cancel()


def refuse(run: Waiting) -> None:
    run.fail(NotReadyError("the model is stopping"))


def run_it(run: Waiting) -> None:
    # A mock would hold what it is called with.
    assert run.start(Mock(submit=lambda *_, **__: Mock()))


@pytest.mark.parametrize("end", [give_up, refuse, run_it])
def test_what_waits_no_more_holds_no_numbers(end: Callable[[Waiting], None]) -> None:
    """Whoever asked may hold it for longer."""
    rows = np.zeros((1, 2), np.float32)
    numbers = ref(rows)
    run = Waiting({"history": rows}, (), time.monotonic() + _PATIENCE)
    del rows
    assert numbers() is not None
    end(run)
    assert numbers() is None


@pytest.mark.parametrize("given_up", ["as it is started", "before it is known"])
def test_a_run_is_given_up_while_it_is_started(
    monkeypatch: pytest.MonkeyPatch, given_up: str
) -> None:
    model, run = Present(None, holds=True), waiting()
    if given_up == "as it is started":
        was = model.submit

        def submit(*args: object, **given: object) -> Run:
            assert run.cancel()
            return was(*args, **given)

        monkeypatch.setattr(model, "submit", submit)
        assert run.start(model)
    else:
        cancel = Future.cancel

        def late(self: Waiting) -> bool:
            if not model.works:
                assert self.start(model)
            return cancel(self)

        monkeypatch.setattr(Future, "cancel", late)
        assert run.cancel()
    assert [work.over for work in model.works] == [True]
    with pytest.raises(CancelledError):
        run.result(0)


def waiting() -> Waiting:
    return Waiting({"history": np.zeros((1, 2), np.float32)}, (), time.monotonic() + _PATIENCE)
