"""`publish` and `collect` at the same time, in every order of their requests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from obstore.exceptions import AlreadyExistsError

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import parse
from foretell.storage import location as places
from foretell.storage import repository
from foretell.storage.errors import StorageError
from foretell.storage.location import Location
from foretell.storage.repository import BLOBS, GRACE, TRASH, collect, publish
from tests.support.bundles import Spec, write_bundle


class Storage:
    """Objects, and a clock that moves when it is told to; stands for the module obstore.

    Attributes:
        before: Called before each request.
    """

    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, datetime]] = {}
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.before: Callable[[], None] = lambda: None
        self._named_at: dict[str, datetime] = {}

    def list(self, _: object) -> Iterator[list[dict[str, Any]]]:
        self.before()
        every = [
            {"path": path, "last_modified": at, "size": len(content), "e_tag": None}
            for path, (content, at) in self.objects.items()
        ]
        yield every

    def get(self, _: object, path: str) -> list[bytes]:
        self.before()
        if path not in self.objects:
            raise FileNotFoundError(path)
        return [self.objects[path][0]]

    def put(self, _: object, path: str, content: Any, *, mode: str = "", **__: object) -> None:
        found = content if isinstance(content, bytes) else b"".join(content)
        self.before()
        if mode == "create" and path in self.objects:
            raise AlreadyExistsError(path)
        self.objects[path] = found, self.now
        self.check()

    def copy(self, _: object, source: str, target: str) -> None:
        self.before()
        if source not in self.objects:
            raise FileNotFoundError(source)
        self.objects[target] = self.objects[source][0], self.now

    def delete(self, _: object, paths: list[str]) -> None:
        self.before()
        for path in paths:
            self.objects.pop(path, None)
        self.check()

    def check(self) -> None:
        """Every file that a version names can be read, and no other one is gone too early."""
        there = self.paths(BLOBS) | self.paths(TRASH)
        assert there >= self.named()
        self._named_at |= dict.fromkeys(self.named(), self.now)
        for own, at in self._named_at.items():
            assert own in there or self.now - at >= GRACE

    def named(self) -> set[str]:
        """The files that versions have."""
        manifests = [path for path in self.objects if path.endswith(layout.MANIFEST)]
        return {
            own for path in manifests for own in parse(self.objects[path][0], path).files.values()
        }

    def paths(self, place: str) -> set[str]:
        return {path.partition("/")[2] for path in self.objects if path.startswith(f"{place}/")}


def together(storage: Storage, actions: list[Callable[[], object]], order: Iterator[int]) -> None:
    """Run actions at the same time, one request after another; `order` says of which."""
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
        number = sorted(left)[next(order) % len(left)]
        turns[number][0].release()
        turns[number][1].acquire()
    for thread in threads:
        thread.join()
    storage.before = lambda: None
    if failed:
        raise failed[0]


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two with files in common, and one of its own."""
    folder = tmp_path_factory.mktemp("bundles")
    specs = (Spec("a"), Spec("b", horizon=3), Spec("c", channels=("load", "wind")))
    return [write_bundle(folder, spec) for spec in specs]


ACTIONS = st.sampled_from(["publish 0", "publish 1", "publish 2", "remove", "collect"])
PHASES = st.lists(
    st.tuples(
        st.lists(ACTIONS, min_size=1, max_size=3).filter(lambda own: own.count("collect") < 3),
        st.lists(st.integers(0, 2), max_size=60),
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
    storage = Storage()

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return storage.now

    for module in (repository, places):
        monkeypatch.setattr(module, "obstore", storage)
    monkeypatch.setattr(repository, "datetime", Clock)
    location: Any = Location("s3://bucket", None)  # type: ignore[arg-type]

    def remove() -> None:
        for path in [path for path in storage.objects if path.endswith(layout.MANIFEST)][:1]:
            storage.delete(None, [path])

    def action(name: str) -> Callable[[], object]:
        if name.startswith("publish"):
            return lambda: publish(bundles[int(name[-1])], location)
        return remove if name == "remove" else lambda: collect(location)

    for names, order, hours in phases:
        together(storage, [action(name) for name in names], chain(order, repeat(0)))
        storage.now += timedelta(hours=hours)
    # In peace, what is named stays and all else goes.
    for _ in range(4):
        collect(location)
        storage.now += GRACE + timedelta(hours=1)
    assert storage.paths(BLOBS) == storage.named()
    assert not storage.paths(TRASH)
