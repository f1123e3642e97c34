from __future__ import annotations

import fcntl
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event, Lock
from types import SimpleNamespace

import obstore
import pytest

from foretell.bundle import checksums, layout, manifest
from foretell.storage import location as places
from foretell.storage import mirror as module
from foretell.storage.errors import StorageError
from foretell.storage.location import Location, open_location
from foretell.storage.mirror import Mirror, default_cache
from foretell.storage.push import push
from tests.foretell.storage.proxy import Kind, Proxy
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", Spec())


@pytest.fixture
def location(bucket: str, proxy: Proxy) -> Location:
    return open_location(f"{bucket}/models")


@pytest.fixture
def mirror(bundle: Path, location: Location, proxy: Proxy, tmp_path: Path) -> Mirror:
    """One that holds version 1 of the model."""
    push(bundle, location)
    mirror = Mirror(location, tmp_path / "cache")
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    proxy.asked.clear()
    return mirror


def here(mirror: Mirror) -> list[str]:
    """Bundles that are whole; nothing else is there."""
    found = []
    for folder in mirror.folder.glob("*/*"):
        checksums.check(folder, manifest.read(folder).files)
        found.append(str(folder.relative_to(mirror.folder)))
    return sorted(found)


def remove(location: Location, path: str) -> None:
    obstore.delete(location.store, path)


def test_a_bundle_comes_as_it_is(mirror: Mirror, bundle: Path, location: Location) -> None:
    for file in manifest.read(bundle).files:
        assert (mirror.folder / "repeat" / "1" / file).read_bytes() == (bundle / file).read_bytes()
    assert str(mirror) == str(location)
    assert mirror.folder.parent.name == "cache"
    assert not mirror.failures


def test_a_look_is_one_listing(mirror: Mirror, proxy: Proxy) -> None:
    mirror.refresh()
    [asked] = proxy.asked
    assert "list-type=2" in asked


def test_when_it_was_read(
    mirror: Mirror, bundle: Path, location: Location, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Mirror(location, mirror.folder.parent).read_at == 0
    now = [100.0]
    clock = SimpleNamespace(time=lambda: now[0], monotonic=time.monotonic)
    monkeypatch.setattr(module, "time", clock)
    mirror.refresh()
    assert mirror.read_at == 100
    now[0] = 200
    proxy.faults["list-type"] = "denied"
    with pytest.raises(StorageError):
        mirror.refresh()
    assert mirror.read_at == 100
    proxy.faults.clear()
    # A large bundle comes for longer than any listing.
    push(bundle, location, name="sea")
    download = mirror._download

    def later(path: str, target: Path) -> None:
        now[0] += 1000
        download(path, target)

    monkeypatch.setattr(mirror, "_download", later)
    mirror.refresh()
    assert now[0] > 1000
    assert mirror.read_at == now[0]


def test_what_comes_and_goes(mirror: Mirror, bundle: Path, location: Location) -> None:
    push(bundle, location)
    push(bundle, location, name="sea")
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2", "sea/1"]
    remove(location, "repeat/1/manifest.json")
    remove(location, "sea/1/manifest.json")
    mirror.refresh()
    assert here(mirror) == ["repeat/2"]
    assert not (mirror.folder / "sea").exists()


def test_what_was_written_again(mirror: Mirror, location: Location) -> None:
    path = "repeat/1/manifest.json"
    fields = json.loads(bytes(obstore.get(location.store, path).bytes()))
    obstore.put(location.store, path, json.dumps({**fields, "parameters": 77}).encode())
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    assert manifest.read(mirror.folder / "repeat" / "1").parameters == 77


def test_half_of_a_version_is_none(mirror: Mirror, bundle: Path, location: Location) -> None:
    for file in manifest.read(bundle).files:
        obstore.put(location.store, f"repeat/2/{file}", bundle / file)
    for path in ("loose.txt", ".hidden/1/manifest.json", "repeat/x/manifest.json"):
        obstore.put(location.store, path, b"{}")
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    assert not mirror.failures


def test_files_in_common_are_fetched_once(
    mirror: Mirror, bundle: Path, location: Location, proxy: Proxy
) -> None:
    push(bundle, location)
    proxy.asked.clear()
    mirror.refresh()
    assert proxy.gets() == ["2/manifest.json"]
    one, two = (mirror.folder / "repeat" / own / layout.WEIGHTS for own in "12")
    assert one.samefile(two)
    # Also by a server that has only just started.
    push(bundle, location)
    proxy.asked.clear()
    Mirror(location, mirror.folder.parent).refresh()
    assert proxy.gets() == ["3/manifest.json"]


def together(mirror: Mirror, count: int, patch: pytest.MonkeyPatch) -> list[int]:
    """Have manifests wait for each other; how many were being fetched at a time."""
    download, barrier, going, most = mirror._download, Barrier(count, timeout=30), Counter(), []
    lock = Lock()

    def wait(path: str, target: Path) -> None:
        with lock:
            going["on"] += 1
            most.append(going["on"])
        if path.endswith(layout.MANIFEST):
            barrier.wait()
        download(path, target)
        with lock:
            going["on"] -= 1

    patch.setattr(mirror, "_download", wait)
    return most


def test_some_versions_are_fetched_at_a_time(
    location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in range(8):
        push(write_bundle(tmp_path / f"{at}", Spec(horizon=at + 1)), location)
    mirror = Mirror(location, tmp_path / "cache")
    most = together(mirror, 4, monkeypatch)
    mirror.refresh()
    assert here(mirror) == [f"repeat/{at + 1}" for at in range(8)]
    assert max(most) == 4
    assert not mirror.failures


def test_files_in_common_are_fetched_once_by_those_that_come_together(
    bundle: Path,
    location: Location,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("sea", "sky", "sun"):
        push(bundle, location, name=name)
    proxy.asked.clear()
    mirror = Mirror(location, tmp_path / "cache")
    together(mirror, 3, monkeypatch)
    mirror.refresh()
    assert here(mirror) == ["sea/1", "sky/1", "sun/1"]
    # The two graphs are one file.
    assert len(proxy.gets()) == 3 + len({*manifest.read(bundle).files.values()})


def test_a_damaged_file_is_of_its_version_alone(
    bundle: Path,
    location: Location,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("sea", "sky"):
        push(bundle, location, name=name)
    file = next(iter(manifest.read(bundle).files))
    proxy.faults[f"GET .*sea/1/{file}"] = "wrong"
    mirror = Mirror(location, tmp_path / "cache")
    download, damaged = mirror._download, Event()

    def wait(path: str, target: Path) -> None:
        if path == "sky/1/manifest.json":
            assert damaged.wait(30)
        download(path, target)
        if path == f"sea/1/{file}":
            damaged.set()

    monkeypatch.setattr(mirror, "_download", wait)
    mirror.refresh()
    assert here(mirror) == ["sky/1"]
    assert mirror.failures.keys() == {("sea", "1")}


def test_files_of_a_version_that_was_replaced(
    mirror: Mirror,
    bundle: Path,
    location: Location,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    push(bundle, location, name="sea")
    other = write_bundle(tmp_path / "other", Spec(horizon=3))
    for path in other.iterdir():
        obstore.put(location.store, f"repeat/1/{path.name}", path)
    # The version is replaced before one is fetched that has its files.
    monkeypatch.setattr(module, "_AT_A_TIME", 1)
    mirror.refresh()
    assert not mirror.failures
    assert here(mirror) == ["repeat/1", "sea/1"]


def test_where_nothing_can_be_linked(
    mirror: Mirror, bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no links here")

    push(bundle, location)
    monkeypatch.setattr("os.link", fail)
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]


# What is asked, what happens, and what is said: of the repository, or of a version.
LISTING = {
    "500": ("list-type", "500", "models: 500 Internal Server Error"),
    "denied": ("list-type", "denied", "models: AccessDenied: Access Denied; credentials are"),
    "cut off": ("list-type", "cut", "models: Generic S3 error: .*body"),
}
FETCHING = {
    "500": ("GET .*weights", "500", "repeat/2/weights.bin: 500 Internal Server Error"),
    "denied": ("GET .*2/manifest", "denied", "repeat/2/manifest.json: AccessDenied"),
    "cut off": ("GET .*weights", "cut", "repeat/2/weights.bin: "),
    "cut manifest": ("GET .*2/manifest", "cut", "repeat/2/manifest.json: "),
    "wrong": ("GET .*weights", "wrong", "repeat/2/weights.bin: sha256 differs"),
    "no JSON": ("GET .*2/manifest", "wrong", "repeat/2/manifest.json: manifest: Invalid JSON"),
}


@pytest.mark.parametrize(("asked", "kind", "said"), LISTING.values(), ids=LISTING)
def test_a_listing_that_fails_changes_nothing(
    mirror: Mirror,
    bundle: Path,
    location: Location,
    proxy: Proxy,
    asked: str,
    kind: Kind,
    said: str,
) -> None:
    push(bundle, location)
    proxy.faults[asked] = kind
    with pytest.raises(StorageError, match=said):
        mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    proxy.faults.clear()
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]


@pytest.mark.parametrize(("asked", "kind", "said"), FETCHING.values(), ids=FETCHING)
def test_a_version_that_cannot_be_fetched_changes_nothing(
    mirror: Mirror,
    tmp_path: Path,
    location: Location,
    proxy: Proxy,
    asked: str,
    kind: Kind,
    said: str,
) -> None:
    other = write_bundle(tmp_path / "other", Spec(version="2", channels=("load", "wind")))
    push(other, location, version="2")
    push(other, location, name="sea")
    proxy.faults[asked] = kind
    mirror.refresh()
    assert mirror.failures["repeat", "2"].startswith(said)
    assert "repeat/2" not in here(mirror)
    proxy.faults.clear()
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2", "sea/1"]
    assert not mirror.failures


def test_a_manifest_without_a_sum_changes_nothing(mirror: Mirror, location: Location) -> None:
    path = "repeat/1/manifest.json"
    fields = json.loads(bytes(obstore.get(location.store, path).bytes()))
    del fields["files"][layout.WEIGHTS]
    obstore.put(location.store, path, json.dumps(fields).encode())
    mirror.refresh()
    assert mirror.failures["repeat", "1"].endswith("the manifest has no checksum of weights.bin")
    assert (mirror.folder / "repeat" / "1" / layout.WEIGHTS).exists()


def test_what_fails_again_and_again_is_fetched_less_often(
    mirror: Mirror,
    tmp_path: Path,
    location: Location,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    push(write_bundle(tmp_path / "other", Spec(channels=("load", "wind"))), location)
    proxy.faults["GET .*weights"] = "wrong"

    def tried() -> bool:
        proxy.asked.clear()
        mirror.refresh()
        assert mirror.failures["repeat", "2"].startswith("repeat/2/weights.bin: sha256 differs")
        return "2/weights.bin" in proxy.gets()

    assert tried()
    assert tried()
    for pause in (10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0):
        clock[0] += pause - 1
        assert not tried()
        clock[0] += 1
        assert tried()
    # Whoever asks for it, or writes it again, does not wait.
    proxy.asked.clear()
    mirror.refresh("repeat", "2")
    assert proxy.gets().count("2/weights.bin") == 1
    path = "repeat/2/manifest.json"
    fields = json.loads(bytes(obstore.get(location.store, path).bytes()))
    obstore.put(location.store, path, json.dumps({**fields, "parameters": 77}).encode())
    assert tried()
    proxy.faults.clear()
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]


def test_a_listing_that_breaks_off_between_its_pages(
    mirror: Mirror, bundle: Path, location: Location, proxy: Proxy
) -> None:
    push(bundle, location)
    proxy.faults |= {"list-type": "pages"}
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]
    proxy.faults |= {"continuation-token": "500"}
    with pytest.raises(StorageError, match="500 Internal"):
        mirror.refresh()
    # What the first page does not name is not gone.
    assert here(mirror) == ["repeat/1", "repeat/2"]


def test_a_server_that_does_not_answer(
    mirror: Mirror, proxy: Proxy, environment: pytest.MonkeyPatch
) -> None:
    environment.setitem(places._CLIENT, "read_timeout", timedelta(milliseconds=50))
    proxy.faults["list-type"] = "silent"
    with pytest.raises(StorageError, match=r"no answer in time"):
        Mirror(open_location(mirror.location.url), mirror.folder.parent).refresh()
    assert here(mirror) == ["repeat/1"]


def test_one_500_is_asked_again(mirror: Mirror, proxy: Proxy) -> None:
    proxy.faults["list-type"] = "500"
    with pytest.raises(StorageError):
        mirror.refresh()
    assert len(proxy.asked) == 2


def test_a_bucket_that_is_empty_all_of_a_sudden(mirror: Mirror, location: Location) -> None:
    remove(location, "repeat/1/manifest.json")
    with pytest.raises(StorageError, match="is empty; what was fetched stays"):
        mirror.refresh()
    assert here(mirror) == ["repeat/1"]


@pytest.mark.parametrize("damage", ["changed", "missing", "no tag"])
def test_what_was_damaged_here_is_fetched_again(mirror: Mirror, proxy: Proxy, damage: str) -> None:
    file = mirror.folder / "repeat" / "1" / (module._TAG if damage == "no tag" else layout.PROBES)
    file.unlink()
    if damage == "changed":
        file.write_bytes(b"damaged")
    other = Mirror(mirror.location, mirror.folder.parent)
    other.refresh()
    assert here(mirror) == ["repeat/1"]
    assert "1/probes.npz" in proxy.gets()
    assert not other.failures


def test_what_a_killed_server_has_left_is_removed(mirror: Mirror) -> None:
    (mirror.folder / "repeat" / ".half").mkdir()
    (mirror.folder / "repeat" / ".half" / layout.WEIGHTS).write_bytes(b"half")
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]


def test_servers_that_share_a_folder_take_turns(
    bundle: Path, location: Location, proxy: Proxy, tmp_path: Path
) -> None:
    push(bundle, location)
    proxy.asked.clear()
    mirrors = [Mirror(location, tmp_path / "cache") for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Mirror.refresh, mirrors))
    assert here(mirrors[0]) == ["repeat/1"]
    assert len(proxy.gets()) == len(set(proxy.gets()))


def test_another_server_is_not_waited_for_without_end(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.0)
    with (mirror.folder / module._LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another server fills it"):
            mirror.refresh()
    mirror.refresh()


def test_another_server_that_gets_on_is_waited_for(
    mirror: Mirror, bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(bundle, location, name="sea")
    clock, pause = [0.0], mirror._stopped.wait
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    path = mirror.folder / module._LOCK
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        def wait(seconds: float) -> bool:
            clock[0] += module._LOCK_SECONDS * 0.9
            os.utime(path, ns=(0, int(clock[0] * 1e9)))
            if clock[0] > 3 * module._LOCK_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_UN)
            return pause(0)

        monkeypatch.setattr(mirror._stopped, "wait", wait)
        mirror.refresh()
    assert here(mirror) == ["repeat/1", "sea/1"]
    # What it fetches is such a sign.
    assert path.stat().st_mtime > clock[0]


def test_a_server_that_stops_waits_for_no_other(mirror: Mirror) -> None:
    with (mirror.folder / module._LOCK).open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        mirror.stop()
        with pytest.raises(StorageError, match="is stopping"):
            mirror.refresh()


def test_a_server_that_stops_fetches_nothing_more(
    mirror: Mirror, bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    push(bundle, location)
    read = manifest.read

    def stop(folder: Path) -> manifest.Manifest:
        mirror.stop()
        return read(folder)

    with monkeypatch.context() as patch:
        patch.setattr("os.link", lambda *_: 1 / 0)
        patch.setattr(module, "_linked", lambda *_: False)
        patch.setattr(manifest, "read", stop)
        mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    push(bundle, location)
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]


def test_an_interrupt_breaks_off_what_is_fetched(
    bundle: Path, location: Location, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("sea", "sky"):
        push(bundle, location, name=name)
    mirror, begun, ended = Mirror(location, tmp_path / "cache"), Event(), []

    def read(_: Location, path: str) -> Iterator[bytes]:
        if path.startswith("sea"):
            assert begun.wait(30)
            raise KeyboardInterrupt
        begun.set()
        yield b"one piece"
        mirror._stopped.wait(5)
        yield b"and another"
        ended.append(path)

    monkeypatch.setattr(Location, "read", read)
    with pytest.raises(KeyboardInterrupt):
        mirror.refresh()
    assert not ended
    assert here(mirror) == []


def test_what_was_chosen_is_fetched(
    mirror: Mirror, bundle: Path, location: Location, tmp_path: Path
) -> None:
    for _ in range(2):
        push(bundle, location)
    newest = Mirror(location, tmp_path / "other", lambda _, found: [max(found)])
    newest.refresh()
    assert here(newest) == ["repeat/3"]
    newest.refresh("repeat", "1")
    newest.refresh("repeat", "9")
    newest.refresh("repeat")
    # What is in storage still stays, as it may be served.
    push(bundle, location)
    newest.refresh()
    assert here(newest) == ["repeat/1", "repeat/3", "repeat/4"]


def test_where_it_is(monkeypatch: pytest.MonkeyPatch, location: Location, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert default_cache() == Path("/var/cache/foretell")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_cache() == Path("/home/someone/.cache/foretell")
    # Of names that differ in characters that a folder's has not.
    folders = {
        Mirror(Location(url, location.store), tmp_path).folder
        for url in ("s3://bucket/a-b", "s3://bucket/a/b", "gs://bucket/a/b")
    }
    assert len(folders) == 3
