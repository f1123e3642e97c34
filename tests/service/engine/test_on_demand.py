from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from foretell.bundle import checksums, layout
from foretell.bundle.errors import BundleError
from foretell.bundle.example import Example
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.engine.cache import ModelCache
from foretell.service.engine.limits import Memory
from foretell.service.engine.model import Capacity, Model
from foretell.service.engine.run import Run
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.selftest import SelfTest
from foretell.service.engine.usage import Usage
from foretell.service.errors import LoadFailedError, ModelFailedError, NotReadyError
from foretell.service.metrics import Metrics
from foretell.service.session import Session
from tests.service.conftest import Quiet
from tests.service.engine.conftest import LAGS, HeldOpening, explain, forecast
from tests.support.bundles import Spec, lag_stage, rewrite_manifest, softmax_stage, write_bundle
from tests.support.waiting import until

_CAPACITY = Capacity(None, 64, 1 << 20)
_PATIENCE = 30.0


class Scene:
    """Models of this process, one of them in memory at a time, or `most`."""

    def __init__(self, runtime: Runtime, scheduler: Scheduler, most: int = 1) -> None:
        self._runtime = runtime
        self.scheduler = scheduler
        self.models: list[Model] = []
        self.cache = ModelCache(
            Memory(None), Metrics(), most=most, wait_seconds=_PATIENCE, drain_seconds=1
        )

    def list(self, folder: Path) -> Model:
        given = folder, self._runtime, self.scheduler, _CAPACITY, Quiet()
        self.models.append(Model(*given, cache=self.cache))
        return self.models[-1]


@pytest.fixture
def scene(
    runtime: Runtime,
    scheduler: Scheduler,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Iterator[Scene]:
    monkeypatch.setattr("foretell.service.engine.cache.gc", Mock())
    scene = Scene(runtime, scheduler, getattr(request, "param", 1))
    yield scene
    scene.cache.stop()
    scene.cache.join(_PATIENCE)
    for model in scene.models:
        model.close(1)


def answer(run: Run) -> list[float]:
    return list(run.result(_PATIENCE)["forecast"][0, :, 0])


def test_listed_model_is_described_before_it_is_loaded(scene: Scene, tmp_path: Path) -> None:
    spec = Spec(name="m", version="3", calibrated=1, example=8)
    model = scene.list(write_bundle(tmp_path, spec))
    assert (model.name, model.version, model.provider) == ("m", "3", "CPUExecutionProvider")
    assert model.manifest.horizon == 4
    assert model.intervals.calibration is not None
    assert model.on_demand
    assert not model.resident
    assert model.failure is None
    assert model.usage == Usage(0, 64, 0, 1 << 20)
    usual = model.max_batch
    found = asyncio.run(model.example())
    assert found is not None
    assert found.series == "a house"
    assert not model.resident
    assert usual == 8
    assert answer(forecast(model, 2.0)) == [2.0] * 4
    assert model.resident
    assert model.max_batch in (2, 4, 8, 16)


def test_run_submitted_during_an_eviction_is_answered(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = (scene.list(write_bundle(tmp_path, Spec(name=name))) for name in ("one", "two"))
    one.load()
    runs: list[Run] = []
    settle = one.queue.settle

    def late(timeout: float) -> None:
        if not runs:
            runs.append(forecast(one, 5.0))
        settle(timeout)

    monkeypatch.setattr(one.queue, "settle", late)
    two.load()
    assert answer(runs[0]) == [5.0] * 4
    assert one.resident
    assert not two.resident


def test_example_is_read_during_an_eviction(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = scene.list(write_bundle(tmp_path, Spec(name="one", example=8)))
    two = scene.list(write_bundle(tmp_path, Spec(name="two")))
    one.load()
    close = PrivateCopy.close
    examples: list[Example | None] = []

    def late(copy: PrivateCopy) -> None:
        close(copy)
        if not examples:
            examples.append(asyncio.run(one.example()))

    monkeypatch.setattr(PrivateCopy, "close", late)
    two.load()
    assert examples[0] is not None
    assert examples[0].series == "a house"
    assert not one.resident


def test_attention_waits_for_the_model_and_then_for_its_graph(scene: Scene, tmp_path: Path) -> None:
    spec = Spec(name="one", stages=(lag_stage(),))
    one = scene.list(write_bundle(tmp_path, spec))
    two = scene.list(write_bundle(tmp_path, Spec(name="two")))
    for _ in range(2):
        runs = [explain(one) for _ in range(3)]
        for run in runs:
            assert LAGS in run.result(_PATIENCE)
            assert run.loading > 0
        again = explain(one)
        assert LAGS in again.result(_PATIENCE)
        assert again.loading == 0
        two.load()
        assert not one.resident


def loaded_and_other(scene: Scene, tmp_path: Path) -> tuple[Model, Model]:
    """A loaded model with attention, and another one that can take its place."""
    one = scene.list(write_bundle(tmp_path, Spec(name="one", stages=(lag_stage(),))))
    two = scene.list(write_bundle(tmp_path, Spec(name="two")))
    one.load()
    return one, two


def test_eviction_while_the_attention_graph_is_opened(
    scene: Scene, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = loaded_and_other(scene, tmp_path)
    opened = runtime.open
    evicting = threading.Event()

    def late(graph: Path, **options: Any) -> Session:
        if graph.name == layout.EXPLAIN_GRAPH:
            assert evicting.wait(_PATIENCE)
        return opened(graph, **options)

    monkeypatch.setattr(runtime, "open", late)
    run = explain(one)
    settle = one.queue.settle
    monkeypatch.setattr(one.queue, "settle", lambda timeout: (evicting.set(), settle(timeout)))
    two.load()
    # The model is loaded again for it, and then its graph.
    assert LAGS in run.result(_PATIENCE)
    assert one.resident
    assert not two.resident


def after_pause(
    model: Model, opening: HeldOpening, patch: pytest.MonkeyPatch, change: Callable[[], object]
) -> None:
    """Call a function once a model's eviction has begun, and then open the graph."""
    pause = model.queue.pause

    def paused(graph: str, ask: Callable[[], object]) -> None:
        pause(graph, ask)
        if not opening.go_on.is_set():
            change()
            opening.go_on.set()

    patch.setattr(model.queue, "pause", paused)


def test_accepted_attention_is_answered_before_the_eviction(
    scene: Scene, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = loaded_and_other(scene, tmp_path)
    scene.cache._drain_seconds = _PATIENCE
    opening = HeldOpening(runtime, monkeypatch)
    run = explain(one)
    after_pause(one, opening, monkeypatch, lambda: None)
    two.load()
    assert LAGS in run.result(0)
    # The model was not loaded again for it.
    assert run.loading == 0
    assert two.resident
    assert not one.resident


def test_attention_that_fails_during_an_eviction_fails_only_itself(
    scene: Scene, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = loaded_and_other(scene, tmp_path)
    scene.cache._drain_seconds = _PATIENCE
    opening = HeldOpening(runtime, monkeypatch)
    run = explain(one)
    assert opening.began.wait(_PATIENCE)
    opening.error = BundleError("no memory")
    runs: list[Run] = []
    after_pause(one, opening, monkeypatch, lambda: runs.append(forecast(one, 5.0)))
    two.load()
    with pytest.raises(ModelFailedError, match="could not be opened again"):
        run.result(0)
    assert answer(runs[0]) == [5.0] * 4


@pytest.mark.parametrize("own", [True, False], ids=["its own graph", "that of another model"])
def test_an_eviction_waits_for_an_attention_graph_within_its_time(
    scene: Scene, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    one = scene.list(write_bundle(tmp_path, Spec(name="one", stages=(lag_stage(),))))
    two = scene.list(write_bundle(tmp_path, Spec(name="two")))
    folder = write_bundle(tmp_path, Spec(name="kept", stages=(lag_stage(),)))
    kept = Model(folder, runtime, scene.scheduler, _CAPACITY, Quiet())
    one.load()
    copy = one._copy
    assert copy is not None
    scene.cache._drain_seconds = _PATIENCE
    opening = HeldOpening(runtime, monkeypatch)
    monkeypatch.setattr("foretell.service.engine.model._STOP_SECONDS", 0.01)
    scene.cache._drain_seconds = 0.01
    try:
        first = explain(one if own else kept)
        assert opening.began.wait(_PATIENCE)
        run = first if own else explain(one)
        run.cancel()
        assert forecast(two).result(10)
        assert not one.resident
        # The last reader of the copy closes it.
        assert (copy._content is not None) == own
    finally:
        opening.go_on.set()
    until(lambda: copy._content is None)
    if not own:
        assert LAGS in first.result(_PATIENCE)
    kept.close(1)


def test_run_not_finished_before_the_eviction_fails(
    scene: Scene, scheduler: Scheduler, tmp_path: Path
) -> None:
    one = scene.list(write_bundle(tmp_path, Spec(name="one")))
    one.load()
    go_on = threading.Event()
    scheduler.on_threads(lambda thread: go_on.wait(_PATIENCE))
    run = forecast(one)
    one.evict(0.01)
    go_on.set()
    with pytest.raises(NotReadyError, match="closed before this was run"):
        run.result(_PATIENCE)


@pytest.mark.parametrize("scene", [2], indirect=True)
def test_the_least_recently_used_is_evicted(scene: Scene, tmp_path: Path) -> None:
    names = ("one", "two", "three")
    one, two, three = (scene.list(write_bundle(tmp_path, Spec(name=name))) for name in names)
    for model in (one, two, one, three):
        answer(forecast(model))
    assert [model.resident for model in (one, two, three)] == [True, False, True]
    # An evicted model is loaded again, until it is closed.
    assert answer(forecast(two, 3.0)) == [3.0] * 4
    two.close(1)
    assert not two.resident
    for ask in (forecast, Model.load):
        with pytest.raises(NotReadyError, match="the model is stopping"):
            ask(two)


def test_listing_checks_manifest_and_calibration(scene: Scene, tmp_path: Path) -> None:
    for file in (layout.MANIFEST, layout.CALIBRATION):
        folder = write_bundle(tmp_path / file, Spec(calibrated=1))
        (folder / file).write_bytes(b"broken")
        with pytest.raises(BundleError, match=file):
            scene.list(folder)


def test_loading_checks_the_weights(scene: Scene, tmp_path: Path) -> None:
    spec = Spec(name="m")
    folder = write_bundle(tmp_path, spec)
    model = scene.list(folder)
    weights = (folder / layout.WEIGHTS).read_bytes()
    (folder / layout.WEIGHTS).write_bytes(b"other")
    with pytest.raises(NotReadyError, match=r"^m@1 could not be loaded"):
        answer(forecast(model))
    message = "m/1/weights.bin: sha256 differs from the manifest; the file was changed"
    assert model.failure == message
    with pytest.raises(LoadFailedError, match="sha256 differs"):
        model.load()
    (folder / layout.WEIGHTS).write_bytes(weights)
    model.load()
    assert model.failure is None
    assert answer(forecast(model, 2.0)) == [2.0] * 4
    model.evict(1)
    (folder / layout.WEIGHTS).unlink()
    with pytest.raises(LoadFailedError, match=r"^m/1/weights\.bin: missing"):
        scene.list(folder).load()


def test_changed_bundle_is_not_loaded_with_the_old_manifest(scene: Scene, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path, Spec(name="m"))
    model = scene.list(folder)
    rewrite_manifest(folder, Spec(name="m", changes={"parameters": 7}))
    with pytest.raises(LoadFailedError, match=r"^m/1: was changed since it was read; load it"):
        model.load()
    assert not model.resident
    assert answer(forecast(scene.list(folder), 2.0)) == [2.0] * 4


def test_later_loads_skip_timing_and_attention_tests(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[str] = []

    def note(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def noting(*args: object) -> object:
            tried.append(name)
            return original(*args)

        monkeypatch.setattr(owner, name, noting)

    for owner, name in ((checksums, "compare"), (SelfTest, "time_runs"), (SelfTest, "replay")):
        note(owner, name)
    folder = write_bundle(tmp_path, Spec(name="m", stages=(softmax_stage(),)))
    model, other = scene.list(folder), scene.list(write_bundle(tmp_path, Spec(name="other")))
    model.load()
    sums = 4 * ["compare"]
    assert tried == [*sums, "replay", "time_runs", "replay"]
    model._graphs.max_batch = 5
    other.load()
    tried.clear()
    model.load()
    # The new session runs and returns the same.
    assert tried == [*sums, "replay"]
    assert model.max_batch == 5
    other.load()
    tried.clear()
    # Writing the same bytes again is not a change.
    (folder / layout.WEIGHTS).write_bytes((folder / layout.WEIGHTS).read_bytes())
    model.load()
    assert tried == [*sums, "replay"]
