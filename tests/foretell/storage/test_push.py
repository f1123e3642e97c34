from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import obstore
import pytest
from click.testing import CliRunner, Result

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.commands.list import command as list_
from foretell.commands.promote import command as promote
from foretell.commands.push import command as push_
from foretell.storage import push as module
from foretell.storage.errors import StorageError
from foretell.storage.location import Location, open_location
from foretell.storage.push import push
from foretell.storage.remote import manifest_of, versions
from tests.foretell.storage.proxy import Proxy
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    return write_bundle(tmp_path / "models", Spec())


@pytest.fixture
def location(bucket: str) -> Location:
    return open_location(f"{bucket}/models")


def keys(location: Location) -> list[str]:
    return sorted(entry["path"] for some in obstore.list(location.store) for entry in some)


def run(command: object, *words: object) -> Result:
    return CliRunner().invoke(command, [str(word) for word in words])  # type: ignore[arg-type]


def test_a_bundle_becomes_the_next_version(bundle: Path, location: Location) -> None:
    assert push(bundle, location) == f"{location}/repeat/1"
    assert push(bundle, location) == f"{location}/repeat/2"
    assert push(bundle, location, name="sea", version="10") == f"{location}/sea/10"
    assert push(bundle, location, name="sea") == f"{location}/sea/11"
    assert versions(location).keys() == {
        *(("repeat", version) for version in ("1", "2")),
        *(("sea", version) for version in ("10", "11")),
    }
    about = manifest_of(location, "sea", "11")
    assert (about.name, about.version) == ("sea", "11")
    # Nothing but the bundle.
    expected = sorted(f"sea/11/{path.name}" for path in bundle.iterdir())
    assert [path for path in keys(location) if path.startswith("sea/11/")] == expected
    for file in about.files:
        found = obstore.get(location.store, f"sea/11/{file}").bytes()
        assert bytes(found) == (bundle / file).read_bytes()


def test_what_is_refused(bundle: Path, bucket: str, tmp_path: Path) -> None:
    url = f"{bucket}/models"
    assert run(push_, bundle, url).output == f"written to {url}/repeat/1\n"
    before = keys(open_location(url))
    (tmp_path / "empty").mkdir()
    for words, message in (
        ([bundle, url, "--version=1"], "repeat/1: exists already; bundles are never changed"),
        ([bundle, url, "--version=one"], "version 'one': expected a whole number"),
        ([tmp_path / "empty", url], "empty/manifest.json: missing"),
        ([bundle, "models"], "models: expected s3://bucket/prefix"),
        ([bundle, "s3://nowhere"], "s3://nowhere: NoSuchBucket"),
    ):
        result = run(push_, *words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith("foretell push: ")
        assert message in result.stderr
    (bundle / layout.WEIGHTS).write_bytes(b"damaged")
    assert "weights.bin: sha256 differs" in run(push_, bundle, url).stderr
    assert keys(open_location(url)) == before


def test_a_folder_is_promotes(bundle: Path, bucket: str) -> None:
    result = run(promote, bundle, f"{bucket}/models")
    assert result.exit_code == 2
    assert "`foretell push` takes a URL" in result.stderr


class BrokenError(Exception):
    pass


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that cannot be written; what is tried after the first of them fails as well."""
    names: list[str] = []
    put = obstore.put

    def fail(store: object, path: str, *given: object, **named: object) -> object:
        if path.rpartition("/")[2] in names:
            raise BrokenError
        return put(store, path, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(obstore, "put", fail)
    return names


@pytest.mark.parametrize("file", [layout.FORECAST_GRAPH, layout.WEIGHTS])
def test_what_breaks_off_is_removed(
    bundle: Path, location: Location, failing: list[str], file: str
) -> None:
    failing.append(file)
    with pytest.raises(BrokenError):
        push(bundle, location)
    assert keys(location) == []


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The smallest file goes in parts, of which storage takes any."""
    monkeypatch.setattr(module, "_PART_BYTES", 50)
    monkeypatch.setattr("moto.s3.models.S3_UPLOAD_PART_MIN_SIZE", 1)


def uploads(location: Location, s3: str) -> str:
    """What of files in parts is neither whole nor taken back."""
    bucket = location.url.removeprefix("s3://").partition("/")[0]
    return httpx.get(f"{s3}/{bucket}?uploads").raise_for_status().text


@pytest.mark.usefixtures("parts")
def test_large_files_go_in_parts(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, claimed = obstore.put, []
    renew = module._Claim.renew
    several = Event()

    def count(claim: module._Claim) -> None:
        renew(claim)
        claimed.append(claim.path)
        if len(claimed) > 2:
            several.set()

    def slow(store: object, path: str, content: object, **named: object) -> object:
        if not isinstance(content, bytes) and not several.is_set():
            assert several.wait(30)
        return put(store, path, content, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.001)
    monkeypatch.setattr(module._Claim, "renew", count)
    monkeypatch.setattr(obstore, "put", slow)
    weights = bundle / layout.WEIGHTS
    assert push(bundle, location) == f"{location}/repeat/1"
    files = manifest_of(location, "repeat", "1").files
    for file in files:
        found = obstore.get(location.store, f"repeat/1/{file}")
        assert bytes(found.bytes()) == (bundle / file).read_bytes()
        if (size := (bundle / file).stat().st_size) > 50:
            # Of as many parts.
            assert str(found.meta["e_tag"]).endswith(f'-{-(-size // 50)}"')
    assert (bundle / layout.FORECAST_GRAPH).stat().st_size > 200 > 50 > weights.stat().st_size


@pytest.mark.usefixtures("parts")
def test_of_parts_that_break_off_nothing_is_left(
    bundle: Path, bucket: str, proxy: Proxy, s3: str
) -> None:
    location = open_location(f"{bucket}/models")
    proxy.faults["partNumber=3"] = "500"
    with pytest.raises(StorageError, match=r"repeat/1/[\w.]+: 500 Internal Server Error"):
        push(bundle, location)
    assert any("partNumber=2" in asked for asked in proxy.asked)
    assert keys(location) == []
    assert "<Upload>" not in uploads(location, s3)


@pytest.mark.usefixtures("parts")
def test_parts_end_when_somebody_else_has_claimed(
    bundle: Path, location: Location, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put, lost, more = obstore.put, Event(), []

    class Told(ThreadPoolExecutor):
        def __exit__(self, *given: Any) -> None:
            lost.set()
            super().__exit__(*given)

    def taken(store: Any, path: str, content: Any, **named: Any) -> object:
        if isinstance(content, bytes):
            return put(store, path, content, **named)
        put(store, "repeat/1/.push", b"somebody else")

        def stand_still() -> Iterator[bytes]:
            yield next(content)
            assert lost.wait(30)
            for part in content:
                more.append(part)
                yield part

        return put(store, path, stand_still(), **named)

    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.001)
    monkeypatch.setattr(module, "ThreadPoolExecutor", Told)
    monkeypatch.setattr(obstore, "put", taken)
    with pytest.raises(StorageError, match=r"repeat/1/\.push: "):
        push(bundle, location)
    assert not more
    assert keys(location) == ["repeat/1/.push"]
    assert "<Upload>" not in uploads(location, s3)


@pytest.mark.usefixtures("parts")
def test_parts_that_cannot_be_begun_are_not_waited_for(
    bundle: Path, location: Location, failing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    renew, renewed = module._Claim.renew, []

    def count(claim: module._Claim) -> None:
        renewed.append(claim.path)
        assert len(renewed) < 9
        renew(claim)

    monkeypatch.setattr(module._Claim, "renew", count)
    monkeypatch.setattr(module, "_RENEW_SECONDS", 0.1)
    failing.append(layout.FORECAST_GRAPH)
    with pytest.raises(BrokenError):
        push(bundle, location)
    assert keys(location) == []


@pytest.mark.usefixtures("parts")
def test_parts_are_put_together_only_by_who_has_the_claim(
    bundle: Path, location: Location, s3: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = obstore.put

    def taken(store: Any, path: str, content: Any, **named: Any) -> object:
        if isinstance(content, bytes):
            return put(store, path, content, **named)

        count = -(-(bundle / path.rpartition("/")[2]).stat().st_size // 50)

        def lose() -> Iterator[bytes]:
            # All parts are handed over before the claim is lost.
            parts = [next(content) for _ in range(count)]
            yield from parts
            with ThreadPoolExecutor(1) as pool:
                pool.submit(put, store, "repeat/1/.push", b"somebody else").result()
            yield from content

        return put(store, path, lose(), **named)

    monkeypatch.setattr(obstore, "put", taken)
    with pytest.raises(StorageError, match=r"repeat/1/\.push: "):
        push(bundle, location)
    assert keys(location) == ["repeat/1/.push"]
    assert "<Upload>" not in uploads(location, s3)


def test_what_cannot_be_removed_is_written_over(
    bundle: Path, location: Location, failing: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    failing.append(layout.WEIGHTS)

    def fail(*_: object) -> None:
        raise StorageError("away")

    remove = module._remove
    monkeypatch.setattr(module, "_remove", fail)
    with pytest.raises(BrokenError):
        push(bundle, location)
    monkeypatch.setattr(module, "_remove", remove)
    assert "repeat/1/.push" in keys(location)
    assert not versions(location)
    failing.clear()
    # It may still be going on; later it is not.
    with pytest.raises(StorageError, match=r"repeat/1: another push is writing it.* after \d\d:"):
        push(bundle, location)
    assert push(bundle, location, version="2").endswith("/2")
    monkeypatch.setattr(module, "_CLAIM_AGE", timedelta(0))
    assert push(bundle, location, version="1").endswith("/1")
    assert not any(path.endswith(".push") for path in keys(location))


def test_one_of_two_that_push_at_once(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = write_bundle(tmp_path / "other", Spec(horizon=3))
    monkeypatch.setattr(module, "_CLAIM_AGE", timedelta(0))
    put, done = obstore.put, []

    def interrupted(store: object, path: str, *given: object, **named: object) -> object:
        # As if this one had stood still for long.
        if path.endswith(layout.WEIGHTS) and not done:
            done.append(path)
            assert push(other, location).endswith("repeat/1")
        return put(store, path, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(obstore, "put", interrupted)
    with pytest.raises(StorageError, match=r"repeat/1/\.push: "):
        push(bundle, location)
    # It neither removes nor changes what is somebody else's by then.
    about = manifest_of(location, "repeat", "1")
    assert about.horizon == 3
    for file in about.files:
        found = obstore.get(location.store, f"repeat/1/{file}").bytes()
        assert bytes(found) == (other / file).read_bytes()


def test_one_that_ends_before_the_other_claims(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = module._Claim.take

    def late(claim: module._Claim) -> None:
        monkeypatch.setattr(module._Claim, "take", take)
        push(bundle, location)
        take(claim)

    monkeypatch.setattr(module._Claim, "take", late)
    with pytest.raises(BundleError, match="repeat/1: exists already"):
        push(bundle, location)
    assert versions(location).keys() == {("repeat", "1")}
    assert not any(path.endswith(".push") for path in keys(location))


def test_a_manifest_is_never_overwritten(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove = module._remove

    def come(own: Location, paths: list[str]) -> None:
        raise AssertionError(paths)

    monkeypatch.setattr(module, "_remove", come)
    renew = module._Claim.renew

    def written(claim: module._Claim) -> None:
        renew(claim)
        obstore.put(location.store, "repeat/1/manifest.json", b"another")

    monkeypatch.setattr(module._Claim, "renew", written)
    with pytest.raises(StorageError, match=r"manifest\.json: was written by somebody else"):
        push(bundle, location)
    assert bytes(obstore.get(location.store, "repeat/1/manifest.json").bytes()) == b"another"
    remove(location, ["repeat/1/.push"])


def test_an_answer_that_was_lost(
    bundle: Path, location: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client asks again, and is told that what it asked for is there."""
    put = obstore.put

    def twice(store: object, path: str, *given: object, **named: object) -> object:
        put(store, path, *given, **named)  # type: ignore[call-overload]
        return put(store, path, *given, **named)  # type: ignore[call-overload]

    monkeypatch.setattr(obstore, "put", twice)
    assert push(bundle, location) == f"{location}/repeat/1"
    assert versions(location).keys() == {("repeat", "1")}


def test_list(bundle: Path, bucket: str, tmp_path: Path) -> None:
    wide = write_bundle(
        tmp_path / "models",
        Spec(
            name="wide", version="12", channels=("a", "b", "c"), targets=("b",), frequency="15min"
        ),
    )
    url = f"{bucket}/models"
    assert run(push_, bundle, url).exit_code == 0
    assert run(push_, wide, url, "--version=9").exit_code == 0
    assert run(push_, wide, url, "--version=10").exit_code == 0
    obstore.put(open_location(url).store, "broken/1/manifest.json", b"{}")
    obstore.put(open_location(url).store, "half/1/weights.bin", b"{}")
    result = run(list_, url)
    assert result.exit_code == 0, result.stderr
    rows = [line.split() for line in result.stdout.splitlines() if "│" in line]
    cells = [[word for word in row if word != "│"] for row in rows]
    assert [row[:2] for row in cells] == [
        ["broken", "1"],
        ["repeat", "1"],
        ["wide", "9"],
        ["wide", "10"],
    ]
    assert cells[2][3:8] == ["1", "of", "3", "8", "4"]
    assert cells[2][8] == "15min"
    assert "UTC" in cells[2]
    assert "broken/1/manifest.json: name: Field required" in result.stdout
    # In a folder likewise.
    local = run(list_, tmp_path / "models")
    rows = [line.split()[1:4:2] for line in local.stdout.splitlines() if "│" in line]
    assert rows == [["repeat", "1"], ["wide", "12"]]


def test_a_folder_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def denied(folder: Path) -> None:
        # The administrator may read all there is.
        raise PermissionError(13, "Permission denied", str(folder))

    monkeypatch.setattr(Path, "iterdir", denied)
    result = run(list_, tmp_path)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"foretell list: {tmp_path}: Permission denied\n"


@pytest.mark.parametrize(
    ("repository", "message"),
    [("nowhere", "nowhere: no such folder"), ("s3://nowhere", "s3://nowhere: NoSuchBucket")],
)
def test_nothing_to_list(repository: str, message: str, environment: pytest.MonkeyPatch) -> None:
    result = run(list_, repository)
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"foretell list: {message}")
