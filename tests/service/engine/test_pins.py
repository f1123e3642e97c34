"""Pins and challengers that the files of a repository name."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretell.bundle import layout, serving
from foretell.bundle.serving import NOTHING, Challenger, Serving
from foretell.service.errors import LoadFailedError, NotReadyError, UnknownModelError
from foretell.service.settings import VersionChoice
from tests.service.served import Scene, place
from tests.support.waiting import until


def scene_of(
    folder: Path,
    roles: Serving = NOTHING,
    *,
    choice: VersionChoice = "all",
    versions: str = "123",
    **pins: str,
) -> Scene:
    """A started repository with versions of the model `one`."""
    for version in versions:
        place(folder, "one", version)
    serving.write(folder, "one", roles)
    scene = Scene(folder, choice, watch_seconds=3600, **pins)
    scene.repository.start()
    return scene


def pinned(version: str | None, challenger: str | None = None, share: float = 0.1) -> Serving:
    if challenger is None:
        return Serving(pin=version)
    return Serving(pin=version, challenger=Challenger(version=challenger, share=share))


def test_a_pin_of_the_repository_is_what_the_name_means(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pinned("2", "3"))
    assert scene.find("one").version == "2"
    assert scene.repository.registry.challengers == {"one": ("3", 0.1)}
    assert scene.repository.snapshot.ready
    serving.write(tmp_path, "one", pinned("1"))
    assert scene.find("one").version == "2"
    scene.repository.poll()
    assert scene.find("one").version == "1"
    assert scene.repository.registry.challengers == {}
    serving.write(tmp_path, "one", NOTHING)
    scene.repository.poll()
    assert scene.find("one").version == "3"


def test_only_the_pinned_version_and_the_challenger_are_loaded(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pinned("1", "2"), choice="latest")
    assert scene.has == ["one@1", "one@2"]
    serving.write(tmp_path, "one", pinned("2"))
    scene.repository.poll()
    assert scene.has == ["one@2"]
    serving.write(tmp_path, "one", pinned(None, "1", 0.5))
    scene.repository.poll()
    assert scene.has == ["one@1", "one@3"]
    assert scene.find("one").version == "3"
    assert scene.repository.registry.challengers == {"one": ("1", 0.5)}


@pytest.mark.parametrize("choice", ["all", "latest"])
def test_the_name_answers_while_a_promoted_version_is_loaded(
    tmp_path: Path, choice: VersionChoice
) -> None:
    scene = scene_of(tmp_path, pinned("1"), choice=choice, versions="1")
    answered: list[str] = []
    open_model = scene.open.__call__

    def opens(folder: Path) -> object:
        answered.append(scene.find("one").version)
        return open_model(folder)

    scene.repository.versions._open_model = opens  # type: ignore[assignment]
    place(tmp_path, "one", "2")
    serving.write(tmp_path, "one", pinned("2"))
    scene.repository.poll()
    assert answered == ["1"]
    assert scene.find("one").version == "2"


def test_the_version_before_answers_if_a_promoted_one_is_refused(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pinned("1"), choice="latest", versions="1")
    place(tmp_path, "one", "2", "bad weights")
    serving.write(tmp_path, "one", pinned("2"))
    scene.repository.poll()
    assert scene.find("one").version == "1"
    assert scene.repository.snapshot.report == {"one@1": "ready", "one@2": "bad weights"}
    place(tmp_path, "one", "2", "good weights")
    scene.repository.poll()
    assert scene.find("one").version == "2"


@pytest.mark.parametrize("choice", ["all", "latest"])
def test_a_pinned_version_that_is_not_there_makes_the_server_unready(
    tmp_path: Path, choice: VersionChoice
) -> None:
    scene = scene_of(tmp_path, pinned("9"), choice=choice)
    assert not scene.repository.snapshot.ready
    assert scene.repository.snapshot.report["one@9"] == "pinned, and not loaded"
    with pytest.raises((NotReadyError, UnknownModelError)):
        scene.find("one")
    place(tmp_path, "one", "9")
    scene.repository.poll()
    assert scene.repository.snapshot.ready
    assert scene.find("one").version == "9"


def test_a_pin_of_the_settings_wins(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pinned("2", "1"), one="1")
    assert scene.find("one").version == "1"
    assert scene.repository.registry.challengers == {}
    serving.write(tmp_path, "one", pinned("3", "2"))
    scene.repository.poll()
    assert scene.find("one").version == "1"
    assert scene.repository.registry.challengers == {"one": ("2", 0.1)}


def test_a_broken_file_changes_nothing_and_is_logged_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    scene = scene_of(tmp_path, pinned("2", "3"))
    (tmp_path / "one" / layout.SERVING).write_text("{")
    for _ in range(3):
        scene.repository.poll()
    assert scene.find("one").version == "2"
    assert scene.repository.registry.challengers == {"one": ("3", 0.1)}
    logged = [line for line in caplog.text.splitlines() if "stay as before" in line]
    assert len(logged) == 1
    assert "one/serving.json: " in logged[0]
    assert str(tmp_path) not in logged[0]
    serving.write(tmp_path, "one", pinned("1"))
    scene.repository.poll()
    assert scene.find("one").version == "1"


def test_a_load_reads_the_file(tmp_path: Path) -> None:
    scene = scene_of(tmp_path, pinned("1"), choice="latest")
    serving.write(tmp_path, "one", pinned("2"))
    scene.repository.load("one")
    assert scene.find("one").version == "2"
    serving.write(tmp_path, "one", pinned("9"))
    with pytest.raises(LoadFailedError, match="one is pinned to version 9, which is not there"):
        scene.repository.load("one")
    assert scene.has == ["one@2"]
    serving.write(tmp_path, "one", pinned("3"))
    scene.repository.load("one", "3")
    assert scene.find("one").version == "3"


def test_a_watched_repository_follows_the_file(tmp_path: Path) -> None:
    place(tmp_path, "one", "1")
    place(tmp_path, "one", "2")
    scene = Scene(tmp_path, watch_seconds=0.01)
    scene.repository.start()
    try:
        serving.write(tmp_path, "one", pinned("1"))
        until(lambda: scene.find("one").version == "1")
    finally:
        scene.repository.close(5)
