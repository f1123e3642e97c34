from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from foretell.bundle import layout
from foretell.service.batcher import Batcher
from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.model import Model
from foretell.service.repository import Repository
from foretell.service.settings import VersionChoice
from foretell.service.versions.table import Entry, State
from tests.service.bundles import Spec, write_bundle
from tests.service.served import Opener, Recorder, Scene, place, remove
from tests.service.waiting import until

Open = Callable[[Path], Model]


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Versions 1 and 2 of a model."""
    return Scene.started(tmp_path, "one@1", "one@2")


def test_real_bundles(open_model: Open, tmp_path: Path) -> None:
    for version in ("2", "10"):
        write_bundle(tmp_path, Spec(version=version))
    broken = write_bundle(tmp_path, Spec(name="broken"))
    (broken / layout.WEIGHTS).write_bytes(b"broken")
    repository = Repository(tmp_path, open_model, Recorder())
    repository.start()
    assert repository.names == ["repeat"]
    assert repository.versions("repeat") == ["2", "10"]
    assert repository.find(None).version == "10"
    assert repository.find("repeat@2").version == "2"
    assert not repository.ready
    report = repository.report()
    assert report["repeat@10"] == "ready"
    assert "sha256 differs" in report["broken@1"]
    for reference in ("broken", "broken@1"):
        with pytest.raises(NotReadyError, match="is not loaded"):
            repository.find(reference)


def test_nothing_to_serve(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"model repository .*nowhere: no such folder"):
        Scene(tmp_path / "nowhere").repository.start()
    with pytest.raises(StartError, match="no bundle in it"):
        Scene(tmp_path).repository.start()
    place(tmp_path, "one", "1", "bad weights")
    with pytest.raises(StartError, match=r"(?s)could be loaded:.*bad weights"):
        Scene(tmp_path).repository.start()


def test_a_device_that_does_not_work_is_no_bundles_fault(tmp_path: Path) -> None:
    def fail(folder: Path) -> Model:
        raise StartError("device cuda: no GPU")

    place(tmp_path, "one", "1")
    with pytest.raises(StartError, match=r"^device cuda: no GPU$"):
        Repository(tmp_path, fail, Recorder(), watch_seconds=3600).start()


def test_who_watches_may_start_with_nothing(tmp_path: Path) -> None:
    repository = Repository(tmp_path, Opener(), Recorder(), watch_seconds=0.01)
    repository.start()
    assert not repository.ready
    place(tmp_path, "one", "1")
    until(lambda: repository.ready)
    repository.close(5)


@pytest.mark.parametrize(
    ("versions", "pins", "has"),
    [
        ("all", {}, ["one@1", "one@9", "one@10"]),
        ("latest", {}, ["one@10"]),
        ("latest", {"one": "9"}, ["one@9"]),
    ],
)
def test_what_is_loaded_at_the_start(
    tmp_path: Path, versions: VersionChoice, pins: dict[str, str], has: list[str]
) -> None:
    scene = Scene(tmp_path, versions, **pins)
    for version in ("1", "9", "10"):
        scene.place(f"one@{version}")
    scene.repository.start()
    assert scene.has == has


def test_an_older_version_is_better_than_none(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "latest")
    for reference, content in (("one@1", "good"), ("one@2", "good"), ("one@3", "bad")):
        scene.place(reference, content)
    scene.repository.start()
    assert scene.has == ["one@2"]
    assert scene.repository.ready
    assert scene.repository.report() == {"one@2": "ready", "one@3": "bad"}
    assert scene.open.opened == ["one@3", "one@2"]


def test_versions_are_loaded_and_unloaded(scene: Scene) -> None:
    scene.place("one@3")
    scene.repository.load("one", "3")
    assert scene.has == ["one@1", "one@2", "one@3"]
    assert scene.repository.find("one").version == "3"
    scene.repository.unload("one", "3")
    assert scene.repository.find("one").version == "2"
    with pytest.raises(NotReadyError):
        scene.repository.find("one@3")
    scene.repository.unload("one")
    assert scene.has == scene.repository.names == []
    with pytest.raises(NotReadyError):
        scene.repository.find("one")
    scene.repository.load("one")
    assert scene.has == ["one@1", "one@2", "one@3"]
    assert scene.repository.ready


def test_a_version_leaves_once_what_it_has_begun_is_done(scene: Scene) -> None:
    with scene.repository.requests.one():
        scene.repository.unload("one", "1")
        states = {entry.version: entry.state for entry in scene.repository.index()}
        assert states == {"1": State.UNLOADING, "2": State.READY}
        assert "unloaded one@1" not in scene.told.events
    until(lambda: "unloaded one@1" in scene.told.events)


def test_loading_twice_does_nothing(scene: Scene) -> None:
    scene.repository.load("one")
    scene.repository.load("one", "2")
    scene.repository.unload("one", "1")
    scene.repository.unload("one", "1")
    assert scene.open.opened == ["one@2", "one@1"]


def test_the_newest_takes_the_place_of_the_older(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "latest")
    scene.place("one@1")
    scene.repository.start()
    scene.place("one@2", "bad")
    with pytest.raises(LoadFailedError):
        scene.repository.load("one")
    assert scene.has == ["one@1"]
    scene.place("one@2")
    scene.repository.load("one")
    assert scene.has == ["one@2"]
    # Who asks for a version gets it besides.
    scene.repository.load("one", "1")
    assert scene.has == ["one@1", "one@2"]


def test_a_pin_to_a_version_that_is_not_there(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "latest", one="2")
    scene.place("two@1")
    scene.place("one@1")
    scene.repository.start()
    with pytest.raises(LoadFailedError, match="one is pinned to version 2, which is not there"):
        scene.repository.load("one")
    assert not scene.repository.ready
    scene.place("one@2")
    scene.repository.load("one")
    assert scene.has == ["one@2", "two@1"]
    assert scene.repository.ready


def test_a_bad_version_is_refused_with_the_reason(scene: Scene) -> None:
    scene.place("one@3", "bad weights")
    scene.place("one@4")
    with pytest.raises(LoadFailedError, match="one@3 was refused: bad weights"):
        scene.repository.load("one")
    assert scene.repository.find("one").version == "4"
    with pytest.raises(LoadFailedError):
        scene.repository.load("one", "3")
    assert scene.repository.ready
    assert scene.repository.report()["one@3"] == "bad weights"
    # It is tried again when asked for.
    scene.place("one@3")
    scene.repository.load("one", "3")
    assert "one@3" in scene.has


@pytest.mark.parametrize("name", ["three", "", "../models", "one/1", "one@1", "\0"])
@pytest.mark.parametrize("version", [None, "1", "\0"])
def test_models_that_are_not_there(scene: Scene, name: str, version: str | None) -> None:
    for change in (scene.repository.load, scene.repository.unload):
        with pytest.raises(UnknownModelError):
            change(name, version)


@pytest.mark.parametrize("version", ["3", "", "01", "latest", "../1"])
def test_versions_that_are_not_there(scene: Scene, version: str) -> None:
    for change in (scene.repository.load, scene.repository.unload):
        with pytest.raises(UnknownVersionError):
            change("one", version)


def test_loads_of_a_model_take_turns(scene: Scene) -> None:
    scene.place("one@3")
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(scene.repository.load, "one", "3") for _ in range(8)]
        for load in loads:
            load.result(30)
    assert scene.open.opened.count("one@3") == 1


def test_others_answer_while_one_is_loaded(scene: Scene) -> None:
    scene.place("one@3")
    scene.open.gate.clear()
    loading = threading.Thread(target=scene.repository.load, args=("one", "3"))
    loading.start()
    until(lambda: scene.repository.index()[2].state is State.LOADING)
    assert scene.repository.find("one").version == "2"
    assert scene.repository.ready
    with pytest.raises(NotReadyError):
        scene.repository.find("one@3")
    scene.open.gate.set()
    loading.join(30)
    assert scene.repository.find("one").version == "3"


def test_the_index_has_what_is_loaded_and_what_is_on_disk(scene: Scene) -> None:
    scene.place("one@10")
    scene.place("one@9", "bad")
    with pytest.raises(LoadFailedError):
        scene.repository.load("one", "9")
    remove(scene.folder, "one", "1")
    assert scene.repository.index() == [
        Entry("one", "1", State.READY),
        Entry("one", "2", State.READY),
        Entry("one", "9", State.UNAVAILABLE, "bad"),
        Entry("one", "10", State.UNAVAILABLE, "not loaded"),
    ]


def test_draining_is_not_ready_and_still_answers(scene: Scene) -> None:
    scene.repository.drain()
    assert not scene.repository.ready
    assert scene.repository.report() == {"one@1": "draining", "one@2": "draining"}
    assert scene.repository.find("one").version == "2"


def test_a_lost_gpu_makes_it_unready_at_once(tmp_path: Path) -> None:
    place(tmp_path, "one", "1")
    place(tmp_path, "two", "1", "bad weights")
    lost: dict[int, str] = {}
    batcher = Batcher(workers=2)
    repository = Repository(tmp_path, Opener(), Recorder(), batcher=batcher, lost=lambda: lost)
    repository.start()
    (tmp_path / "two" / "1" / layout.MANIFEST).write_text("good")
    repository.load("two")
    assert (repository.ready, repository.dead) == (True, False)
    lost[1] = "GPU 1 is lost"
    assert (repository.ready, repository.dead) == (False, False)
    place(tmp_path, "three", "1", "bad weights")
    with pytest.raises(LoadFailedError):
        repository.load("three")
    report = repository.report()
    assert "bad weights" in report.pop("three@1")
    assert report == {"one@1": "GPU 1 is lost", "two@1": "GPU 1 is lost"}
    # Others go on answering.
    assert repository.find("one").name == "one"
    lost[0] = "GPU 0 is lost"
    assert repository.dead
    repository.drain()
    assert repository.report()["one@1"] == "GPU 1 is lost; GPU 0 is lost"
    repository.close(5)


def test_nothing_changes_while_it_is_draining(scene: Scene) -> None:
    scene.place("one@3")
    scene.open.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(scene.repository.load, "one", "3") for _ in range(8)]
        until(lambda: "one@3" in scene.open.opened)
        scene.repository.drain()
        scene.open.gate.set()
        ends = [load.exception(30) for load in loads]
    # What is on disk stays news for whoever comes after this process.
    scene.place("one@4")
    scene.repository.look()
    # The one that had begun has ended well; nobody is kept waiting by those that had not.
    assert [type(end) for end in ends if end is not None] == [NotReadyError] * 7
    assert scene.has == ["one@1", "one@2", "one@3"]


def test_nothing_is_loaded_once_it_is_closed(scene: Scene) -> None:
    models = scene.repository.models
    scene.repository.close(5)
    assert all(model.closed.is_set() for model in models)
    with pytest.raises(NotReadyError, match="stopping"):
        scene.repository.load("one", "1")
