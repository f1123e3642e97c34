"""Places in object storage, and the bundles that a command line names there or in a folder."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import obstore
import pytest

from foretell.bundle import layout, manifest
from foretell.bundle.errors import BundleError
from foretell.storage import location as place
from foretell.storage.errors import StorageError
from foretell.storage.location import Location, open_location
from foretell.storage.repository import publish
from foretell.storage.sources import find_bundle, pinned
from tests.support.bundles import Spec, write_bundle
from tests.support.process import free_port


def test_paths_are_relative_to_the_prefix(bucket: str) -> None:
    location = open_location(f"{bucket}/models/all/")
    assert str(location) == f"{bucket}/models/all"
    assert location.of("a/1") == f"{bucket}/models/all/a/1"
    obstore.put(location.store, "a/1", b"here")
    whole = open_location(f"{bucket}/")
    assert str(whole) == bucket
    assert bytes(obstore.get(whole.store, "models/all/a/1").bytes()) == b"here"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://bucket", "expected s3://bucket/prefix, gs://… or az://…"),
        ("models/energy", "expected s3://bucket/prefix"),
        ("s3:///models", "expected the name of a bucket after s3://"),
        ("gs://key:secret@bucket", "expected the name of a bucket after gs://"),
        ("az://container", "Account must be specified; .* AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_invalid_url_is_refused(url: str, message: str, environment: pytest.MonkeyPatch) -> None:
    with pytest.raises(StorageError, match=f"^{url}: .*{message}"):
        open_location(url)


@pytest.mark.parametrize(
    ("url", "variable"),
    [
        ("s3://bucket/models", "AWS_ENDPOINT_URL"),
        ("s3://bucket/models", "AWS_ENDPOINT"),
        ("gs://bucket/models", "GOOGLE_BASE_URL"),
        ("az://bucket/models", "AZURE_STORAGE_ENDPOINT"),
    ],
)
@pytest.mark.parametrize(
    "given",
    [
        *("minio:9000", "minio", "http://", "ftp://minio", "http://[::1", "http://minio:99999"),
        *("http://min io", f"http://{'a' * 64}.test", "http://a..test"),
    ],
)
def test_invalid_endpoint_is_refused(
    url: str, variable: str, given: str, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv(variable, given)
    expected = f"{url}: {variable}: expected an address such as http://localhost:9000, got"
    with pytest.raises(StorageError, match=f"^{re.escape(expected)}"):
        open_location(url)


def test_other_clouds(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("AZURE_STORAGE_ACCOUNT_NAME", "someone")
    environment.setenv("AZURE_STORAGE_ACCOUNT_KEY", "a2V5")
    assert str(open_location("az://container/models")) == "az://container/models"
    assert str(open_location("gs://bucket")) == "gs://bucket"


def listing(location: Location) -> object:
    return obstore.list(location.store).collect()


def failure(url: str, ask: Callable[[Location], object] = listing, path: str = "") -> str:
    """Messages of requests that the storage refuses."""

    def request() -> None:
        location = open_location(url)
        with location.naming(path):
            ask(location)

    with pytest.raises(StorageError) as raised:
        request()
    # One line, without the XML of the answer and the state of the client.
    assert "\n" not in str(raised.value)
    assert raised.value.__suppress_context__
    return str(raised.value)


def test_missing_buckets_and_objects_are_named(bucket: str) -> None:
    message = failure("s3://nowhere/models")
    assert message == "s3://nowhere/models: NoSuchBucket: The specified bucket does not exist"
    message = failure(bucket, lambda location: obstore.get(location.store, "a/b"), "a/b")
    assert message.startswith(f"{bucket}/a/b: NoSuchKey: The")


def test_credentials_that_are_incomplete_are_named(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_ACCESS_KEY_ID")
    message = failure("s3://bucket")
    assert message.startswith("s3://bucket: Generic S3 error: Missing AccessKeyId; credentials are")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in message


def test_server_that_does_not_listen(environment: pytest.MonkeyPatch) -> None:
    environment.setitem(place._RETRY, "max_retries", 1)
    environment.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    assert failure("s3://bucket") == "s3://bucket: error sending request (Connection refused)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with versions 9 and 10 of a model, below a folder with an @ in its name."""
    folder = tmp_path / "of@me"
    for version in ("9", "10"):
        write_bundle(folder, Spec(version=version))
    return folder


@pytest.fixture
def url(bucket: str, folder: Path) -> str:
    """A repository in object storage, with another model."""
    location = open_location(f"{bucket}/models")
    for name, version in (("repeat", "9"), ("repeat", "10"), ("other", "1")):
        publish(folder / "repeat" / "10", location, name=name, version=version)
    return location.url


def test_bundle_of_a_folder(folder: Path) -> None:
    for text, version in (("repeat", "10"), ("repeat@9", "9"), ("repeat/9", "9")):
        found = find_bundle(f"{folder}/{text}")
        assert found == folder / "repeat" / version
        assert pinned(text, found) is None
    for text, message in (
        ("repeat@2", "there is no bundle"),
        ("other", "there is no bundle"),
        ("repeat@x", "expected a whole number"),
    ):
        with pytest.raises(BundleError, match=message):
            find_bundle(f"{folder}/{text}")


def test_bundle_of_a_url(url: str, tmp_path: Path) -> None:
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


def test_bundles_that_cannot_be_fetched_are_refused(
    url: str, bucket: str, folder: Path, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    for text, message in (
        (f"{url}/nothing", "models/nothing: there is no bundle"),
        (f"{url}/repeat/8", "models/repeat/8: there is no bundle"),
        # Names may be numbers.
        (f"{bucket}/7", f"{bucket}/7: there is no bundle"),
        (f"{url}/repeat@x", "expected a whole number"),
        (f"{url}/no name", "model name 'no name'"),
        (bucket, "expected the URL of a model"),
    ):
        with pytest.raises(BundleError, match=message):
            find_bundle(text, cache)
    for text in ("s3://nowhere/repeat", "ftp://host/repeat"):
        with pytest.raises(StorageError, match=text.rpartition("/")[0]):
            find_bundle(text, cache)
    wanted = manifest.read(folder / "repeat" / "10").files[layout.WEIGHTS]
    obstore.put(open_location(url).store, f"blobs/{wanted}", b"damaged")
    with pytest.raises(BundleError, match=r"models: repeat/10/weights\.bin: "):
        find_bundle(f"{url}/repeat", cache)
