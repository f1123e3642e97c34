"""`foretell publish`, into a folder and into object storage; `foretell list` and `foretell gc`."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import httpx
import obstore
import pytest

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.storage import collecting, repository
from foretell.storage.errors import StorageError
from foretell.storage.location import Location, open_location
from foretell.storage.repository import list_contents, publish, read_blob, read_manifest
from tests.foretell.storage.conftest import Proxy
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused, run
from tests.support.process import Server
from tests.support.waiting import until


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "written", Spec()).rename(tmp_path / "staging")


@pytest.fixture
def location(bucket: str) -> Location:
    return open_location(f"{bucket}/models")


@pytest.fixture(params=["folder", "bucket"])
def destination(request: pytest.FixtureRequest, bucket: str, tmp_path: Path) -> str:
    return f"{bucket}/models" if request.param == "bucket" else str(tmp_path / "models")


def keys(location: Location) -> list[str]:
    return sorted(entry["path"] for some in obstore.list(location.store) for entry in some)


def listed(place: object) -> list[list[str]]:
    """Cells of the table that `foretell list` prints."""
    rows = [line for line in done("list", place).stdout.splitlines() if "│" in line]
    return [[word for word in row.split() if word != "│"] for row in rows]


def test_bundle_becomes_the_next_version(bundle: Path, destination: str) -> None:
    for words, written in (
        ([], "repeat/1"),
        ([], "repeat/2"),
        (["--name=sea", "--model-version=10"], "sea/10"),
        (["--name=sea"], "sea/11"),
    ):
        output = done("publish", bundle, destination, *words).stdout
        assert output == f"written to {destination}/{written}\n"
    expected = [["repeat", "1"], ["repeat", "2"], ["sea", "10"], ["sea", "11"]]
    assert [row[:2] for row in listed(destination)] == expected


def test_wrong_names_and_bundles_are_refused(
    bundle: Path, destination: str, tmp_path: Path
) -> None:
    done("publish", bundle, destination, "--name=sea", "--model-version=2")
    before = listed(destination)
    (tmp_path / "empty").mkdir()
    for words, message in (
        ([bundle, destination, "--name=sea", "--model-version=2"], "sea/2: exists already"),
        ([bundle, destination, "--model-version=two"], "version 'two': expected a whole number"),
        ([tmp_path / "empty", destination], "empty: there is no bundle"),
        ([bundle, "s3://nowhere"], "s3://nowhere: NoSuchBucket"),
        ([bundle, "ftp://host"], "ftp://host: expected s3://bucket/prefix"),
    ):
        assert message in refused("publish", *words)
    (bundle / layout.WEIGHTS).write_bytes(b"damaged")
    assert "weights.bin: sha256 differs" in refused("publish", bundle, destination)
    assert listed(destination) == before


def test_bundles_are_copied_between_repositories(bundle: Path, bucket: str, tmp_path: Path) -> None:
    source, cache = f"{bucket}/staging", ("--cache", tmp_path / "cache")
    for _ in range(2):
        done("publish", bundle, source)
    for text, destination, written in (
        (f"{source}/repeat", f"{bucket}/production", "repeat/1"),
        (f"{source}/repeat@1", tmp_path / "models", "repeat/1"),
        (tmp_path / "models" / "repeat", f"{bucket}/production", "repeat/2"),
    ):
        output = done("publish", text, destination, *cache).stdout
        assert output == f"written to {destination}/{written}\n"
    folder = tmp_path / "models" / "repeat" / "1"
    assert done("verify", folder).stdout.endswith("repeat@1: verified\n")
    stored = read_manifest(open_location(f"{bucket}/production"), "repeat", "2")
    assert manifest.read(folder).files == stored.files


def test_watching_server_loads_the_published_version(bundle: Path, tmp_path: Path) -> None:
    models = write_bundle(tmp_path / "models", Spec()).parent.parent
    with Server(models, tmp_path / "log", watch_seconds=0.01) as server:
        done("publish", bundle, models)
        until(lambda: httpx.get(f"{server.url}/models").json()[0]["version"] == "2")
        assert "refused" not in server.log


def test_each_file_is_stored_once(bundle: Path, location: Location) -> None:
    for name in ("sea", "sky"):
        publish(bundle, location, name=name)
    about = read_manifest(location, "sky", "1")
    assert (about.name, about.version) == ("sky", "1")
    expected = {f"blobs/{own}" for own in about.files.values()}
    assert keys(location) == sorted({*expected, "sea/1/manifest.json", "sky/1/manifest.json"})
    for file, own in about.files.items():
        assert b"".join(read_blob(location, own, file)) == (bundle / file).read_bytes()


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are uploaded in parts, and the storage accepts small parts."""
    monkeypatch.setattr(repository, "_PART_BYTES", 50)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)


def uploads(location: Location, s3: str) -> str:
    """Incomplete multipart uploads that were not aborted."""
    bucket = location.url.removeprefix("s3://").partition("/")[0]
    return httpx.get(f"{s3}/{bucket}?uploads").raise_for_status().text


@pytest.mark.usefixtures("parts")
def test_interrupted_publish_leaves_no_version_and_can_be_repeated(
    bundle: Path, bucket: str, proxy: Proxy, s3: str
) -> None:
    location = open_location(f"{bucket}/models")
    proxy.faults["partNumber=3"] = "500"
    with pytest.raises(StorageError, match=r"blobs/[0-9a-f]{64}: 500 Internal Server Error"):
        publish(bundle, location)
    assert any("partNumber=2" in request for request in proxy.requests)
    assert not list_contents(location).versions
    assert "<Upload>" not in uploads(location, s3)
    proxy.faults.clear()
    publish(bundle, location)
    for file, own in read_manifest(location, "repeat", "1").files.items():
        found = obstore.get(location.store, f"blobs/{own}")
        assert bytes(found.bytes()) == (bundle / file).read_bytes()
        assert str(found.meta["e_tag"]).endswith(f'-{-(-(bundle / file).stat().st_size // 50)}"')


@pytest.mark.usefixtures("parts")
def test_file_that_changes_during_the_upload_is_not_stored(
    bundle: Path, location: Location, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(folder: Path, files: dict[str, str]) -> None:
        (folder / layout.FORECAST_GRAPH).write_bytes(b"another")

    monkeypatch.setattr(checksums, "check", check)
    with pytest.raises(BundleError, match=r"forecast\.onnx: sha256 differs"):
        publish(bundle, location)
    wanted = manifest.read(bundle).files[layout.FORECAST_GRAPH]
    assert f"blobs/{wanted}" not in keys(location)
    assert "<Upload>" not in uploads(location, s3)


def test_second_of_two_concurrent_publishes_is_refused(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other, put = write_bundle(tmp_path / "other", Spec(horizon=3)), obstore.put

    def interrupted(store: object, path: str, *given: object, **named: object) -> object:
        if path.endswith(layout.MANIFEST):
            monkeypatch.setattr(obstore, "put", put)
            publish(other, location)
        return put(store, path, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(obstore, "put", interrupted)
    with pytest.raises(BundleError, match="repeat/1: exists already; bundles are never changed"):
        publish(bundle, location)
    assert read_manifest(location, "repeat", "1").horizon == 3


def test_repeated_publish_after_a_lost_answer_succeeds(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client repeats the request, and the storage answers that the object exists."""
    put = obstore.put

    def twice(store: object, path: str, *given: object, **named: object) -> object:
        if path.endswith(layout.MANIFEST):
            put(store, path, *given, **named)  # type: ignore[call-overload]
        return put(store, path, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(obstore, "put", twice)
    assert publish(bundle, location) == f"{location}/repeat/1"


def test_gc_removes_unreferenced_files(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    publish(bundle, location)
    publish(write_bundle(tmp_path / "other", Spec(name="wide", channels=("a", "b"))), location)
    obstore.delete(location.store, "wide/1/manifest.json")
    named = {f"blobs/{own}" for own in read_manifest(location, "repeat", "1").files.values()}
    # Young files are kept.
    assert done("gc", location).output == "0 files removed, 0 moved to trash, 0 restored\n"
    monkeypatch.setattr(collecting, "GRACE", timedelta(seconds=-9))
    unnamed = len(list_contents(location).blobs) - len(named)
    assert unnamed > 0
    for removed, moved in ((0, unnamed), (unnamed, 0)):
        output = f"{removed} files removed, {moved} moved to trash, 0 restored\n"
        assert done("gc", location).output == output
    assert keys(location) == sorted({*named, "repeat/1/manifest.json"})
    obstore.put(location.store, "new/1/manifest.json", b"{}")
    result = run("gc", location)
    assert result.exit_code == 2
    assert "foretell gc: " in result.stderr
    assert "new/1/manifest.json: " in result.stderr


def test_list_prints_versions(bundle: Path, bucket: str, tmp_path: Path) -> None:
    wide = write_bundle(
        tmp_path / "models",
        Spec(
            name="wide", version="12", channels=("a", "b", "c"), targets=("b",), frequency="15min"
        ),
    )
    location = open_location(f"{bucket}/models")
    for version in ("9", "10"):
        publish(wide, location, version=version)
    obstore.put(location.store, "broken/1/manifest.json", b"{}")
    obstore.put(location.store, "half/1/weights.bin", b"{}")
    cells = listed(location)
    assert [row[:2] for row in cells] == [["broken", "1"], ["wide", "9"], ["wide", "10"]]
    assert cells[1][3:9] == ["1", "of", "3", "8", "4", "15min"]
    assert "UTC" in cells[1]
    assert "broken/1/manifest.json: name: Field required" in done("list", location).stdout
    # The size is the same in a folder.
    assert listed(tmp_path / "models")[0][9:11] == cells[1][9:11]


@pytest.mark.parametrize(
    ("place", "message"),
    [("nowhere", "nowhere: no such folder"), ("s3://nowhere", "s3://nowhere: NoSuchBucket")],
)
def test_missing_repositories_are_refused(
    place: str, message: str, environment: pytest.MonkeyPatch
) -> None:
    assert refused("list", place).startswith(f"foretell list: {message}")


def test_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(folder: Path) -> None:
        # The tests may run as root, which may read every folder.
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", denied)
    assert refused("list", tmp_path) == f"foretell list: {tmp_path}: Permission denied\n"
