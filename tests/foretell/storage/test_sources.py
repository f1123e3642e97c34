"""The bundle that a command line names, in a folder or in object storage."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest

from foretell.bundle import layout, manifest
from foretell.bundle.errors import BundleError
from foretell.storage.errors import StorageError
from foretell.storage.location import open_location
from foretell.storage.repository import publish
from foretell.storage.sources import find_bundle, pinned
from tests.support.bundles import Spec, write_bundle


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with versions 9 and 10 of a model, below a folder with an @ in its name."""
    folder = tmp_path / "of@me"
    for version in ("9", "10"):
        write_bundle(folder, Spec(version=version))
    return folder


@pytest.fixture
def url(bucket: str, folder: Path) -> str:
    """The same in object storage, with another model."""
    location = open_location(f"{bucket}/models")
    for name, version in (("repeat", "9"), ("repeat", "10"), ("other", "1")):
        publish(folder / "repeat" / "10", location, name=name, version=version)
    return location.url


def test_folder(folder: Path) -> None:
    for text, version in (("repeat", "10"), ("repeat@9", "9"), ("repeat/9", "9")):
        found = find_bundle(f"{folder}/{text}")
        assert found == folder / "repeat" / version
        assert pinned(text, found) is None
    for text, said in (
        ("repeat@2", "there is no bundle"),
        ("other", "there is no bundle"),
        ("repeat@x", "expected a whole number"),
    ):
        with pytest.raises(BundleError, match=said):
            find_bundle(f"{folder}/{text}")


def test_url(url: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    newest = find_bundle(f"{url}/repeat", cache)
    about = manifest.read(newest)
    assert (about.name, about.version) == ("repeat", "10")
    # Nothing else is fetched.
    assert [path.parent for path in cache.rglob("manifest.json")] == [newest]
    for text in ("repeat/9", "repeat/9/", "repeat@9", "repeat@9/"):
        assert manifest.read(find_bundle(f"{url}/{text}", cache)).version == "9"
    assert newest.is_dir()
    for text in ("repeat", "repeat/10", "repeat@10"):
        there = pinned(f"{url}/{text}", newest)
        assert there == f"{url}/repeat@10"
        assert find_bundle(there, cache) == newest


def test_url_that_cannot_be_fetched(url: str, bucket: str, folder: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for text, said in (
        (f"{url}/nothing", "models/nothing: there is no bundle"),
        (f"{url}/repeat/8", "models/repeat/8: there is no bundle"),
        # Names may be numbers.
        (f"{bucket}/7", f"{bucket}/7: there is no bundle"),
        (f"{url}/repeat@x", "expected a whole number"),
        (f"{url}/no name", "model name 'no name'"),
        (bucket, "expected the URL of a model"),
    ):
        with pytest.raises(BundleError, match=said):
            find_bundle(text, cache)
    for text in ("s3://nowhere/repeat", "ftp://host/repeat"):
        with pytest.raises(StorageError, match=text.rpartition("/")[0]):
            find_bundle(text, cache)
    wanted = manifest.read(folder / "repeat" / "10").files[layout.WEIGHTS]
    obstore.put(open_location(url).store, f"blobs/{wanted}", b"damaged")
    with pytest.raises(BundleError, match=r"models: repeat/10/weights\.bin: "):
        find_bundle(f"{url}/repeat", cache)
