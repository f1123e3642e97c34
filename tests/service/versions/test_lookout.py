from __future__ import annotations

from pathlib import Path

import pytest

from foretell.bundle.errors import BundleError
from foretell.service.errors import NotReadyError
from foretell.service.versions.rollout import Rollout
from tests.service.served import Scene, remove
from tests.service.waiting import until


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Versions 1 and 2 of a model."""
    return Scene.started(tmp_path, "one@1", "one@2")


def test_what_came_changed_or_went(scene: Scene) -> None:
    (old,) = (model for model in scene.repository.models if model.version == "2")
    scene.place("one@2", "better")
    scene.place("one@3")
    scene.place("two@1")
    remove(scene.folder, "one", "1")
    scene.repository.look()
    assert scene.has == ["one@2", "one@3", "two@1"]
    assert scene.repository.find("one@2").content == "better"
    assert old.closed.wait(30)
    until(lambda: "one@1" not in scene.repository.report())


def test_what_did_not_change_is_left_as_it_is(scene: Scene) -> None:
    scene.place("one@3", "bad")
    scene.repository.look()
    opened = list(scene.open.opened)
    scene.repository.unload("one", "2")
    for _ in range(3):
        scene.repository.look()
    assert scene.has == ["one@1"]
    assert scene.open.opened == opened
    scene.place("one@3")
    scene.repository.look()
    assert scene.has == ["one@1", "one@3"]


def test_a_bad_one_that_goes_is_forgotten(scene: Scene) -> None:
    scene.place("one@3", "bad")
    scene.repository.look()
    assert scene.repository.report()["one@3"] == "bad"
    assert scene.repository.ready
    remove(scene.folder, "one", "3")
    scene.repository.look()
    assert "one@3" not in scene.repository.report()


def test_only_the_latest(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "latest")
    for version in ("1", "2"):
        scene.place(f"one@{version}")
    scene.repository.start()
    for content, has in (("bad", "one@2"), ("good", "one@3")):
        scene.place("one@3", content)
        scene.repository.look()
        assert scene.has == [has]
    remove(tmp_path, "one", "1")
    scene.repository.look()
    assert scene.has == ["one@3"]
    remove(tmp_path, "one", "3")
    scene.repository.look()
    assert scene.has == ["one@2"]


@pytest.mark.parametrize("content", ["good", "bad"])
def test_a_latest_that_goes_with_all_others_bad(tmp_path: Path, content: str) -> None:
    scene = Scene(tmp_path, "latest")
    scene.place("one@2")
    scene.place("two@1")
    scene.repository.start()
    scene.place("one@1", content)
    remove(tmp_path, "one", "2")
    scene.repository.look()
    assert scene.has == (["one@1", "two@1"] if content == "good" else ["two@1"])


def test_a_folder_that_is_empty_at_once_is_no_wish(scene: Scene) -> None:
    for version in ("1", "2"):
        remove(scene.folder, "one", version)
    with pytest.raises(BundleError, match="is empty; what is loaded stays"):
        scene.repository.look()
    assert scene.has == ["one@1", "one@2"]
    scene.place("two@1")
    scene.repository.look()
    assert scene.has == ["two@1"]


def test_a_model_that_cannot_be_read_holds_up_no_other(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    catalogue = scene.repository._catalogue
    has = catalogue.has

    def fail(name: str, version: str) -> bool:
        if name == "one":
            raise OSError("Stale file handle")
        return has(name, version)

    scene.repository.unload("one", "1")
    until(lambda: scene.repository.report()["one@1"] == "not loaded")
    remove(scene.folder, "one", "1")
    scene.place("two@1")
    monkeypatch.setattr(catalogue, "has", fail)
    for _ in range(3):
        scene.repository.look()
    assert scene.has == ["one@2", "two@1"]
    assert "one@1" in scene.repository.report()
    told = [record.getMessage() for record in caplog.records]
    assert told == ["what is new of one is tried again: Stale file handle"]
    monkeypatch.undo()
    scene.repository.look()
    assert scene.repository.report() == {"one@2": "ready", "two@1": "ready"}


@pytest.mark.parametrize("back", [True, False])
def test_what_could_not_be_loaded_is_tried_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    def fail(name: str, versions: object) -> None:
        raise OSError("No space left on device")

    scene.place("one@3")
    scene.place("two@1")
    monkeypatch.setattr(scene.repository._rollout, "load", fail)
    scene.repository.look()
    assert scene.has == ["one@1", "one@2"]
    monkeypatch.undo()
    if not back:
        # Gone again before anybody could load it.
        remove(scene.folder, "one", "3")
    scene.repository.look()
    assert scene.has == ["one@1", "one@2", *(["one@3"] if back else []), "two@1"]
    opened = list(scene.open.opened)
    scene.repository.look()
    assert scene.open.opened == opened


def test_what_went_while_the_server_stops_is_no_failure(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopping(*_: object) -> None:
        raise NotReadyError("the server is stopping")

    scene.place("two@1")
    remove(scene.folder, "one", "1")
    monkeypatch.setattr(Rollout, "unload", stopping)
    scene.repository.look()
    assert "two@1" in scene.has
