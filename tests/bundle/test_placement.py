from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from foretell.bundle import checksums, layout, manifest, placement
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import publish
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """One in a folder that says nothing of it."""
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
    # A folder that is empty could be renamed over.
    (repository / "sea" / "2").mkdir()
    for version in ("1", "2"):
        with pytest.raises(BundleError, match="exists already; bundles are never changed"):
            publish(bundle, repository, version=version)
    assert list((repository / "sea" / "2").iterdir()) == []
    assert (folder / layout.MANIFEST).read_text() == "theirs"


@pytest.mark.parametrize("file", [layout.WEIGHTS, layout.MANIFEST])
def test_a_damaged_bundle_leaves_nothing(bundle: Path, repository: Path, file: str) -> None:
    (bundle / file).write_bytes(b"damaged")
    with pytest.raises(BundleError, match=f"staging/{file}: "):
        publish(bundle, repository)
    assert not repository.exists()


@pytest.mark.parametrize("given", [{"name": "../sea"}, {"version": "0"}, {"version": "latest"}])
def test_bad_names(bundle: Path, repository: Path, given: dict[str, str]) -> None:
    with pytest.raises(BundleError, match="expected"):
        publish(bundle, repository, **given)
    assert not repository.exists()


def test_nobody_sees_it_before_it_is_whole(
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


def test_a_copy_that_fails_leaves_what_was_there(
    bundle: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(source: Path, target: Path) -> None:
        raise OSError("No space left on device")

    publish(bundle, repository)
    monkeypatch.setattr(placement.shutil, "copyfile", full)
    with pytest.raises(OSError, match="No space left"):
        publish(bundle, repository, name="wave")
    assert [path.name for path in repository.iterdir()] == ["sea"]
