from __future__ import annotations

import re
import socket
from collections.abc import Iterator

import obstore
import pytest

from foretell.storage import location as place
from foretell.storage.errors import StorageError
from foretell.storage.location import open_location


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
def test_url_of_no_place_is_refused(
    url: str, message: str, environment: pytest.MonkeyPatch
) -> None:
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
def test_endpoint_that_is_no_address_is_refused(
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


def ask(url: str) -> None:
    location = open_location(url)
    with location.naming():
        obstore.list(location.store).collect()


def failure(url: str) -> str:
    with pytest.raises(StorageError) as raised:
        ask(url)
    # A line, without the answer's XML and the client's state.
    assert "\n" not in str(raised.value)
    assert raised.value.__suppress_context__
    return str(raised.value)


def test_bucket_that_is_missing(environment: pytest.MonkeyPatch) -> None:
    said = failure("s3://nowhere/models")
    assert said == "s3://nowhere/models: NoSuchBucket: The specified bucket does not exist"


def test_object_that_is_missing(bucket: str) -> None:
    location = open_location(bucket)
    with (
        pytest.raises(StorageError, match=rf"^{bucket}/a/b: NoSuchKey: The"),
        location.naming("a/b"),
    ):
        obstore.get(location.store, "a/b")


def test_credentials_that_are_incomplete(environment: pytest.MonkeyPatch) -> None:
    environment.delenv("AWS_ACCESS_KEY_ID")
    said = failure("s3://bucket")
    assert said.startswith("s3://bucket: Generic S3 error: Missing AccessKeyId; credentials are")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said


@pytest.fixture
def closed() -> Iterator[str]:
    """An address at which no server listens."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{held.getsockname()[1]}"


def test_server_that_does_not_listen(closed: str, environment: pytest.MonkeyPatch) -> None:
    environment.setitem(place._RETRY, "max_retries", 1)
    environment.setenv("AWS_ENDPOINT_URL", closed)
    assert failure("s3://bucket") == "s3://bucket: error sending request (Connection refused)"
