"""Locations in object storage: `s3://bucket/prefix`, `gs://bucket/…`, `az://container/…`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import obstore
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import AzureStore, GCSStore, S3Store

from foretell.storage.errors import StorageError

if TYPE_CHECKING:
    # These types exist only in the stubs.
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

_URL = re.compile(r"([^:/]+)://([^/]*)(?:/(.*))?", re.DOTALL)
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9._-]*")
_ADDRESS = re.compile(r"https?://\S+", re.IGNORECASE)
# The usual credentials of each client, for messages.
_CREDENTIALS = {
    "s3": "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a role of this machine",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS, or an account of this machine",
    "az": "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY, or an identity",
}
_ENDPOINTS = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}
# Retries end after seconds, since a server can go on with its local copy.
_RETRY: RetryConfig = {"max_retries": 4, "retry_timeout": timedelta(seconds=20)}
_CLIENT: ClientConfig = {
    "connect_timeout": timedelta(seconds=5),
    "read_timeout": timedelta(seconds=20),
    # Time for a whole file, which may be gigabytes.
    "timeout": timedelta(minutes=10),
}


@dataclass(frozen=True)
class Location:
    """A prefix of a bucket.

    Attributes:
        url: URL without a trailing slash.
        store: Client of the bucket, with paths relative to the prefix.
    """

    url: str
    store: ObjectStore

    def __str__(self) -> str:
        return self.url

    def of(self, path: str) -> str:
        """URL of an object."""
        return f"{self.url}/{path}"

    @contextmanager
    def naming(self, path: str = "") -> Iterator[None]:
        """Convert errors of obstore to one line with the place.

        Args:
            path: Path of an object; empty for the whole prefix.

        Raises:
            StorageError: obstore raised an error.
        """
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            place = self.of(path) if path else self.url
            raise StorageError(f"{place}: {_reason(error, self.url.partition(':')[0])}") from None

    def read(self, path: str) -> Iterator[bytes]:
        """Read an object in pieces.

        Raises:
            StorageError: the object does not exist, or the connection broke.
        """
        with self.naming(path):
            yield from map(bytes, obstore.get(self.store, path))


def open_location(url: str) -> Location:
    """Open a location in object storage, without a request.

    Credentials and endpoints are read from the environment: `AWS_*`, `GOOGLE_*`, `AZURE_*`.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; the prefix may
            be empty.

    Raises:
        StorageError: the URL is invalid, or variables of the environment are missing or invalid.
    """
    found = _URL.fullmatch(url)
    if found is None or found[1] not in _CREDENTIALS:
        raise StorageError(f"{url}: expected s3://bucket/prefix, gs://… or az://…")
    scheme, bucket, prefix = found[1], found[2], (found[3] or "").strip("/")
    if not _BUCKET.fullmatch(bucket):
        raise StorageError(f"{url}: expected the name of a bucket after {scheme}://")
    place = "/".join(filter(None, (f"{scheme}://{bucket}", prefix)))
    for variable in _ENDPOINTS[scheme]:
        if (given := os.environ.get(variable)) and not _is_endpoint(given):
            raise StorageError(
                f"{place}: {variable}: expected an address such as http://localhost:9000, "
                f"got {given!r}"
            )
    try:
        return Location(place, _store(scheme, bucket, prefix))
    except (BaseError, OSError, ValueError) as error:
        raise StorageError(f"{place}: {_reason(error, scheme)}") from None


def _store(scheme: str, bucket: str, prefix: str) -> ObjectStore:
    if scheme == "gs":
        return GCSStore(bucket, prefix=prefix, client_options=_CLIENT, retry_config=_RETRY)
    if scheme == "az":
        return AzureStore(bucket, prefix=prefix, client_options=_CLIENT, retry_config=_RETRY)
    # An endpoint with http is set on purpose: a server on the same machine or network.
    plain = any(os.environ.get(name, "").startswith("http://") for name in _ENDPOINTS["s3"])
    client: ClientConfig = {**_CLIENT, "allow_http": plain}
    return S3Store(bucket, prefix=prefix, client_options=client, retry_config=_RETRY)


def _is_endpoint(text: str) -> bool:
    """Whether a text is an address; obstore panics if it is not."""
    try:
        found = urlsplit(text)
        host = (found.hostname or "").encode("idna")
        return _ADDRESS.fullmatch(text) is not None and bool(host) and found.port != 0
    except ValueError:
        return False


def _reason(error: Exception, scheme: str) -> str:
    """The reason in an error of obstore, without the full response and client state."""
    text, _, details = str(error).partition("\n\nDebug source:")
    status = re.search(r"status code: (\d+ [^:<\n]*)", text)
    answer = re.search(r"<Code>(.*?)</Code>\s*<Message>(.*?)</Message>", text, re.DOTALL)
    if answer is not None:
        reason = f"{answer[1]}: {answer[2]}"
    elif status is not None:
        reason = status[1]
    else:
        reason = text.rpartition(" - ")[2].partition("\n")[0].removeprefix("HTTP error: ")
        if "TimedOut" in details:
            reason += " (no answer in time)"
        elif (cause := re.search(r'message: "(.*?)"', details)) is not None:
            reason += f" ({cause[1]})"
    if _is_about_credentials(error, text):
        return f"{reason}; credentials are read from {_CREDENTIALS[scheme]}"
    return reason


def _is_about_credentials(error: Exception, text: str) -> bool:
    if isinstance(error, PermissionDeniedError | UnauthenticatedError):
        return True
    signs = ("code: 401", "code: 403", "Missing", "Account must", "token", "169.254.169.254")
    return any(sign in text for sign in signs)
