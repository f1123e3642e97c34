"""Models of object storage, of a server of S3 on this machine."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from click.testing import CliRunner
from pyarrow import parquet

from foretell.batch import workers
from foretell.batch.models import find_bundle, pinned
from foretell.bundle import manifest
from foretell.bundle.errors import BundleError
from foretell.commands.batch import command
from foretell.storage.errors import StorageError
from foretell.storage.location import open_location
from foretell.storage.push import push
from tests.foretell.batch.tables import forecasts, here, many
from tests.foretell.storage.conftest import bucket, environment, s3
from tests.support.bundles import Spec, write_bundle

__all__ = ["bucket", "environment", "s3"]


@pytest.fixture
def repository(bucket: str, tmp_path: Path) -> str:
    """The URL of one with versions 9 and 10 of a model, and another model."""
    location = open_location(f"{bucket}/models")
    bundle = write_bundle(tmp_path / "models", Spec())
    for name, version in (("repeat", "9"), ("repeat", "10"), ("other", "1")):
        push(bundle, location, name=name, version=version)
    return location.url


def test_which_is_fetched(repository: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    newest = find_bundle(f"{repository}/repeat", cache)
    about = manifest.read(newest)
    assert (about.name, about.version) == ("repeat", "10")
    # Nothing else was wanted.
    assert [path.parent for path in cache.rglob("manifest.json")] == [newest]
    for url in ("repeat/9", "repeat/9/", "repeat@9", "repeat@9/"):
        assert manifest.read(find_bundle(f"{repository}/{url}", cache)).version == "9"
    assert newest.is_dir()
    for url in ("repeat", "repeat/10", "repeat@10"):
        there = pinned(f"{repository}/{url}", newest)
        assert there == f"{repository}/repeat@10"
        assert find_bundle(there, cache) == newest
    assert pinned("models/repeat", newest) is None


def test_what_cannot_be_fetched(repository: str, bucket: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for url, told in (
        (f"{repository}/nothing", "models/nothing: there is no bundle"),
        (f"{repository}/repeat/8", "models/repeat/8: there is no bundle"),
        # Names may be numbers.
        (f"{bucket}/7", f"{bucket}/7: there is no bundle"),
        (f"{repository}/repeat@x", "expected a whole number"),
        (f"{repository}/no name", "model name 'no name'"),
        (bucket, "expected the URL of a model"),
    ):
        with pytest.raises(BundleError, match=told):
            find_bundle(url, cache)
    for url in ("s3://nowhere/repeat", "ftp://host/repeat"):
        with pytest.raises(StorageError, match=url.rpartition("/")[0]):
            find_bundle(url, cache)
    store = open_location(repository).store
    obstore.put(store, "repeat/10/weights.bin", b"damaged")
    with pytest.raises(BundleError, match=r"models: repeat/10/weights\.bin: "):
        find_bundle(f"{repository}/repeat", cache)


def test_a_table_is_forecast_with_it(
    repository: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "run_parts", lambda work, parts, workers: here(work, parts))
    monkeypatch.setenv("FORETELL_CACHE", str(tmp_path / "cache"))
    parquet.write_table(many(3), tmp_path / "given.parquet")
    words = [str(tmp_path / "given.parquet"), str(tmp_path / "out"), "--device", "cpu"]
    done = CliRunner().invoke(command, [*words, "--model", f"{repository}/repeat"])
    assert done.exit_code == 0, done.output
    assert set(forecasts(tmp_path)["version"].to_pylist()) == {"10"}
    assert list((tmp_path / "cache").rglob("manifest.json"))
    done = CliRunner().invoke(command, [*words, "--model", f"{repository}/nothing"])
    assert done.exit_code == 2
    assert "foretell batch: " in done.output
    assert "models/nothing: there is no bundle" in done.output
