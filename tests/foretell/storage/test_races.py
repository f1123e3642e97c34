"""`publish` and `collect` at the same time, in every order of their requests."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.exceptions import AlreadyExistsError, PermissionDeniedError

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import parse
from foretell.storage import collecting, repository
from foretell.storage import location as places
from foretell.storage.collecting import collect
from foretell.storage.errors import StorageError
from foretell.storage.location import Location
from foretell.storage.repository import BLOBS, GRACE, TRASH, publish, read_blob
from tests.support.bundles import Spec, write_bundle


class Storage:
    """A store of objects with a manual clock; replaces the module obstore.

    Attributes:
        before: Called before each request.
        hurried: Requests that write a manifest or remove a file, and are not answered yet.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.before: Callable[[], None] = lambda: None
        self.hurried = 0
        self._named_at: dict[str, datetime] = {}

    def list(self, _: object) -> Iterator[list[dict[str, Any]]]:
        self.before()
        entries = [
            {"path": path, "last_modified": at, "size": len(content), "e_tag": None}
            for path, (content, at) in self.objects.items()
        ]
        yield entries

    def get(self, _: object, path: str) -> list[bytes]:
        self.before()
        if path not in self.objects:
            raise FileNotFoundError(path)
        return [self.objects[path][0]]

    def put(self, _: object, path: str, content: Any, *, mode: str = "", **__: object) -> None:
        found = content if isinstance(content, bytes) else b"".join(content)
        self.hurried += mode == "create"
        self.before()
        self.hurried -= mode == "create"
        if mode == "create" and path in self.objects:
            raise AlreadyExistsError(path)
        self.objects[path] = found, self.now
        self.check()

    def copy(self, _: object, source: str, target: str) -> None:
        self.before()
        if source not in self.objects:
            raise FileNotFoundError(source)
        self.objects[target] = self.objects[source][0], self.now

    def head(self, _: object, path: str) -> dict[str, Any]:
        self.before()
        if path not in self.objects:
            raise FileNotFoundError(path)
        content, at = self.objects[path]
        return {"size": len(content), "last_modified": at}

    def delete(self, _: object, paths: list[str]) -> None:
        self.hurried += 1
        self.before()
        self.hurried -= 1
        for path in paths:
            self.objects.pop(path, None)
        self.check()

    def check(self) -> None:
        """Every file of a version exists, and other files are not removed too early."""
        there = self.paths(BLOBS) | self.paths(TRASH)
        assert there >= self.named()
        self._named_at |= dict.fromkeys(self.named(), self.now)
        for own, at in self._named_at.items():
            assert own in there or self.now - at >= GRACE

    def named(self) -> set[str]:
        """Files of all versions, by their sums."""
        manifests = [path for path in self.objects if path.endswith(layout.MANIFEST)]
        return {
            own for path in manifests for own in parse(self.objects[path][0], path).files.values()
        }

    def paths(self, place: str) -> set[str]:
        return {path.partition("/")[2] for path in self.objects if path.startswith(f"{place}/")}


def together(storage: Storage, actions: list[Callable[[], object]], order: Iterator[int]) -> None:
    """Run actions at the same time, one request after another.

    `order` has the number of the action whose request is next. At 3, 13 hours pass, unless
    a request writes a manifest or removes a file.
    """
    own = threading.local()
    turns = [(threading.Semaphore(0), threading.Semaphore(0)) for _ in actions]
    failed: list[BaseException] = []

    def wait() -> None:
        go, done = own.turn
        done.release()
        go.acquire()

    def act(number: int) -> None:
        own.turn = turns[number]
        turns[number][0].acquire()
        try:
            actions[number]()
        except (BundleError, StorageError):
            # The version exists, or another run has moved a file.
            pass
        except BaseException as error:
            failed.append(error)
        left.discard(number)
        turns[number][1].release()

    left = set(range(len(actions)))
    threads = [threading.Thread(target=act, args=(number,)) for number in left]
    storage.before = wait
    for thread in threads:
        thread.start()
    while left:
        if (turn := next(order)) == 3:
            storage.now += timedelta(hours=0 if storage.hurried else 13)
            continue
        number = sorted(left)[turn % len(left)]
        turns[number][0].release()
        turns[number][1].acquire()
    for thread in threads:
        thread.join()
    storage.before = lambda: None
    if failed:
        raise failed[0]


def installed(monkeypatch: pytest.MonkeyPatch) -> tuple[Storage, Location]:
    """A fake storage for the code under test; its clock differs from this machine's."""
    storage = Storage()
    for module in (repository, collecting, places):
        monkeypatch.setattr(module, "obstore", storage)
    monkeypatch.setattr(time, "time", lambda: storage.now.timestamp() + 1e6)
    return storage, Location("s3://bucket", None)  # type: ignore[arg-type]


def read(storage: Storage, location: Location) -> None:
    """Read all files of the versions that are there now."""
    # A version may be removed while others are read.
    versions = [one for one in storage.objects.items() if one[0].endswith(layout.MANIFEST)]
    for path, found in versions:
        for file, wanted in parse(found[0], path).files.items():
            try:
                deque(read_blob(location, wanted, file), maxlen=0)
            except StorageError as error:
                # A file stays as long as its version.
                if storage.objects.get(path) is found:
                    raise AssertionError(path) from error


def remove_long_ago(storage: Storage, version: str) -> None:
    """Remove a version, and let the time pass after which `collect` moves its files."""
    storage.delete(None, [f"{version}/manifest.json"])
    storage.now += GRACE + timedelta(hours=1)


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three bundles, of which two share files."""
    folder = tmp_path_factory.mktemp("bundles")
    specs = (Spec("a"), Spec("b", horizon=3), Spec("c", channels=("load", "wind")))
    return [write_bundle(folder, spec) for spec in specs]


ACTIONS = st.sampled_from(["publish 0", "publish 1", "publish 2", "remove", "collect", "read"])
PHASES = st.lists(
    st.tuples(
        st.lists(ACTIONS, min_size=1, max_size=3).filter(lambda own: own.count("collect") < 3),
        st.lists(st.integers(0, 3), max_size=60),
        st.sampled_from([0, 1, 13, 25]),
    ),
    min_size=1,
    max_size=7,
)


@settings(
    max_examples=300,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(phases=PHASES)
def test_no_version_loses_a_file(
    bundles: list[Path],
    monkeypatch: pytest.MonkeyPatch,
    phases: list[tuple[list[str], list[int], int]],
) -> None:
    storage, location = installed(monkeypatch)

    def remove() -> None:
        for path in [path for path in storage.objects if path.endswith(layout.MANIFEST)][:1]:
            storage.delete(None, [path])

    def action(name: str) -> Callable[[], object]:
        if name.startswith("publish"):
            return lambda: publish(bundles[int(name[-1])], location)
        return {"remove": remove, "read": lambda: read(storage, location)}.get(
            name, lambda: collect(location, empty=True)
        )

    for names, order, hours in phases:
        together(storage, [action(name) for name in names], chain(order, repeat(0)))
        storage.now += timedelta(hours=hours)
    # Without other actions files of versions stay, and all others are removed.
    for _ in range(4):
        collect(location, empty=True)
        storage.now += GRACE + timedelta(hours=1)
    assert storage.paths(BLOBS) == storage.named()
    assert not storage.paths(TRASH)


def test_publish_slower_than_the_grace_period_is_complete(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    storage.delete(None, ["a/1/manifest.json"])
    slow = repository.published

    def sleep(*given: Any) -> tuple[bytes, bytes | None]:
        for _ in range(3):
            storage.now += GRACE + timedelta(hours=1)
            collect(location, empty=True)
        assert not storage.paths(BLOBS)
        return slow(*given)

    monkeypatch.setattr(repository, "published", sleep)
    publish(bundles[0], location)
    assert storage.paths(BLOBS) == storage.named()


def test_file_restored_from_the_trash_while_it_is_read(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    for own in storage.named():
        storage.objects[f"{TRASH}/{own}"] = storage.objects.pop(f"{BLOBS}/{own}")
    storage.now += GRACE + timedelta(hours=1)
    requests = iter(range(9))

    def collect_twice() -> None:
        # The first file in blobs/ was checked already.
        if next(requests) == 1:
            storage.before = lambda: None
            assert (collect(location).restored, collect(location).removed) == (3, 3)

    storage.before = collect_twice
    read(storage, location)


def test_run_that_pauses_before_it_removes_a_file_removes_nothing(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    remove_long_ago(storage, "a/1")
    head = storage.head

    def pause(_: object, path: str) -> dict[str, Any]:
        found = head(_, path)
        if path != f"{TRASH}/clock":
            # Meanwhile the version is published again, and others remove the copies in the trash.
            monkeypatch.setattr(storage, "head", head)
            publish(bundles[0], location)
            storage.now += GRACE + timedelta(hours=1)
            assert collect(location).removed == 1
        return found

    monkeypatch.setattr(storage, "head", pause)
    failures = collect(location, empty=True).failures
    assert [failure.partition(": ")[2] for failure in failures] == [
        "the copy to trash/ took too long; a later run moves the file"
    ]
    assert storage.paths(BLOBS) == storage.named()


def test_long_run_lists_again(bundles: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    remove_long_ago(storage, "a/1")
    files = storage.paths(BLOBS)
    listings: list[datetime] = []
    listed, delete = storage.list, storage.delete

    def count(_: object) -> Iterator[list[dict[str, Any]]]:
        listings.append(storage.now)
        return listed(_)

    def slow(_: object, paths: list[str]) -> None:
        delete(_, paths)
        storage.now += timedelta(minutes=20)

    monkeypatch.setattr(storage, "list", count)
    monkeypatch.setattr(storage, "delete", slow)
    assert collect(location, empty=True) == (0, len(files), 0, ())
    assert storage.paths(TRASH) == files
    assert len(listings) == 2


def test_file_with_an_incomplete_copy_is_kept(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    publish(bundles[2], location)
    there = storage.paths(BLOBS)
    remove_long_ago(storage, "c/1")

    def begin(_: object, source: str, target: str) -> None:
        storage.objects[target] = b"", storage.now

    monkeypatch.setattr(storage, "copy", begin)
    assert collect(location).moved == 0
    assert storage.paths(BLOBS) == there


def test_file_that_cannot_be_collected_does_not_stop_the_others(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    named, copied = storage.named(), storage.copy
    publish(bundles[2], location)
    bad, *others = sorted(storage.named() - named)
    remove_long_ago(storage, "c/1")

    def copy(_: object, source: str, target: str) -> None:
        if source.endswith(bad):
            raise PermissionDeniedError("denied")
        copied(_, source, target)

    monkeypatch.setattr(storage, "copy", copy)
    done = collect(location)
    assert done.moved == len(others) > 0
    assert [bad in failure for failure in done.failures] == [True]
    # S3 does not copy files of this size: they are read and written.
    monkeypatch.setattr(collecting, "_COPY_BYTES", 0)
    assert collect(location)[1:] == (1, 0, ())
    assert storage.objects[f"{TRASH}/{bad}"][0]


def test_files_without_any_version_are_kept(
    bundles: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, location = installed(monkeypatch)
    publish(bundles[0], location)
    remove_long_ago(storage, "a/1")
    with pytest.raises(BundleError, match="has files but no version"):
        collect(location)
    assert not storage.paths(TRASH)
    assert collect(location, empty=True).moved == len(storage.paths(TRASH)) > 0
