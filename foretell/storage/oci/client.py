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
from typing import Any, NamedTuple
from urllib.parse import urljoin

import httpx

from foretell.bundle.manifest import digest_of
from foretell.storage.errors import StorageError
from foretell.storage.oci import bodies, credentials
from foretell.storage.oci.auth import RegistryAuth, refused, same_server
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
        tokens = httpx.Client(timeout=_TIMES, follow_redirects=False)
        self._http = httpx.Client(
            auth=RegistryAuth(reference.host, reference.endpoint, tokens),
            timeout=_TIMES,
            # httpx drops `Authorization` when a redirect leads to another server.
            follow_redirects=True,
            max_redirects=5,
        )
        for each in (self._http, tokens):
            each.headers.update({"User-Agent": "foretell", "Accept-Encoding": "identity"})
            each.event_hooks = {"request": [self._check_scheme]}
            # Some registries take a client with cookies for a browser.
            each.cookies.jar.set_policy(DefaultCookiePolicy(allowed_domains=[]))
            weakref.finalize(self, each.close)

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
                tags = bodies.fields(response, place).get("tags", False)
                if not isinstance(tags, list | None):
                    raise StorageError(f"{place}: the answer is not that of a registry")
                found.extend(map(str, tags or ()))
                following = response.links.get("next", {}).get("url")
            if following is None:
                return found
            url = self._next_page(url, following, place)
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
            return digest_of(self.manifest(tag))
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
            content = bodies.small(response, place)
        if ":" in wanted and digest_of(content) != wanted:
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
        found, size = sha256(), 0
        with self._send("GET", f"{self._base}/blobs/{blob.digest}", place) as response:
            for piece in bodies.pieces(response, place, _BLOB_SECONDS):
                found.update(piece)
                size += len(piece)
                if size > blob.size:
                    break
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
                url = self._upload(response, blob, place)
            try:
                with self._send("PUT", url, place, headers, content, timeout=_COMMIT, repeat=False):
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
                    raise _TemporaryError(f"{place}: {bodies.unreachable(error)}") from None
            # Headers may have addresses and texts that are not valid.
            except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
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
        status, reason = response.status_code, _reason(response, place)
        host = self._reference.host
        if status == httpx.codes.NOT_FOUND:
            raise MissingError(f"{place}: {reason}")
        is_own = same_server(response.url, httpx.URL(self._base))
        # A login is for the registry, not for a server to which it leads.
        reason = reason if is_own else f"{response.url.host}: {reason}"
        if is_own and status == httpx.codes.UNAUTHORIZED:
            raise StorageError(f"{place}: {refused(host, credentials.find(host))}")
        if is_own and status == httpx.codes.FORBIDDEN:
            raise StorageError(
                f"{place}: {reason}; run `docker login {host}` as a user with this permission"
            )
        kind = _TemporaryError if status in _TEMPORARY else StorageError
        raise kind(f"{place}: {reason}")

    def _upload(self, response: httpx.Response, blob: Blob, place: str) -> str:
        """Address to which the registry lets a blob be uploaded."""
        location = response.headers.get("location", "")
        try:
            target = httpx.URL(urljoin(self._base, location))
        except (httpx.InvalidURL, ValueError) as error:
            raise StorageError(f"{place}: the registry's upload address: {error}") from None
        return str(target.copy_merge_params({"digest": blob.digest}))

    def _next_page(self, url: str, following: str, place: str) -> str:
        """Address of the next page of tags; it must be at the registry."""
        try:
            found = urljoin(url, following)
        except ValueError:
            found = following
        if not found.startswith(f"{self._reference.endpoint}/"):
            raise StorageError(f"{place}: the registry's list of tags goes on at another server")
        return found

    def _check_scheme(self, request: httpx.Request) -> None:
        """Refuse requests without TLS to a token server, or after a redirect."""
        if request.url.scheme != "https" and self._base.startswith("https:"):
            raise StorageError(
                f"{self._reference.url}: the registry leads to {request.url.host} without TLS"
            )


class _TemporaryError(StorageError):
    """The registry cannot be reached, or failed."""


def _reason(response: httpx.Response, place: str) -> str:
    """The registry's own words, or the status."""
    status = f"{response.status_code} {response.reason_phrase}"
    try:
        errors: Any = bodies.fields(response, place)["errors"]
        [first, *_] = errors
        return f"{status}: {first['code']}: {first['message']}"
    except (StorageError, ValueError, KeyError, TypeError):
        return status
