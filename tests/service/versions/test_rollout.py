"""Two processes' worth of repositories, which share a folder of state."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from foretell.service.errors import LoadFailedError, NotReadyError
from foretell.service.repository import Repository
from foretell.service.versions.policy import Policy
from foretell.service.versions.state import SharedState
from tests.service.served import Opener, Recorder, place, remove
from tests.service.waiting import until


class Process:
    """One of several processes.

    Args:
        folder: Of the repository.
        shared: Of the state.
        pid: One that is alive.
    """

    def __init__(self, folder: Path, shared: Path, pid: int, policy: Policy | None = None) -> None:
        self.open = Opener()
        self.told = Recorder()
        self.repository = Repository(
            folder, self.open, self.told, policy=policy, state=SharedState(shared, pid)
        )

    @property
    def has(self) -> list[str]:
        return [f"{model.name}@{model.version}" for model in self.repository.models]


class Scene:
    """Two processes, the second of them not yet started."""

    def __init__(self, tmp_path: Path, policy: Policy | None = None) -> None:
        self.folder = tmp_path / "models"
        self.shared = tmp_path / "shared"
        place(self.folder, "one", "1")
        self.first = Process(self.folder, self.shared, os.getpid(), policy)
        self.second = Process(self.folder, self.shared, os.getppid(), policy)
        self.first.repository.start()

    @property
    def both(self) -> list[list[str]]:
        return [self.first.has, self.second.has]


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    scene.second.repository.start()
    yield scene
    for process in (scene.first, scene.second):
        process.repository.close(5)


def test_a_load_is_over_when_every_process_has_it(scene: Scene) -> None:
    place(scene.folder, "one", "2")
    scene.first.repository.load("one", "2")
    assert scene.both == [["one@1", "one@2"]] * 2
    assert scene.second.repository.find("one").version == "2"
    scene.second.repository.unload("one", "1")
    assert scene.both == [["one@2"]] * 2


def test_a_bad_bundle_costs_the_others_nothing(scene: Scene) -> None:
    place(scene.folder, "one", "2", "bad")
    with pytest.raises(LoadFailedError, match="one@2 was refused: bad"):
        scene.first.repository.load("one", "2")
    assert scene.both == [["one@1"]] * 2
    assert scene.second.open.opened == ["one@1"]


def test_if_one_refuses_none_has_it(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> object:
        raise MemoryError("no memory here")

    place(scene.folder, "one", "2")
    monkeypatch.setattr(scene.second.repository._lifecycle, "_open_model", refuse)
    with pytest.raises(LoadFailedError, match=f"process {os.getppid()}: no memory here"):
        scene.first.repository.load("one", "2")
    assert scene.both == [["one@1"]] * 2
    # Nobody misses what nobody was promised.
    assert scene.first.repository.ready
    assert scene.second.repository.ready


def test_a_changed_bundle_is_replaced_everywhere(scene: Scene) -> None:
    place(scene.folder, "one", "1", "better")
    scene.second.repository.load("one", "1")
    for process in (scene.first, scene.second):
        (model,) = process.repository.models
        assert model.content == "better"


def test_who_comes_late_has_what_the_others_have(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    place(scene.folder, "one", "2")
    place(scene.folder, "two", "1")
    scene.first.repository.load("two")
    scene.first.repository.unload("one", "1")
    # Of the bundles that nobody has asked for, it knows as little as the others.
    scene.second.repository.start()
    assert scene.both == [["two@1"]] * 2
    for process in (scene.first, scene.second):
        process.repository.close(5)


def test_who_comes_when_all_was_unloaded(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.first.repository.unload("one")
    scene.second.repository.start()
    assert scene.both == [[], []]
    for process in (scene.first, scene.second):
        process.repository.close(5)


def test_all_fall_back_on_the_same_version(tmp_path: Path) -> None:
    for version in ("2", "3"):
        place(tmp_path / "models", "one", version, "bad")
    scene = Scene(tmp_path, Policy("latest"))
    with ThreadPoolExecutor(1) as pool:
        pool.submit(scene.second.repository.start).result(30)
    assert scene.both == [["one@1"]] * 2
    for process in (scene.first, scene.second):
        process.repository.close(5)


def test_a_version_that_is_unloaded_while_it_is_loaded(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = scene.first.repository._state
    others = state.others

    def unload_meanwhile(*arguments: Any) -> object:
        monkeypatch.setattr(state, "others", others)
        scene.second.repository.unload("one", "2")
        return others(*arguments)

    place(scene.folder, "one", "2")
    monkeypatch.setattr(state, "others", unload_meanwhile)
    scene.first.repository.load("one", "2")
    assert scene.both == [["one@1"]] * 2


def test_who_is_gone_is_not_waited_for(scene: Scene) -> None:
    scene.second.repository.close(5)
    place(scene.folder, "one", "2")
    scene.first.repository.load("one", "2")
    assert scene.first.has == ["one@1", "one@2"]
    with pytest.raises(NotReadyError, match="stopping"):
        scene.second.repository.load("one", "2")


def test_who_does_not_follow_in_time_is_named(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("foretell.service.versions.rollout._AGREE_SECONDS", 0.1)
    scene.second.open.gate.clear()
    place(scene.folder, "one", "2")
    late = f"process {os.getppid()} has not"
    with pytest.raises(LoadFailedError, match=f"{late} followed within 0 s"):
        scene.first.repository.load("one", "2")
    assert f"{late} unloaded one 2" in caplog.text
    scene.second.open.gate.set()
    until(lambda: scene.both == [["one@1"]] * 2)


@pytest.mark.parametrize("change", ["load", "unload"])
def test_who_stops_waits_for_nobody(scene: Scene, change: str) -> None:
    scene.second.open.gate.clear()
    place(scene.folder, "one", "2")
    place(scene.folder, "two", "1")
    with ThreadPoolExecutor(1) as pool:
        scene.first.repository._rollout._wish(lambda desired: desired.with_wishes("two", ["1"]))
        until(lambda: "two@1" in scene.second.open.opened)
        # The second one is busy with what was wished before.
        arguments = ("one", "2") if change == "load" else ("one", "1")
        waiting = pool.submit(getattr(scene.first.repository, change), *arguments)
        has = ["one@1", "one@2", "two@1"] if change == "load" else ["two@1"]
        until(lambda: scene.first.has == has)
        assert not waiting.done()
        scene.first.repository.drain()
        assert isinstance(waiting.exception(30), NotReadyError)
    # Who goes on does as he was told.
    scene.second.open.gate.set()
    until(lambda: scene.second.has == has)


def test_both_load_at_once(scene: Scene) -> None:
    place(scene.folder, "one", "2")
    place(scene.folder, "two", "1")
    with ThreadPoolExecutor(2) as pool:
        loading = [
            pool.submit(scene.first.repository.load, "one", "2"),
            pool.submit(scene.second.repository.load, "two", "1"),
        ]
        for load in loading:
            load.result(30)
    assert scene.both == [["one@1", "one@2", "two@1"]] * 2


def test_news_on_disk_are_acted_on_once(scene: Scene) -> None:
    place(scene.folder, "one", "2")
    place(scene.folder, "two", "1", "bad")
    remove(scene.folder, "one", "1")
    with ThreadPoolExecutor(2) as pool:
        looking = [pool.submit(process.repository.look) for process in (scene.first, scene.second)]
        for look in looking:
            look.result(30)
    until(lambda: scene.both == [["one@2"]] * 2)
    opened = scene.first.open.opened + scene.second.open.opened
    assert sorted(opened) == ["one@1", "one@1", "one@2", "one@2", "two@1"]
