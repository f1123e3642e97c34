from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import pytest

from foretell.bundle import checksums, layout, manifest, placement
from foretell.bundle.checksums import check, sha256
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import publish
from tests.support.bundles import Spec, write_bundle


@pytest.mark.parametrize("name", ["a", "7", "patchtst_ETTh1_96.96-v2", "a" * 64])
def test_names(name: str) -> None:
    assert layout.check_name(name) == name


TRAVERSALS = ["..", "../x", "x/../y", "/etc", "x/y", "x\\y", ".hidden", "a\0", "%2e%2e"]


@pytest.mark.parametrize(
    "name", [*TRAVERSALS, "", ".", "-x", "_x", "a b", "a\n", "\na", "ä", "a" * 65, "a@1"]
)
def test_refused_names(name: str, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="model name"):
        layout.check_name(name)
    with pytest.raises(BundleError, match="model name"):
        layout.versions(tmp_path, name)
    with pytest.raises(BundleError, match="model name"):
        layout.next_version(tmp_path, name)


@pytest.mark.parametrize("version", ["1", "10", "999999999"])
def test_versions(version: str) -> None:
    assert layout.check_version(version) == version


@pytest.mark.parametrize(
    "version", [*TRAVERSALS, "", "0", "01", "-1", "1.0", "v1", "1\n", "1000000000", "\u0661"]
)
def test_refused_versions(version: str) -> None:
    with pytest.raises(BundleError, match="expected a whole number from 1"):
        layout.check_version(version)


def test_a_refused_name_is_shown_in_part() -> None:
    with pytest.raises(BundleError) as raised:
        layout.check_name("a" * 10_000)
    assert len(str(raised.value)) < 250


def hold(repository: Path, *places: str) -> None:
    for place in places:
        folder = repository / place
        folder.mkdir(parents=True)
        (folder / layout.MANIFEST).touch()


def test_repository_lists_versions_in_order(tmp_path: Path) -> None:
    hold(tmp_path, "b/1", "b/2", "b/10", "b/9", "a/3", ".hidden/1", "c/.1.ab12", "c/latest", "d/0")
    (tmp_path / "e" / "1").mkdir(parents=True)  # no manifest
    (tmp_path / "f").touch()
    assert layout.model_names(tmp_path) == ["a", "b"]
    assert layout.versions(tmp_path, "b") == ["1", "2", "9", "10"]
    assert layout.versions(tmp_path, "c") == []
    assert layout.versions(tmp_path, "e") == []
    assert layout.versions(tmp_path, "f") == []
    assert layout.versions(tmp_path, "absent") == []


def test_next_version(tmp_path: Path) -> None:
    hold(tmp_path, "b/2", "b/10")
    assert layout.next_version(tmp_path, "b") == "11"
    assert layout.next_version(tmp_path, "new") == "1"


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="absent: no such folder"):
        layout.model_names(tmp_path / "absent")
    assert layout.versions(tmp_path / "absent", "a") == []


def test_sha256(tmp_path: Path) -> None:
    content = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(content)
    assert sha256(tmp_path / "file") == hashlib.sha256(content).hexdigest()
    (tmp_path / "empty").touch()
    assert sha256(tmp_path / "empty").startswith("e3b0c44298fc1c14")


def test_check(tmp_path: Path) -> None:
    for name in (*layout.FILES, "b"):
        (tmp_path / name).write_text(name)
    sums = {path.name: sha256(path) for path in tmp_path.iterdir()}
    check(tmp_path, sums)
    (tmp_path / "b").write_text("B")
    with pytest.raises(BundleError, match="/b: sha256 differs"):
        check(tmp_path, sums)
    (tmp_path / "b").unlink()
    with pytest.raises(BundleError, match="/b: missing"):
        check(tmp_path, sums)
    (tmp_path / "b").mkdir()
    with pytest.raises(BundleError, match="/b: missing"):
        check(tmp_path, sums)
    for name in layout.FILES:
        with pytest.raises(BundleError, match=f"the manifest has no checksum of {name}"):
            check(tmp_path, {other: sums[other] for other in sums if other != name})


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle in a folder with another name."""
    return write_bundle(tmp_path / "written", Spec(name="sea")).rename(tmp_path / "staging")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    return tmp_path / "models"


def test_versions_follow_each_other(bundle: Path, repository: Path) -> None:
    for version in ("1", "2"):
        folder = publish(bundle, repository)
        assert folder == repository / "sea" / version
        found = manifest.read(folder)
        assert (found.name, found.version) == ("sea", version)
        checksums.check(folder, found.files)
    assert publish(bundle, repository, name="wave", version="7") == repository / "wave" / "7"
    assert publish(repository / "sea" / "1", repository) == repository / "sea" / "3"
    assert manifest.read(bundle).version == "1"


def test_nothing_else_of_the_manifest_changes(bundle: Path, repository: Path) -> None:
    (bundle / "notes.txt").write_text("no part of it")
    folder = publish(bundle, repository, version="2")
    before, after = (json.loads((at / layout.MANIFEST).read_text()) for at in (bundle, folder))
    assert after == {**before, "version": "2"}
    assert {path.name for path in folder.iterdir()} == {*layout.FILES, layout.MANIFEST}


def test_a_version_that_exists_is_kept(bundle: Path, repository: Path) -> None:
    folder = publish(bundle, repository)
    (folder / layout.MANIFEST).write_text("theirs")
    # A rename would replace an empty folder.
    (repository / "sea" / "2").mkdir()
    for version in ("1", "2"):
        with pytest.raises(BundleError, match="exists already; bundles are never changed"):
            publish(bundle, repository, version=version)
    assert list((repository / "sea" / "2").iterdir()) == []
    assert (folder / layout.MANIFEST).read_text() == "theirs"


@pytest.mark.parametrize("file", [layout.WEIGHTS, layout.MANIFEST])
def test_damaged_bundle_leaves_no_file(bundle: Path, repository: Path, file: str) -> None:
    (bundle / file).write_bytes(b"damaged")
    with pytest.raises(BundleError, match=f"staging/{file}: "):
        publish(bundle, repository)
    assert not repository.exists()


@pytest.mark.parametrize("given", [{"name": "../sea"}, {"version": "0"}, {"version": "latest"}])
def test_bad_names(bundle: Path, repository: Path, given: dict[str, str]) -> None:
    with pytest.raises(BundleError, match="expected"):
        publish(bundle, repository, **given)
    assert not repository.exists()


def test_version_appears_only_when_complete(
    bundle: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(bundle, repository)
    seen: list[list[str]] = []
    copy = shutil.copyfile

    def watched(source: Path, target: Path) -> None:
        copy(source, target)
        seen.append(layout.versions(repository, "sea"))

    monkeypatch.setattr(placement.shutil, "copyfile", watched)
    publish(bundle, repository)
    assert seen == [["1"]] * len(layout.FILES)
    assert layout.versions(repository, "sea") == ["1", "2"]


def test_failed_copy_leaves_the_repository_unchanged(
    bundle: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError("No space left on device")

    publish(bundle, repository)
    monkeypatch.setattr(placement.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        publish(bundle, repository, name="wave")
    assert [path.name for path in repository.iterdir()] == ["sea"]
