"""A repository whose folder is a mirror of object storage."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from foretell.service.engine.registry import State
from foretell.service.errors import LoadFailedError, StartError, UnknownVersionError
from foretell.storage.errors import StorageError
from tests.service.served import Scene, place, remove
from tests.support.waiting import until

Version = tuple[str, str]


class Mirror:
    """Fills a folder with versions of the test.

    Attributes:
        holds: Contents by name and version.
        failures: Versions that cannot be fetched, and why.
        unlisted: Models that cannot be listed, and why.
        error: Raised instead of anything else.
        read_at: A time.
        requests: Requested names and versions.
        stopped: Whether `stop` was called.
    """

    def __init__(self, folder: Path, *references: str) -> None:
        self.folder = folder
        self.holds: dict[str, str] = dict.fromkeys(references, "good")
        self.failures: Mapping[Version, str] = {}
        self.unlisted: Mapping[str, str] = {}
        self.error: Exception | None = None
        self.read_at = 7.0
        self.requests: list[tuple[str | None, str | None]] = []
        self.stopped = False

    def __str__(self) -> str:
        return "s3://bucket"

    def refresh(self, name: str | None = None, version: str | None = None) -> None:
        self.requests.append((name, version))
        if self.error is not None:
            raise self.error
        for folder in list(self.folder.glob("*/*")):
            if f"{folder.parent.name}@{folder.name}" not in self.holds:
                remove(self.folder, folder.parent.name, folder.name)
        for reference, content in self.holds.items():
            own, _, number = reference.partition("@")
            if (own, number) not in self.failures:
                place(self.folder, own, number, content)

    def stop(self) -> None:
        self.stopped = True


def scene_of(mirror: Mirror, watch_seconds: float | None = None) -> Scene:
    return Scene(mirror.folder, mirror=mirror, watch_seconds=watch_seconds)


def test_start_fetches_bundles_first(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, "one@1", "two@1")
    scene = scene_of(mirror)
    scene.repository.start()
    assert scene.has == ["one@1", "two@1"]
    assert mirror.requests == [(None, None)]
    scene.repository.close(5)
    assert mirror.stopped


def test_bundles_fetched_before_are_served_while_the_mirror_fails(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    place(tmp_path, "one", "1")
    mirror = Mirror(tmp_path)
    mirror.error = StorageError("s3://bucket: no answer")
    scene = scene_of(mirror)
    scene.repository.start()
    assert scene.has == ["one@1"]
    assert scene.repository.snapshot.ready
    assert "serves bundles that were fetched before: s3://bucket: no answer" in caplog.text


_DIFFERS = "one/1/weights.bin: sha256 differs"


@pytest.mark.parametrize(
    ("error", "failures", "watch_seconds", "message"),
    [
        (StorageError("s3://bucket: denied"), {}, 3600, "^model repository s3://bucket: denied$"),
        (PermissionError("x"), {}, 3600, r"^the cache cannot be written \(FORETELL_CACHE\): x$"),
        (None, {}, None, "repository s3://bucket: no bundle in it; `foretell publish`"),
        (None, {("one", "1"): _DIFFERS}, None, f"(?s)repository s3://bucket: .*{_DIFFERS}"),
    ],
)
def test_start_without_bundles_names_the_mirror(
    tmp_path: Path,
    error: Exception | None,
    failures: Mapping[Version, str],
    watch_seconds: float | None,
    message: str,
) -> None:
    mirror = Mirror(tmp_path, *("@".join(key) for key in failures))
    mirror.error, mirror.failures = error, failures
    with pytest.raises(StartError, match=message):
        scene_of(mirror, watch_seconds=watch_seconds).repository.start()


def test_time_of_the_last_read_is_known_if_watched(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, "one@1")
    assert scene_of(mirror).repository.read_at is None
    assert scene_of(mirror, watch_seconds=3600).repository.read_at == 7.0
    assert Scene(tmp_path, watch_seconds=3600).repository.read_at is None


def test_errors_of_the_mirror_change_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = Mirror(tmp_path, "one@1")
    scene = scene_of(mirror, watch_seconds=0.01)
    scene.repository.start()
    mirror.error = StorageError("s3://bucket: denied")
    until(lambda: "it is tried again: s3://bucket: denied" in caplog.text)
    before = len(mirror.requests)
    until(lambda: len(mirror.requests) > before + 2)
    assert scene.has == ["one@1"]
    assert scene.repository.snapshot.ready
    # Once, and without a trace.
    assert caplog.text.count("denied") == 1
    assert "Traceback" not in caplog.text
    mirror.error = None
    mirror.holds["one@2"] = "good"
    until(lambda: scene.has == ["one@1", "one@2"])
    scene.repository.close(5)


def test_versions_that_cannot_be_fetched_are_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = Mirror(tmp_path, "one@1", "one@2", "two@1")
    mirror.failures = {("one", "2"): "one/2/weights.bin: differs", ("two", "1"): "two/1: differs"}
    scene = scene_of(mirror)
    scene.repository.start()
    scene.repository.poll()
    scene.repository.prune()
    assert scene.has == ["one@1"]
    assert scene.repository.snapshot.report == {
        "one@1": "ready",
        "one@2": "one/2/weights.bin: differs",
        "two@1": "two/1: differs",
    }
    # `one` answers, `two` does not.
    assert not scene.repository.snapshot.ready
    assert scene.observer.events.count("refused one@2") == 1
    assert caplog.text.count("refused one@2: one/2/weights.bin: differs") == 1
    mirror.failures = {}
    del mirror.holds["two@1"]
    scene.repository.poll()
    assert scene.repository.snapshot.report == {"one@1": "ready", "one@2": "ready"}
    assert scene.repository.snapshot.ready


def test_version_that_cannot_be_fetched_again_keeps_serving(tmp_path: Path) -> None:
    mirror = Mirror(tmp_path, "one@1")
    scene = scene_of(mirror)
    scene.repository.start()
    mirror.holds["one@1"] = "better"
    mirror.failures = {("one", "1"): "differs"}
    scene.repository.poll()
    assert scene.find("one").content == "good"
    assert scene.repository.registry.get("one", "1").refused == "differs"
    # It is whole again, and as it was.
    mirror.holds["one@1"], mirror.failures = "good", {}
    scene.repository.poll()
    assert not scene.repository.registry.get("one", "1").refused
    assert scene.open.opened == ["one@1"]


def test_an_explicit_load_fetches_the_version(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mirror = Mirror(tmp_path, "one@1")
    scene = scene_of(mirror)
    scene.repository.start()
    mirror.holds["one@2"] = "good"
    scene.repository.load("one", "2")
    assert mirror.requests[-1] == ("one", "2")
    assert scene.has == ["one@1", "one@2"]
    mirror.failures = {("one", "3"): "one/3/weights.bin: differs"}
    with pytest.raises(LoadFailedError, match=r"one@3: one/3/weights\.bin: differs"):
        scene.repository.load("one", "3")
    mirror.error = StorageError("no answer")
    scene.repository.unload("one", "2")
    until(lambda: scene.states["one@2"] == State.UNAVAILABLE)
    mirror.failures = {}
    scene.repository.load("one", "2")
    assert scene.has == ["one@1", "one@2"]
    assert "the load uses bundles that were fetched before: no answer" in caplog.text
    with pytest.raises(UnknownVersionError):
        scene.repository.load("one", "4")
