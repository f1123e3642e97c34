from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Event
from types import SimpleNamespace
from typing import Any

import obstore
import pytest

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.serving import Serving
from foretell.storage import collecting, serving
from foretell.storage import location as places
from foretell.storage import mirror as module
from foretell.storage.bucket import Bucket, BucketVersion
from foretell.storage.collecting import collect
from foretell.storage.errors import StorageError
from foretell.storage.location import Location, open_location
from foretell.storage.mirror import Mirror, default_cache
from foretell.storage.remote import open_remote
from foretell.storage.repository import publish
from tests.foretell.storage.conftest import Kind, Proxy
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", Spec())


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """A bundle with other weights."""
    return write_bundle(tmp_path / "other", Spec(channels=("load", "wind")))


@pytest.fixture
def location(bucket: str, proxy: Proxy) -> Location:
    return open_location(f"{bucket}/models")


@pytest.fixture
def mirror(bundle: Path, location: Location, proxy: Proxy, tmp_path: Path) -> Mirror:
    """A mirror with version 1 of the model."""
    publish(bundle, location)
    mirror = Mirror(Bucket(location), tmp_path / "cache")
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    proxy.requests.clear()
    return mirror


def here(mirror: Mirror) -> list[str]:
    """Complete bundles of the mirror; fails if there are other files."""
    found, files = [], set()
    for folder in mirror.folder.glob("[!.]*/[1-9]*"):
        about = manifest.read(folder)
        checksums.check(folder, about.files)
        found.append(str(folder.relative_to(mirror.folder)))
        files |= {*about.files.values()}
    assert {path.name for path in (mirror.folder / module._BLOBS).iterdir()} <= files
    assert not list((mirror.folder / module._WORK).glob("*"))
    return sorted(found)


def located(mirror: Mirror) -> Location:
    assert isinstance(mirror.remote, Bucket)
    return mirror.remote.location


def stored(bundle: Path, file: str = layout.WEIGHTS) -> str:
    """Path of a bundle's file in storage."""
    return f"blobs/{manifest.read(bundle).files[file]}"


def rewrite(location: Location, reference: str, **changes: Any) -> None:
    path = f"{reference}/manifest.json"
    fields = json.loads(bytes(obstore.get(location.store, path).bytes()))
    obstore.put(location.store, path, json.dumps(fields | changes).encode())


def remove(location: Location, reference: str) -> None:
    obstore.delete(location.store, f"{reference}/manifest.json")


def test_bundle_is_fetched_once_and_later_refreshes_only_list(
    mirror: Mirror, bundle: Path, proxy: Proxy
) -> None:
    for file in manifest.read(bundle).files:
        assert (mirror.folder / "repeat" / "1" / file).read_bytes() == (bundle / file).read_bytes()
    assert str(mirror) == str(mirror.remote)
    assert mirror.folder.parent.name == "cache"
    assert not mirror.failures
    mirror.refresh()
    [request] = proxy.requests
    assert "list-type=2" in request


def test_read_at_is_the_time_of_the_last_answer(
    mirror: Mirror, other: Path, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert Mirror(mirror.remote, mirror.folder.parent).read_at == 0
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
    # Fetching a large bundle takes longer than a listing.
    publish(other, located(mirror), name="sea")

    def later(request: str) -> None:
        now[0] += 1000

    proxy.before = later
    mirror.refresh()
    assert now[0] > 1200
    assert mirror.read_at == now[0]


def test_versions_are_added_and_removed(mirror: Mirror, bundle: Path) -> None:
    publish(bundle, located(mirror))
    publish(bundle, located(mirror), name="sea")
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2", "sea/1"]
    remove(located(mirror), "repeat/1")
    remove(located(mirror), "sea/1")
    mirror.refresh()
    assert here(mirror) == ["repeat/2"]
    assert not (mirror.folder / "sea").exists()
    # A version that was written again.
    rewrite(located(mirror), "repeat/2", parameters=77)
    mirror.refresh()
    assert here(mirror) == ["repeat/2"]
    assert manifest.read(mirror.folder / "repeat" / "2").parameters == 77


def test_objects_outside_versions_are_skipped(mirror: Mirror, bundle: Path) -> None:
    for file in manifest.read(bundle).files:
        obstore.put(located(mirror).store, f"repeat/2/{file}", bundle / file)
    for path in ("loose.txt", ".hidden/1/manifest.json", "repeat/x/manifest.json"):
        obstore.put(located(mirror).store, path, b"{}")
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    assert not mirror.failures


@pytest.mark.parametrize("links", [True, False])
def test_files_in_common_are_fetched_and_kept_once(
    mirror: Mirror,
    bundle: Path,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    *,
    links: bool,
) -> None:
    def fail(*_: object) -> None:
        raise OSError("no links here")

    if not links:
        monkeypatch.setattr("os.link", fail)
    publish(bundle, located(mirror))
    proxy.requests.clear()
    mirror.refresh()
    assert proxy.gets() == ["2/manifest.json"]
    assert here(mirror) == ["repeat/1", "repeat/2"]
    one, two = (mirror.folder / "repeat" / own / layout.WEIGHTS for own in "12")
    assert one.samefile(two) == links
    # Also by a server that has only just started.
    publish(bundle, located(mirror))
    proxy.requests.clear()
    Mirror(mirror.remote, mirror.folder.parent).refresh()
    assert "3/manifest.json" in proxy.gets()
    assert not links or proxy.gets() == ["3/manifest.json"]


@pytest.mark.parametrize("is_one_file", [True, False])
def test_four_versions_are_fetched_at_a_time(
    location: Location, proxy: Proxy, tmp_path: Path, *, is_one_file: bool
) -> None:
    bundles = [
        write_bundle(tmp_path / f"{at}", Spec(horizon=4 if is_one_file else at + 1))
        for at in range(8)
    ]
    for bundle in bundles:
        publish(bundle, location)
    proxy.requests.clear()
    barrier = Barrier(4, timeout=30)
    proxy.before = lambda request: barrier.wait() and None if "manifest" in request else None
    mirror = Mirror(Bucket(location), tmp_path / "cache")
    mirror.refresh()
    assert here(mirror) == [f"repeat/{at + 1}" for at in range(8)]
    assert not mirror.failures
    # A version waits for a file that another one fetches.
    files = {own for bundle in bundles for own in manifest.read(bundle).files.values()}
    assert len(proxy.gets()) == 8 + len(files)


def test_version_that_replaces_another_shares_its_files(
    mirror: Mirror, bundle: Path, other: Path
) -> None:
    publish(bundle, located(mirror), name="sea")
    publish(other, located(mirror), name="sky")
    rewrite(located(mirror), "repeat/1", files=manifest.read(other).files)
    mirror.refresh()
    assert not mirror.failures
    assert here(mirror) == ["repeat/1", "sea/1", "sky/1"]
    weights = [mirror.folder / name / "1" / layout.WEIGHTS for name in ("repeat", "sky")]
    assert weights[0].samefile(weights[1])


def test_file_in_the_trash_is_fetched_from_there(
    mirror: Mirror, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(other, located(mirror), name="sea")
    monkeypatch.setattr(collecting, "GRACE", timedelta(seconds=-9))
    remove(located(mirror), "sea/1")
    assert collect(located(mirror)).moved > 0
    obstore.put(
        located(mirror).store, "repeat/2/manifest.json", (other / "manifest.json").read_bytes()
    )
    rewrite(located(mirror), "repeat/2", version="2")
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]
    assert collect(located(mirror)).restored > 0
    Mirror(mirror.remote, mirror.folder.parent.parent / "another").refresh()


# Request, fault and message: about the repository or a version.
FAULTS: dict[str, tuple[str, Kind, str]] = {
    "500": ("list-type", "500", "models: 500 Internal Server Error"),
    "denied": ("list-type", "denied", "models: AccessDenied: Access Denied; credentials are"),
    "cut off": ("list-type", "cut", "models: Generic S3 error: .*body"),
    "file 500": ("weights", "500", "repeat/2/weights.bin: 500 Internal Server Error"),
    "manifest denied": ("2/manifest", "denied", "repeat/2/manifest.json: AccessDenied"),
    "file cut off": ("weights", "cut", "repeat/2/weights.bin: "),
    "manifest cut off": ("2/manifest", "cut", "repeat/2/manifest.json: "),
    "wrong file": ("weights", "wrong", "repeat/2/weights.bin: sha256 differs"),
    "wrong manifest": ("2/manifest", "wrong", "repeat/2/manifest.json: manifest: Invalid JSON"),
}


@pytest.mark.parametrize(("pattern", "kind", "message"), FAULTS.values(), ids=FAULTS)
def test_error_of_the_storage_changes_nothing(
    mirror: Mirror, bundle: Path, other: Path, proxy: Proxy, pattern: str, kind: Kind, message: str
) -> None:
    publish(other, located(mirror), version="2")
    publish(bundle, located(mirror), name="sea")
    proxy.faults[f"GET .*{pattern.replace('weights', stored(other))}"] = kind
    if pattern == "list-type":
        with pytest.raises(StorageError, match=message):
            mirror.refresh()
        assert here(mirror) == ["repeat/1"]
    else:
        mirror.refresh()
        assert mirror.failures["repeat", "2"].startswith(message)
        assert here(mirror) == ["repeat/1", "sea/1"]
    proxy.faults.clear()
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2", "sea/1"]
    assert not mirror.failures


def test_unreadable_pin_of_a_model_does_not_stop_the_others(
    mirror: Mirror, bundle: Path, other: Path, proxy: Proxy
) -> None:
    serving.write(mirror.remote, "repeat", Serving(pin="1"))
    mirror.refresh()
    pin = mirror.folder / "repeat" / layout.SERVING
    content = pin.read_bytes()
    serving.write(mirror.remote, "repeat", Serving(pin="2"))
    for reference in ((other, "repeat"), (bundle, "sea")):
        publish(reference[0], located(mirror), name=reference[1])
    proxy.faults[f"GET .*{layout.SERVING}"] = "denied"
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "sea/1"]
    assert pin.read_bytes() == content
    assert list(mirror.unlisted) == ["repeat"]
    assert f"repeat/{layout.SERVING}: AccessDenied" in mirror.unlisted["repeat"]
    # A version that a request names needs no pin.
    proxy.faults[f"GET .*{stored(other)}"] = "500"
    mirror.refresh("repeat", "2")
    assert list(mirror.failures) == [("repeat", "2")]
    mirror.refresh()
    assert list(mirror.failures) == [("repeat", "2")]
    del proxy.faults[f"GET .*{stored(other)}"]
    remove(located(mirror), "sea/1")
    mirror.refresh("repeat", "2")
    assert here(mirror) == ["repeat/1", "repeat/2"]
    assert mirror.failures == {}
    with pytest.raises(StorageError, match=f"repeat/{layout.SERVING}: AccessDenied"):
        mirror.refresh()
    proxy.faults.clear()
    mirror.refresh()
    assert mirror.unlisted == {}
    assert b'"2"' in pin.read_bytes()


@pytest.mark.parametrize("bad", [{"weights.bin": "/dev/zero"}, {".tag": "ab" * 32}])
def test_sums_and_names_that_are_other_paths_are_refused(
    mirror: Mirror, bundle: Path, other: Path, bad: dict[str, str]
) -> None:
    publish(other, located(mirror))
    rewrite(located(mirror), "repeat/1", files=manifest.read(bundle).files | bad)
    mirror.refresh()
    assert "manifest.json: files." in mirror.failures["repeat", "1"]
    assert here(mirror) == ["repeat/1", "repeat/2"]


def test_unexpected_error_of_a_version_does_not_stop_the_others(
    mirror: Mirror, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = BucketVersion.manifest

    def manifest_of(version: BucketVersion) -> bytes:
        if version.key[1] == "2":
            raise RecursionError
        return read(version)

    monkeypatch.setattr(BucketVersion, "manifest", manifest_of)
    for _ in range(2):
        publish(other, located(mirror))
    mirror.refresh()
    assert mirror.failures == {("repeat", "2"): "RecursionError"}
    assert here(mirror) == ["repeat/1", "repeat/3"]


def test_version_without_a_file_or_its_sum_changes_nothing(
    mirror: Mirror, bundle: Path, other: Path
) -> None:
    publish(other, located(mirror))
    obstore.delete(located(mirror).store, stored(other))
    files = dict(manifest.read(bundle).files)
    del files[layout.WEIGHTS]
    rewrite(located(mirror), "repeat/1", files=files)
    mirror.refresh()
    assert mirror.failures["repeat", "1"].endswith("the manifest has no checksum of weights.bin")
    message = mirror.failures["repeat", "2"]
    assert re.fullmatch(r"repeat/2/weights.bin: blobs/[0-9a-f]{64} is missing", message)
    assert here(mirror) == ["repeat/1"]


def test_version_that_fails_again_and_again_is_fetched_less_often(
    mirror: Mirror,
    other: Path,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    publish(other, located(mirror))
    proxy.faults[f"GET .*{stored(other)}"] = "wrong"

    def tried() -> bool:
        proxy.requests.clear()
        mirror.refresh()
        assert mirror.failures["repeat", "2"].startswith("repeat/2/weights.bin: sha256 differs")
        return stored(other) in proxy.gets()

    assert tried()
    assert tried()
    for pause in (10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0):
        clock[0] += pause - 1
        assert not tried()
        clock[0] += 1
        assert tried()
    # A request for the version is tried at once, and so is a version with another manifest.
    proxy.requests.clear()
    mirror.refresh("repeat", "2")
    assert proxy.gets().count(stored(other)) == 1
    rewrite(located(mirror), "repeat/2", parameters=77)
    assert tried()
    proxy.faults.clear()
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]


def test_incomplete_listing_removes_nothing(mirror: Mirror, bundle: Path, proxy: Proxy) -> None:
    publish(bundle, located(mirror))
    proxy.faults |= {"list-type": "pages"}
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]
    proxy.faults |= {"continuation-token": "500"}
    with pytest.raises(StorageError, match="500 Internal"):
        mirror.refresh()
    # A bucket that is suddenly empty does not remove versions either.
    proxy.faults.clear()
    for version in ("1", "2"):
        remove(located(mirror), f"repeat/{version}")
    with pytest.raises(StorageError, match="is empty; fetched bundles are kept"):
        mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]


def test_refresh_times_out_without_an_answer(
    mirror: Mirror, proxy: Proxy, environment: pytest.MonkeyPatch
) -> None:
    environment.setitem(places._CLIENT, "read_timeout", timedelta(milliseconds=50))
    proxy.faults["list-type"] = "silent"
    with pytest.raises(StorageError, match=r"no answer in time"):
        Mirror(open_remote(mirror.remote.url), mirror.folder.parent).refresh()
    assert here(mirror) == ["repeat/1"]
    # The request was repeated, as after an error.
    assert len(proxy.requests) == 2


@pytest.mark.parametrize("damage", ["changed", "missing", "no tag"])
def test_damaged_local_file_is_fetched_again(
    mirror: Mirror, bundle: Path, proxy: Proxy, damage: str
) -> None:
    file = mirror.folder / "repeat" / "1" / (module._TAG if damage == "no tag" else layout.PROBES)
    if damage == "changed":
        # Written in place, so that all links to the file are damaged.
        file.write_bytes(b"damaged")
    else:
        file.unlink()
    other = Mirror(mirror.remote, mirror.folder.parent)
    other.refresh()
    assert here(mirror) == ["repeat/1"]
    assert (stored(bundle, layout.PROBES) in proxy.gets()) == (damage == "changed")
    assert not other.failures


def test_partial_files_of_a_killed_server_are_used_or_removed(
    mirror: Mirror, bundle: Path, proxy: Proxy
) -> None:
    work, blobs = (mirror.folder / own for own in (module._WORK, module._BLOBS))
    (work / "half").mkdir(parents=True)
    (work / "half" / layout.WEIGHTS).write_bytes(b"half")
    (blobs / ("0" * 64)).write_bytes(b"of no version")
    other = write_bundle(bundle.parent.parent, Spec(version="2", channels=("load", "wind")))
    publish(other, located(mirror))
    (mirror.folder / stored(other).replace("blobs", module._BLOBS)).write_bytes(
        (other / layout.WEIGHTS).read_bytes()
    )
    mirror.refresh()
    assert here(mirror) == ["repeat/1", "repeat/2"]
    assert stored(other) not in proxy.gets()


def test_servers_that_share_a_folder_take_turns(
    bundle: Path, location: Location, proxy: Proxy, tmp_path: Path
) -> None:
    publish(bundle, location)
    proxy.requests.clear()
    mirrors = [Mirror(Bucket(location), tmp_path / "cache") for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(Mirror.refresh, mirrors))
    assert here(mirrors[0]) == ["repeat/1"]
    assert len(proxy.gets()) == len(set(proxy.gets()))


def test_server_waits_while_another_makes_progress(
    mirror: Mirror, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(other, located(mirror), name="sea")
    clock, pause = [0.0], mirror._stopped.wait
    path = mirror.folder / module._LOCK
    with monkeypatch.context() as patch, path.open("a") as lock:
        patch.setattr(module.time, "monotonic", lambda: clock[0])
        fcntl.flock(lock, fcntl.LOCK_EX)

        def wait(seconds: float) -> bool:
            clock[0] += module._LOCK_SECONDS * 0.9
            os.utime(path, ns=(0, int(clock[0] * 1e9)))
            if clock[0] > 3 * module._LOCK_SECONDS:
                fcntl.flock(lock, fcntl.LOCK_UN)
            return pause(0)

        patch.setattr(mirror._stopped, "wait", wait)
        mirror.refresh()
    assert here(mirror) == ["repeat/1", "sea/1"]
    # A fetched file also updates the time.
    assert path.stat().st_mtime > clock[0]
    monkeypatch.setattr(module, "_LOCK_SECONDS", 0.0)
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="another server holds the lock"):
            mirror.refresh()
        monkeypatch.undo()
        mirror.stop()
        with pytest.raises(StorageError, match="is stopping"):
            mirror.refresh()


def test_server_that_stops_fetches_nothing_more(mirror: Mirror, other: Path, proxy: Proxy) -> None:
    publish(other, located(mirror))
    proxy.requests.clear()
    proxy.before = lambda request: mirror.stop() if "manifest" in request else None
    mirror.refresh()
    assert here(mirror) == ["repeat/1"]
    assert proxy.gets() == ["2/manifest.json"]
    mirror.refresh()
    assert proxy.gets() == ["2/manifest.json"]


def test_interrupt_cancels_fetches(
    bundle: Path,
    other: Path,
    location: Location,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    publish(bundle, location, name="sea")
    publish(other, location, name="sky")
    mirror, begun, ended = Mirror(Bucket(location), tmp_path / "cache"), Event(), []

    def pieces(version: BucketVersion, file: str, wanted: str) -> Iterator[bytes]:
        if version.key[0] == "sea":
            assert begun.wait(30)
            raise KeyboardInterrupt
        begun.set()
        yield b"one piece"
        mirror._stopped.wait(5)
        yield b"and another"
        ended.append(file)

    monkeypatch.setattr(BucketVersion, "pieces", pieces)
    with pytest.raises(KeyboardInterrupt):
        mirror.refresh()
    assert not ended
    assert not list(mirror.folder.glob("[!.]*"))


def test_versions_that_were_chosen_are_fetched(
    mirror: Mirror, bundle: Path, tmp_path: Path
) -> None:
    for _ in range(2):
        publish(bundle, located(mirror))
    newest = Mirror(mirror.remote, tmp_path / "other", lambda _, found: [max(found)])
    newest.refresh()
    assert here(newest) == ["repeat/3"]
    for version in ("1", "9", None):
        newest.refresh("repeat", version)
    # Versions still in the storage stay, because they may be served.
    publish(bundle, located(mirror))
    newest.refresh()
    assert here(newest) == ["repeat/1", "repeat/3", "repeat/4"]


def test_cache_has_a_folder_for_each_location(
    monkeypatch: pytest.MonkeyPatch, location: Location, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/cache")
    assert default_cache() == Path("/var/cache/foretell")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/someone")
    assert default_cache() == Path("/home/someone/.cache/foretell")
    # URLs that differ only in characters that names of folders cannot have.
    folders = {
        Mirror(Bucket(Location(url, location.store)), tmp_path).folder
        for url in ("s3://bucket/a-b", "s3://bucket/a/b", "gs://bucket/a/b")
    }
    assert len(folders) == 3


def test_file_beside_the_manifest_is_fetched(mirror: Mirror) -> None:
    """It may be written later, and is not among the manifest's files."""
    obstore.put(located(mirror).store, f"repeat/1/{layout.SIGNATURE}", b"one")
    mirror.refresh()
    assert (mirror.folder / "repeat" / "1" / layout.SIGNATURE).read_bytes() == b"one"
    obstore.put(located(mirror).store, f"repeat/1/{layout.SIGNATURE}", b"another")
    mirror.refresh()
    assert (mirror.folder / "repeat" / "1" / layout.SIGNATURE).read_bytes() == b"another"
