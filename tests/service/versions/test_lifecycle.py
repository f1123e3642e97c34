from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foretell.service.engine.memory import Memory
from foretell.service.errors import LoadFailedError
from foretell.service.versions.catalogue import Catalogue
from foretell.service.versions.lifecycle import Lifecycle
from foretell.service.versions.policy import Policy
from foretell.service.versions.table import State, Table
from tests.service.served import Opener, Recorder, Served, place, remove
from tests.service.waiting import until


class Scene:
    """A lifecycle with everything around it."""

    def __init__(self, folder: Path, memory: Memory | None = None) -> None:
        self.folder = folder
        self.table = Table(Policy())
        self.open = Opener()
        self.told = Recorder()
        self.lifecycle = Lifecycle(
            Catalogue(folder),
            self.table,
            self.open,
            memory=memory or Memory(None),
            observer=self.told,
            request_seconds=30,
        )

    def model(self, version: str = "1") -> Served:
        model = self.table.find(f"one@{version}")
        assert isinstance(model, Served)
        return model

    def state(self, version: str = "1") -> State:
        return self.table.get("one", version).entry("one", version).state


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    place(tmp_path, "one", "1")
    return Scene(tmp_path)


def test_a_version_is_opened_before_it_answers(scene: Scene) -> None:
    scene.open.gate.clear()
    with ThreadPoolExecutor(1) as pool:
        loading = pool.submit(scene.lifecycle.bring, "one", "1")
        until(lambda: scene.state() is State.LOADING)
        scene.open.gate.set()
        loading.result(30)
    assert scene.state() is State.READY
    assert scene.told.events == ["loaded one@1"]


def test_what_is_as_its_bundle_is_stays(scene: Scene) -> None:
    scene.lifecycle.bring("one", "1", stamp=1)
    model = scene.model()
    scene.lifecycle.bring("one", "1", stamp=2)
    assert scene.model() is model
    assert scene.table.get("one", "1").stamp == 2
    assert scene.open.opened == ["one@1"]


@pytest.mark.parametrize("change", ["bundle", "failure"])
def test_a_changed_bundle_or_a_failed_model_is_replaced(scene: Scene, change: str) -> None:
    scene.lifecycle.bring("one", "1")
    old = scene.model()
    if change == "bundle":
        place(scene.folder, "one", "1", "better")
    else:
        old.failure = "lost"
    with scene.lifecycle.requests.one():
        scene.lifecycle.bring("one", "1")
        assert scene.model() is not old
        # A request that has begun may have found it.
        assert not old.closed.wait(0.05)
    assert old.closed.wait(30)
    assert not scene.model().closed.is_set()
    # The version was there all the time.
    assert scene.told.events == ["loaded one@1"] * 2


def test_a_refused_bundle_leaves_what_was_there(scene: Scene) -> None:
    scene.lifecycle.bring("one", "1")
    old = scene.model()
    place(scene.folder, "one", "1", "bad weights")
    with pytest.raises(LoadFailedError, match="one@1 was refused: bad weights"):
        scene.lifecycle.bring("one", "1")
    assert scene.model() is old
    assert scene.table.get("one", "1").entry("one", "1").reason == "bad weights"
    place(scene.folder, "one", "1")
    scene.lifecycle.bring("one", "1")
    assert scene.model() is old
    assert scene.table.get("one", "1").refused == ""
    assert scene.told.events == ["loaded one@1", "refused one@1"]


def test_a_bundle_that_is_not_there_is_refused(scene: Scene) -> None:
    with pytest.raises(LoadFailedError, match="No such file"):
        scene.lifecycle.bring("one", "2")
    assert scene.state("2") is State.UNAVAILABLE


def test_a_refusal_without_a_word_has_a_reason_too(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: Path) -> Served:
        raise TimeoutError

    monkeypatch.setattr(scene.lifecycle, "_open_model", fail)
    with pytest.raises(LoadFailedError, match="one@1 was refused: TimeoutError"):
        scene.lifecycle.bring("one", "1")
    assert scene.table.get("one", "1").refused == "TimeoutError"


def test_a_bundle_that_does_not_fit_is_not_opened(tmp_path: Path) -> None:
    folder = place(tmp_path, "one", "1")
    for file in ("forecast.onnx", "explain.onnx", "weights.bin"):
        (folder / file).touch()
    scene = Scene(tmp_path, Memory(1))
    with pytest.raises(LoadFailedError, match="needs about 0 MiB"):
        scene.lifecycle.bring("one", "1")
    assert scene.open.opened == []


def test_a_dropped_version_leaves_when_nobody_uses_it(scene: Scene) -> None:
    scene.lifecycle.bring("one", "1")
    model = scene.model()
    with scene.lifecycle.requests.one():
        scene.lifecycle.drop("one", "1")
        assert scene.state() is State.UNLOADING
        assert not model.closed.wait(0.05)
    assert model.closed.wait(30)
    until(lambda: scene.state() is State.UNAVAILABLE)
    until(lambda: scene.told.events[1:] == ["unloaded one@1"])
    assert [version for _, version, _ in scene.table] == ["1"]


def test_what_is_gone_from_the_disk_is_forgotten(scene: Scene) -> None:
    scene.lifecycle.bring("one", "1")
    remove(scene.folder, "one", "1")
    scene.lifecycle.drop("one", "1")
    until(lambda: not list(scene.table))
    with pytest.raises(LoadFailedError):
        scene.lifecycle.bring("one", "1")
    scene.lifecycle.drop("one", "1")
    assert not list(scene.table)


def test_a_version_that_comes_back_while_it_leaves(scene: Scene) -> None:
    scene.lifecycle.bring("one", "1")
    old = scene.model()
    with scene.lifecycle.requests.one():
        scene.lifecycle.drop("one", "1")
        scene.lifecycle.bring("one", "1")
    assert old.closed.wait(30)
    until(lambda: not any(thread.name == "drain-one@1" for thread in threading.enumerate()))
    assert scene.state() is State.READY
    assert scene.told.events == ["loaded one@1"] * 2


def test_closing_closes_what_is_leaving_too(scene: Scene) -> None:
    place(scene.folder, "one", "2")
    for version in ("1", "2"):
        scene.lifecycle.bring("one", version)
    models = [scene.model("1"), scene.model("2")]
    with scene.lifecycle.requests.one():
        scene.lifecycle.drop("one", "1")
        scene.lifecycle.close(5)
        assert all(model.closed.is_set() for model in models)


def test_models_share_the_time_to_close(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    place(scene.folder, "one", "2")
    for version in ("1", "2"):
        scene.lifecycle.bring("one", version)
    given: list[float] = []
    clock = iter((100.0, 100.0, 107.0))
    monkeypatch.setattr(Served, "close", lambda _, timeout: given.append(timeout))
    with monkeypatch.context() as patch:
        patch.setattr("foretell.service.versions.lifecycle.time.monotonic", lambda: next(clock))
        scene.lifecycle.close(5)
    assert given == [5.0, 0.0]
