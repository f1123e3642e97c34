"""Signatures in object storage: they are published before the manifest, and mirrored with it."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from pyarrow import parquet

from foretell.batch import workers
from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.signing.sign import Signer, sign
from foretell.storage.location import Location, open_location
from foretell.storage.remote import open_remote
from tests.foretell.batch.tables import forecasts, here, many
from tests.foretell.signing.keys import Pair, write_pair
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.command import done, refused

BODY = {"inputs": [{"series": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], "frequency": "H"}]}


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return write_pair(tmp_path, "own")


@pytest.fixture
def bundle(tmp_path: Path, pair: Pair) -> Path:
    bundle = write_bundle(tmp_path / "written", Spec())
    sign(bundle, pair.private)
    return bundle


@pytest.fixture
def location(bucket: str) -> Location:
    return open_location(f"{bucket}/models")


def answered(client: Client) -> str:
    answer = client.forecast({"model": "repeat", **BODY})
    assert answer.status_code == 200, answer.text
    version: str = answer.json()["model_version"]
    return version


def test_signature_is_published_and_mirrored(
    bundle: Path, location: Location, pair: Pair, tmp_path: Path
) -> None:
    open_remote(location.url).publish(bundle, name=None, version=None)
    stored = obstore.get(location.store, f"repeat/1/{layout.SIGNATURE}").bytes()
    assert bytes(stored) == (bundle / layout.SIGNATURE).read_bytes()
    settings = {"cache": tmp_path / "cache", "signed_by": (pair.public,)}
    with Client(location.url, **settings) as client:
        assert answered(client) == "1"


def test_unsigned_and_changed_versions_are_refused(
    bundle: Path, location: Location, pair: Pair, tmp_path: Path
) -> None:
    remote = open_remote(location.url)
    remote.publish(bundle, name=None, version=None)
    settings = {"cache": tmp_path / "cache", "signed_by": (pair.public,)}
    with Client(location.url, **settings) as client:
        unsigned = write_bundle(tmp_path / "unsigned", Spec())
        remote.publish(unsigned, name=None, version="2")
        client.repository.poll()
        assert "is not signed" in client.repository.registry.get("repeat", "2").refused
        signature = Signer(pair.private).signature
        remote.publish(unsigned, name=None, version="3", sign=signature)
        client.repository.poll()
        assert answered(client) == "3"
        # Another signature alone changes the version, too.
        another = write_pair(tmp_path, "other")
        sign(bundle, another.private)
        place = f"repeat/3/{layout.SIGNATURE}"
        obstore.put(location.store, place, (bundle / layout.SIGNATURE).read_bytes())
        client.repository.poll()
        assert "accepted key" in client.repository.registry.get("repeat", "3").refused
        assert answered(client) == "3"


def test_batch_refuses_unsigned_versions(
    bundle: Path,
    location: Location,
    pair: Pair,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(workers, "run_parts", lambda work, parts, workers: here(work, parts))
    parquet.write_table(many(3), tmp_path / "given.parquet")
    remote = open_remote(location.url)
    remote.publish(bundle, name=None, version=None)
    remote.publish(write_bundle(tmp_path / "unsigned", Spec()), name=None, version="2")
    words = ["batch", tmp_path / "given.parquet", tmp_path / "out", "--device=cpu"]
    words += [f"--cache={tmp_path / 'cache'}", f"--signed-by={pair.public}"]
    message = refused(*words, f"--model={location.url}/repeat")
    assert "repeat/2: is not signed" in message
    done(*words, f"--model={location.url}/repeat@1")
    assert set(forecasts(tmp_path)["version"].to_pylist()) == {"1"}


def test_publish_refuses_to_lose_a_signature(bundle: Path, location: Location) -> None:
    remote = open_remote(location.url)
    with pytest.raises(BundleError, match="--sign-with signs it again"):
        remote.publish(bundle, name="sea", version=None)
    assert not remote.listing().versions


def test_left_signature_is_not_replaced(bundle: Path, location: Location, tmp_path: Path) -> None:
    """The next version has another number; an unsigned bundle does not take the signature over."""
    remote, place = open_remote(location.url), f"repeat/1/{layout.SIGNATURE}"
    obstore.put(location.store, place, b"of an interrupted publication")
    unsigned = write_bundle(tmp_path / "unsigned", Spec())
    for each in (bundle, unsigned):
        with pytest.raises(BundleError, match=r"model\.sig: exists already; publish another"):
            remote.publish(each, name=None, version="1")
    assert not remote.listing().versions
    assert remote.publish(unsigned, name=None, version=None) == f"{location}/repeat/2"
    obstore.delete(location.store, [place])
    assert remote.publish(unsigned, name=None, version="1") == f"{location}/repeat/1"
