from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from unittest.mock import Mock

import pytest

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.service.engine.limits import Memory
from foretell.service.engine.registry import IndexEntry, State
from foretell.service.engine.repository import Repository
from foretell.service.engine.scheduler import Scheduler
from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
    StartError,
)
from tests.service.served import Opener, Recorder, Scene, Served, place, remove
from tests.support.waiting import until


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    """Versions 1 and 2 of a model."""
    return Scene.started(tmp_path, "one@1", "one@2")


def closers() -> list[str]:
    """Threads that close a model."""
    return [own.name for own in threading.enumerate() if own.name.startswith("close-one@")]


def test_start_without_bundles_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StartError, match=r"model repository .*nowhere: no such folder"):
        Scene(tmp_path / "nowhere").repository.start()
    # Other tests may have left files beside their folders.
    folder = tmp_path / "own" / "models"
    folder.mkdir(parents=True)
    with pytest.raises(StartError, match="no bundle in it; `foretell export` writes"):
        Scene(folder).repository.start()
    place(folder, "one", "1", "bad weights")
    with pytest.raises(StartError, match=r"(?s)could be loaded:.*bad weights"):
        Scene(folder).repository.start()


def test_broken_device_is_a_start_error_and_not_a_refusal(tmp_path: Path) -> None:
    place(tmp_path, "one", "1")
    fail = Mock(side_effect=StartError("device cuda: no GPU"))
    with pytest.raises(StartError, match=r"^device cuda: no GPU$"):
        Repository(tmp_path, fail, Recorder(), watch_seconds=3600).start()


@pytest.mark.parametrize("level", ["..", "one", "one/1", "empty"])
def test_error_suggests_the_folder_one_level_off(
    tmp_path: Path, level: str, caplog: pytest.LogCaptureFixture
) -> None:
    models = tmp_path / "own" / "models"
    place(models, "one", "1")
    (models / "empty").mkdir()
    folder = (models / level).resolve()
    scene = Scene(folder)
    with pytest.raises(StartError, match=rf"no bundle in it; did you mean {models}\?$"):
        scene.repository.start()
    watching = Scene(folder, watch_seconds=3600)
    watching.repository.start()
    watching.repository.close(5)
    assert f"did you mean {models}?" in caplog.text


@pytest.mark.parametrize("unloaded", [True, False])
def test_model_is_closed_when_no_request_can_use_it(tmp_path: Path, unloaded: bool) -> None:
    scene = Scene.started(tmp_path, "one@1", "one@2", request_seconds=3600)
    old = scene.find("one@1")
    if unloaded:
        for _ in range(2):
            scene.repository.unload("one", "1")
    else:
        scene.place("one@1", "better")
        scene.repository.load("one", "1")
    # The replaced version was served all the time.
    first = State.UNLOADING if unloaded else State.READY
    assert scene.states == {"one@1": first, "one@2": State.READY}
    assert not old.closed.wait(0.05)
    # The replaced version is also closed when the server stops.
    scene.repository.close(5)
    assert old.closed.is_set()
    assert not closers()


def test_disk_error_keeps_refusals_and_finishes_unloading(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.place("one@3", "bad")
    scene.repository.poll()
    failing = Mock(side_effect=OSError("Stale file handle"))
    monkeypatch.setattr(scene.repository._store, "has", failing)
    scene.repository.prune()
    assert scene.repository.snapshot.report["one@3"] == "bad"
    scene.repository.unload("one", "1")
    until(lambda: scene.states["one@1"] == State.UNAVAILABLE)


@pytest.mark.parametrize("content", ["good", "bad"])
def test_unloading_version_can_be_loaded_or_refused(tmp_path: Path, content: str) -> None:
    scene = Scene.started(tmp_path, "one@1", request_seconds=0.1)
    old = scene.find("one@1")
    scene.place("one@1", content)
    scene.repository.unload("one", "1")
    with suppress(LoadFailedError):
        scene.repository.load("one", "1")
    until(lambda: old.closed.is_set() and not closers())
    found = "ready" if content == "good" else "bad"
    assert scene.repository.snapshot.report == {"one@1": found}
    last = "loaded" if content == "good" else "refused"
    assert scene.observer.events == ["loaded one@1", f"{last} one@1"]


def test_bundle_removed_before_it_is_opened_is_refused(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scene.repository._store, "find", lambda *_: ["3"])
    with pytest.raises(
        LoadFailedError, match=r"refused: .*No such file or directory: 'one/3/manifest.json'$"
    ):
        scene.repository.load("one", "3")
    assert scene.states["one@3"] == State.UNAVAILABLE


def test_an_error_without_a_message_has_a_reason(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.place("one@3")
    monkeypatch.setattr(scene.repository.versions, "_open_model", Mock(side_effect=TimeoutError))
    with pytest.raises(LoadFailedError, match="one@3 was refused: TimeoutError"):
        scene.repository.load("one", "3")


def test_a_bundle_that_does_not_fit_is_not_opened(tmp_path: Path) -> None:
    scene = Scene(tmp_path, memory=Memory(1))
    scene.place("one@1")
    for file in (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH, layout.WEIGHTS):
        (tmp_path / "one" / "1" / file).touch()
    with pytest.raises(LoadFailedError, match="one/1: needs about 0 MiB"):
        scene.repository.load("one")
    assert scene.open.opened == []


def test_errors_of_loads_have_a_reason(tmp_path: Path) -> None:
    scene = Scene(tmp_path, "latest", one="2")
    scene.place("two@1")
    scene.place("one@1")
    scene.repository.start()
    with pytest.raises(LoadFailedError, match="one is pinned to version 2, which is not there"):
        scene.repository.load("one")
    scene.place("one@2", "bad weights")
    with pytest.raises(LoadFailedError, match="one@2 was refused: bad weights"):
        scene.repository.load("one")
    remove(tmp_path, "one", "2")
    remove(tmp_path, "one", "1")
    remove(tmp_path, "two", "1")
    with pytest.raises(BundleError, match="is empty; loaded models stay"):
        scene.repository.poll()


def test_loads_of_a_model_take_turns(scene: Scene) -> None:
    scene.place("one@3")
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(scene.repository.load, "one", "3") for _ in range(8)]
        for load in loads:
            load.result(30)
    assert scene.open.opened.count("one@3") == 1


def test_other_models_answer_during_a_load(scene: Scene) -> None:
    scene.place("one@3")
    scene.open.gate.clear()
    loading = threading.Thread(target=scene.repository.load, args=("one", "3"))
    loading.start()
    until(lambda: scene.repository.index()[2].state is State.LOADING)
    assert scene.find("one").version == "2"
    assert scene.repository.snapshot.ready
    with pytest.raises(NotReadyError):
        scene.find("one@3")
    assert "loaded one@3" not in scene.observer.events
    scene.open.gate.set()
    loading.join(30)
    assert scene.find("one").version == "3"
    assert scene.observer.events[-1] == "loaded one@3"


def test_snapshot_is_the_same_object_until_a_change(tmp_path: Path) -> None:
    scene = Scene.started(tmp_path, "one@1", "two@1")
    repository, seen = scene.repository, [scene.repository.snapshot]

    def changed() -> bool:
        seen.append(repository.snapshot)
        assert repository.snapshot is seen[-1]
        return seen[-1] is not seen[-2]

    assert not changed()
    scene.place("one@2")
    repository.load("one", "2")
    assert changed()
    assert seen[-1].report["one@2"] == "ready"
    scene.find("one@2").failure = "probes differ"
    scene.observer.changes += 1
    assert changed()
    assert (seen[-1].ready, seen[-1].report["one@2"]) == (False, "probes differ")
    assert not changed()
    repository.drain()
    assert changed()
    assert set(seen[-1].report.values()) == {"draining", "probes differ"}


def test_lost_gpu_makes_the_server_unready_at_once(tmp_path: Path) -> None:
    place(tmp_path, "one", "1")
    place(tmp_path, "two", "1", "bad weights")
    lost: dict[int, str] = {}
    scheduler = Scheduler(threads=2)
    repository = Repository(tmp_path, Opener(), Recorder(), scheduler=scheduler, lost=lambda: lost)
    repository.start()
    (tmp_path / "two" / "1" / layout.MANIFEST).write_text("good")
    repository.load("two")
    assert (repository.snapshot.ready, repository.dead) == (True, False)
    lost[1] = "GPU 1 is lost"
    assert (repository.snapshot.ready, repository.dead) == (False, False)
    place(tmp_path, "three", "1", "bad weights")
    with pytest.raises(LoadFailedError):
        repository.load("three")
    report = repository.snapshot.report
    assert "bad weights" in report.pop("three@1")
    assert report == {"one@1": "GPU 1 is lost", "two@1": "GPU 1 is lost"}
    assert repository.inference_threads == scheduler.threads - 1
    # Other models still answer.
    assert repository.registry.find("one").name == "one"
    lost[0] = "GPU 0 is lost"
    assert repository.dead
    repository.drain()
    assert repository.snapshot.report["one@1"] == "GPU 1 is lost; GPU 0 is lost"
    repository.close(5)


def test_draining_repository_accepts_no_changes(scene: Scene) -> None:
    scene.place("one@3")
    scene.open.gate.clear()
    with ThreadPoolExecutor(8) as pool:
        loads = [pool.submit(scene.repository.load, "one", "3") for _ in range(8)]
        until(lambda: "one@3" in scene.open.opened)
        scene.repository.drain()
        scene.open.gate.set()
        ends = [load.exception(30) for load in loads]
    scene.place("one@4")
    remove(scene.folder, "one", "1")
    scene.repository.poll()
    # The load that had begun succeeds; waiting loads do not delay the end.
    assert [type(end) for end in ends if end is not None] == [NotReadyError] * 7
    assert scene.has == ["one@1", "one@2", "one@3"]


def test_models_share_the_time_to_close(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []
    clock, own, now = iter((100.0, 100.0, 107.0)), threading.get_ident(), time.monotonic
    monkeypatch.setattr(Served, "close", lambda _, timeout: given.append(timeout))
    with monkeypatch.context() as patch:
        # Other repositories may poll meanwhile.
        patch.setattr(
            "foretell.service.engine.versions.time.monotonic",
            lambda: next(clock) if threading.get_ident() == own else now(),
        )
        scene.repository.close(5)
    assert given == [5.0, 0.0]


def test_prune_does_not_list_folders_of_existing_bundles(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prune runs every second, with thousands of bundles."""
    scene.place("one@3", "bad")
    scene.repository.poll()
    listed: list[Path] = []
    names = layout.model_names
    monkeypatch.setattr(
        layout, "model_names", lambda folder: (listed.append(folder), names(folder))[1]
    )
    scene.repository.prune()
    assert not listed
    remove(scene.folder, "one", "3")
    # Prune does nothing during a change.
    with scene.repository._changing:
        scene.repository.prune()
        assert "one@3" in scene.states
    scene.repository.prune()
    assert listed
    assert "one@3" not in scene.states


def test_repository_polls_and_prunes_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.repository._PRUNE_SECONDS", 0.001)
    # A watched folder may be empty at the start.
    scene = Scene(tmp_path, watch_seconds=0.01)
    scene.repository.start()
    assert not scene.repository.snapshot.ready
    scene.place("one@1")
    scene.place("one@3", "bad")
    until(lambda: scene.repository.snapshot.report == {"one@1": "ready", "one@3": "bad"})
    assert scene.repository.snapshot.ready
    remove(tmp_path, "one", "3")
    until(lambda: scene.states == {"one@1": State.READY})
    scene.repository.close(5)


def test_a_model_that_cannot_be_read_does_not_block_others(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = scene.repository._store
    has = store.has

    def fail(name: str, version: str) -> bool:
        if name == "one":
            raise OSError("Stale file handle")
        return has(name, version)

    scene.repository.unload("one", "1")
    until(lambda: scene.repository.snapshot.report["one@1"] == "not loaded")
    remove(scene.folder, "one", "1")
    scene.place("two@1")
    monkeypatch.setattr(store, "has", fail)
    for _ in range(3):
        scene.repository.poll()
    assert scene.has == ["one@2", "two@1"]
    assert "one@1" in scene.states
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["changes of one are tried again: Stale file handle"]
    monkeypatch.undo()
    scene.repository.poll()
    assert scene.repository.snapshot.report == {"one@2": "ready", "two@1": "ready"}


@pytest.mark.parametrize("back", [True, False])
def test_load_that_failed_in_the_file_system_is_retried(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, back: bool
) -> None:
    scene.place("one@3")
    scene.place("two@1")
    failing = Mock(side_effect=OSError("No space left on device"))
    monkeypatch.setattr(scene.repository, "_load_all", failing)
    scene.repository.poll()
    assert scene.has == ["one@1", "one@2"]
    monkeypatch.undo()
    if not back:
        # Removed before it could be loaded.
        remove(scene.folder, "one", "3")
    scene.repository.poll()
    assert scene.has == ["one@1", "one@2", *(["one@3"] if back else []), "two@1"]
    opened = list(scene.open.opened)
    scene.repository.poll()
    assert scene.open.opened == opened


def test_concurrent_polls_act_once(scene: Scene) -> None:
    scene.place("one@3")
    scene.place("two@1", "bad")
    scene.open.gate.clear()
    with ThreadPoolExecutor(2) as pool:
        looks = [pool.submit(scene.repository.poll) for _ in range(2)]
        until(lambda: "one@3" in scene.open.opened)
        assert not wait(looks, 0.05).done
        scene.open.gate.set()
        for look in looks:
            look.result(30)
    assert scene.open.opened[2:] == ["one@3", "two@1"]


def test_an_error_of_polls_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    errors = iter(["gone", "gone", None, "gone", "denied"])
    done = threading.Event()

    def look() -> None:
        error = next(errors, "over")
        if error == "over":
            done.set()
        elif error is not None:
            raise OSError(error)

    scene = Scene(tmp_path, watch_seconds=0.001)
    monkeypatch.setattr(scene.repository, "poll", look)
    scene.repository.start()
    assert done.wait(30)
    scene.repository.close(5)
    messages = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert messages == ["gone", "gone", "denied"]
    assert not scene.repository._watcher.is_alive()


class OnDemand(Served):
    """A model that is loaded on demand; content `late …` makes the load fail."""

    def __init__(self, folder: Path, content: str = "good") -> None:
        super().__init__(folder, content)
        self.on_demand = True
        self.loads = 0

    def load(self) -> None:
        self.loads += 1
        if self.content.startswith("late"):
            raise LoadFailedError(self.content)


@pytest.fixture
def lazy(tmp_path: Path) -> Scene:
    """Versions 1 and 2 of a model that is loaded on demand."""
    scene = Scene(tmp_path)
    open_plain = scene.repository.versions._open_model

    def open_one(folder: Path) -> OnDemand:
        return OnDemand(folder, open_plain(folder).content)

    scene.repository.versions._open_model = open_one
    for reference in ("one@1", "one@2"):
        scene.place(reference)
    scene.repository.start()
    return scene


def test_models_on_demand_are_not_loaded_at_start(lazy: Scene) -> None:
    assert lazy.has == ["one@1", "one@2"]
    assert [lazy.find(f"one@{version}").loads for version in "12"] == [0, 0]
    assert lazy.observer.events == []
    lazy.repository.load("one", "1")
    lazy.repository.load("one", "1")
    assert [lazy.find(f"one@{version}").loads for version in "12"] == [2, 0]


def test_a_server_is_ready_without_models_on_demand(lazy: Scene) -> None:
    model = lazy.find("one@2")
    model.failure = "weights differ"
    lazy.observer.changes += 1
    assert lazy.repository.snapshot.ready
    assert lazy.states["one@2"] == State.UNAVAILABLE
    assert lazy.repository.snapshot.report["one@2"] == "weights differ"
    # The bundle is unchanged: the model retries by itself.
    lazy.repository.load("one", "2")
    assert lazy.find("one@2") is model
    assert model.loads == 1


def test_new_version_is_loaded_before_it_is_the_default(lazy: Scene) -> None:
    lazy.place("one@3")
    lazy.place("one@4", "late and bad")
    lazy.place("two@1", "late and bad")
    lazy.repository.poll()
    assert lazy.find("one").version == "3"
    assert lazy.find("one").loads == 1
    assert lazy.repository.snapshot.report["one@4"] == "late and bad"
    # `two` has no earlier version that could be kept.
    assert lazy.find("two").loads == 0
    for reference in ("one@3", "two@1"):
        lazy.place(reference, "late, later")
    with pytest.raises(LoadFailedError, match="one@3 was refused: late, later"):
        lazy.repository.load("one", "3")
    assert lazy.find("one@3").content == "good"
    # The loader counts the failure.
    assert not [event for event in lazy.observer.events if "refused" in str(event)]


def test_error_of_a_load_on_demand_is_raised(lazy: Scene) -> None:
    lazy.find("one@2").content = "late and bad"
    with pytest.raises(LoadFailedError, match=r"^late and bad$"):
        lazy.repository.load("one", "2")
    # The bundle is unchanged: the repository does not refuse it.
    assert lazy.repository.index()[1] == IndexEntry("one", "2", State.READY)
