"""A client of one repository in a registry, by the OCI distribution specification.

PyPI's `oras` would do most of this. But its requests have no time limits, it compares no digests,
and it downloads into files only.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http.cookiejar import DefaultCookiePolicy
from typing import NamedTuple
from urllib.parse import urljoin

import httpx

from foretell.storage.errors import StorageError
from foretell.storage.oci import credentials
from foretell.storage.oci.auth import RegistryAuth, refused
from foretell.storage.oci.media import MANIFEST, OTHERS
from foretell.storage.oci.reference import Reference

_TIMES = httpx.Timeout(20, connect=5)
# A registry may copy a file after its last byte has arrived.
_COMMIT = httpx.Timeout(300, connect=5)
# Time for a whole file, which may be gigabytes.
_BLOB_SECONDS = 600.0
# A request is repeated after these pauses, which a server can wait: it goes on with its local copy.
_PAUSES = (0.5, 2.0)
_TEMPORARY = {429, 500, 502, 503, 504}
_PIECE = 1024 * 1024
_MAX_MANIFEST_BYTES = 4 * 1024 * 1024
_MAX_PAGES = 1000
_ACCEPT = {"Accept": ", ".join((MANIFEST, *OTHERS))}


class MissingError(StorageError):
    """The registry has no such repository, tag or blob."""


class Blob(NamedTuple):
    """Digest and size in bytes of a blob."""

    digest: str
    size: int


class Client:
    """Requests to a model's repository in a registry; may be used from several threads."""

    def __init__(self, reference: Reference) -> None:
        self._reference = reference
        self._base = f"{reference.endpoint}/v2/{reference.path}"
        self._http = httpx.Client(
            auth=RegistryAuth(reference.host, reference.endpoint),
            timeout=_TIMES,
            # httpx drops `Authorization` when a redirect leads to another server.
            follow_redirects=True,
            max_redirects=5,
            headers={"User-Agent": "foretell", "Accept-Encoding": "identity"},
            event_hooks={"request": [self._check_scheme]},
        )
        # Some registries take a client with cookies for a browser.
        self._http.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        weakref.finalize(self, self._http.close)

    def tags(self) -> list[str]:
        """All tags of the repository.

        Raises:
            MissingError: there is no such repository.
            StorageError: the tags cannot be read.
        """
        found: list[str] = []
        url, place = f"{self._base}/tags/list?n=1000", self._reference.url
        for _ in range(_MAX_PAGES):
            with self._send("GET", url, place) as response:
                response.read()
                try:
                    found.extend(map(str, response.json()["tags"] or ()))
                except (ValueError, KeyError, TypeError):
                    raise StorageError(f"{place}: the answer is not that of a registry") from None
                following = response.links.get("next", {}).get("url")
            if following is None:
                return found
            url = self._own(urljoin(url, following), place)
        raise StorageError(f"{place}: more than {_MAX_PAGES} pages of tags")

    def digest(self, tag: str) -> str | None:
        """Digest of the manifest with a tag; None if there is no such tag.

        Raises:
            StorageError: the registry cannot be read.
        """
        url = f"{self._base}/manifests/{tag}"
        try:
            with self._send("HEAD", url, self._place(tag), headers=_ACCEPT) as response:
                if digest := response.headers.get("docker-content-digest"):
                    return str(digest)
            return _digest(self.manifest(tag))
        except MissingError:
            return None

    def manifest(self, wanted: str) -> bytes:
        """Read a manifest by its tag or digest; with a digest the content is compared.

        Raises:
            MissingError: there is no such manifest.
            StorageError: it cannot be read, or differs from the digest.
        """
        url, place = f"{self._base}/manifests/{wanted}", self._place(wanted)
        with self._send("GET", url, place, headers=_ACCEPT) as response:
            content = b""
            for piece in self._pieces(response, place):
                content += piece
                if len(content) > _MAX_MANIFEST_BYTES:
                    raise StorageError(f"{place}: the manifest is larger than 4 MiB")
        if ":" in wanted and _digest(content) != wanted:
            raise StorageError(f"{place}: the content differs from the digest")
        return content

    def blob(self, blob: Blob, place: str) -> Iterator[bytes]:
        """Read a blob in pieces, and compare it with its digest at the end.

        Args:
            blob: The blob.
            place: Its name for messages.

        Raises:
            StorageError: it cannot be read, or differs from the digest.
        """
        found, size, end = sha256(), 0, time.monotonic() + _BLOB_SECONDS
        with self._send("GET", f"{self._base}/blobs/{blob.digest}", place) as response:
            for piece in self._pieces(response, place):
                found.update(piece)
                size += len(piece)
                if size > blob.size:
                    break
                if time.monotonic() > end:
                    raise StorageError(f"{place}: not complete after {_BLOB_SECONDS:.0f} seconds")
                yield piece
        if size != blob.size or f"sha256:{found.hexdigest()}" != blob.digest:
            raise StorageError(f"{place}: the layer in the registry differs from its digest")

    def has(self, blob: Blob, place: str) -> bool:
        """Whether the repository has a blob."""
        try:
            with self._send("HEAD", f"{self._base}/blobs/{blob.digest}", place):
                return True
        except MissingError:
            return False

    def put_blob(self, blob: Blob, content: Iterable[bytes], place: str) -> None:
        """Write a blob, unless the repository has it.

        Args:
            blob: The blob.
            content: Its content in pieces; it may be read again after a failure.
            place: Its name for messages.

        Raises:
            StorageError: it cannot be written.
        """
        if self.has(blob, place):
            return
        headers = {"Content-Length": str(blob.size), "Content-Type": "application/octet-stream"}
        for last in (False, True):
            with self._send("POST", f"{self._base}/blobs/uploads/", place) as response:
                target = httpx.URL(urljoin(self._base, response.headers.get("location", "")))
            url = target.copy_merge_params({"digest": blob.digest})
            try:
                with self._send(
                    "PUT", str(url), place, headers, content, timeout=_COMMIT, repeat=False
                ):
                    return
            except _TemporaryError:
                # An interrupted upload begins anew.
                if last:
                    raise

    def put_manifest(self, tag: str, content: bytes) -> None:
        """Write a manifest after its blobs, with a tag.

        Raises:
            StorageError: it cannot be written.
        """
        url, headers = f"{self._base}/manifests/{tag}", {"Content-Type": MANIFEST}
        with self._send("PUT", url, self._place(tag), headers, content):
            pass

    def _place(self, wanted: str) -> str:
        return f"{self._reference.url}{'@' if ':' in wanted else ':'}{wanted}"

    @contextmanager
    def _send(
        self,
        method: str,
        url: str,
        place: str,
        headers: dict[str, str] | None = None,
        content: bytes | Iterable[bytes] | None = None,
        *,
        timeout: httpx.Timeout = _TIMES,
        repeat: bool = True,
    ) -> Iterator[httpx.Response]:
        """Send a request, and repeat it after temporary failures.

        Raises:
            MissingError: the registry answers 404.
            StorageError: the registry refuses the request, or cannot be reached.
        """
        request = self._http.build_request(
            method, url, headers=headers, content=content, timeout=timeout
        )
        pauses = _PAUSES if repeat else ()
        for pause in (*pauses, None):
            try:
                response = self._http.send(request, stream=True)
            except httpx.TransportError as error:
                if pause is None:
                    raise _TemporaryError(f"{place}: {_unreachable(error)}") from None
            except httpx.HTTPError as error:
                raise StorageError(f"{place}: {error}") from None
            else:
                if response.status_code not in _TEMPORARY or pause is None:
                    break
                response.close()
            time.sleep(pause)
        try:
            self._check(response, place)
            yield response
        finally:
            response.close()

    def _check(self, response: httpx.Response, place: str) -> None:
        if response.is_success:
            return
        status, reason = response.status_code, _reason(response)
        host = self._reference.host
        if status == httpx.codes.NOT_FOUND:
            raise MissingError(f"{place}: {reason}")
        if status == httpx.codes.UNAUTHORIZED:
            raise StorageError(f"{place}: {refused(host, credentials.find(host))}")
        if status == httpx.codes.FORBIDDEN:
            raise StorageError(
                f"{place}: {reason}; run `docker login {host}` as a user with this permission"
            )
        kind = _TemporaryError if status in _TEMPORARY else StorageError
        raise kind(f"{place}: {reason}")

    def _pieces(self, response: httpx.Response, place: str) -> Iterator[bytes]:
        try:
            yield from response.iter_raw(_PIECE)
        except httpx.TransportError as error:
            raise StorageError(f"{place}: {_unreachable(error)}") from None

    def _own(self, url: str, place: str) -> str:
        if not url.startswith(f"{self._reference.endpoint}/"):
            raise StorageError(f"{place}: the registry's list of tags goes on at another server")
        return url

    def _check_scheme(self, request: httpx.Request) -> None:
        """Refuse requests without TLS to a token server, or after a redirect."""
        if request.url.scheme != "https" and self._base.startswith("https:"):
            raise StorageError(
                f"{self._reference.url}: the registry leads to {request.url.host} without TLS"
            )


class _TemporaryError(StorageError):
    """The registry cannot be reached, or failed."""


def _digest(content: bytes) -> str:
    return f"sha256:{sha256(content).hexdigest()}"


def _reason(response: httpx.Response) -> str:
    """The registry's own words, or the status."""
    status = f"{response.status_code} {response.reason_phrase}"
    try:
        response.read()
        [first, *_] = response.json()["errors"]
        return f"{status}: {first['code']}: {first['message']}"
    except (httpx.HTTPError, ValueError, KeyError, TypeError):
        return status


def _unreachable(error: httpx.TransportError) -> str:
    if "WRONG_VERSION_NUMBER" in str(error):
        return "the registry does not speak TLS; oci+http:// is without"
    if "CERTIFICATE_VERIFY_FAILED" in str(error):
        return f"{error}; SSL_CERT_FILE names a file of further authorities"
    reason = str(error) or type(error).__name__
    return f"cannot be reached: {reason}"
