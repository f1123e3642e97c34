"""Repositories of bundles that are not folders on this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Protocol

from foretell.bundle import layout, manifest
from foretell.bundle.manifest import Manifest
from foretell.bundle.placement import MakeSignature
from foretell.storage.errors import StorageError

# Name and version of a bundle.
Version = tuple[str, str]
_BUCKETS = ("s3", "gs", "az")
_REGISTRIES = ("oci", "oci+http")


class StoredVersion(Protocol):
    """A version in a repository."""

    @property
    def place(self) -> str:
        """URL of the version."""

    @property
    def at(self) -> datetime:
        """Time at which the version was written."""

    def manifest(self) -> bytes:
        """Read the content of the manifest.

        Raises:
            StorageError: it cannot be read.
        """

    def beside(self, file: str) -> bytes | None:
        """Read one of `layout.BESIDE`; None if the version has no such file.

        Raises:
            StorageError: the file cannot be read.
        """

    def pieces(self, file: str, wanted: str) -> Iterator[bytes]:
        """Read a file that the manifest names, in pieces. The caller compares its checksum.

        Args:
            file: Name of the file.
            wanted: Checksum of the file, SHA-256.

        Raises:
            StorageError: the file does not exist, or the connection broke.
        """

    def missing(self, files: Mapping[str, str]) -> list[str]:
        """Names of files, given with their checksums, that are not there."""

    def size(self, files: Mapping[str, str]) -> int:
        """Size of the manifest and of those files that are there, in bytes."""


class Listing(Protocol):
    """The content of a repository at one time."""

    @property
    def versions(self) -> Collection[Version]:
        """All versions with a manifest."""

    @property
    def serving(self) -> Mapping[str, str]:
        """Tags of the files that say which version of a model serves, by name."""

    @property
    def failures(self) -> Mapping[str, str]:
        """Models of which something could not be listed, with the reasons."""

    def tags(self, wanted: Iterable[Version]) -> dict[Version, str]:
        """Tags of versions; a tag changes when the manifest is written again.

        A version that was removed after the listing may have none.

        Raises:
            StorageError: the tags cannot be read.
        """

    def open(self, key: Version, tag: str | None = None) -> StoredVersion:
        """Open a version.

        Args:
            key: Name and version.
            tag: Tag that the version must have; None for any.

        Raises:
            BundleError: it is not a bundle.
            StorageError: the version cannot be read.
        """


class Remote(Protocol):
    """A repository of bundles; `str()` gives its URL."""

    @property
    def url(self) -> str:
        """URL without a trailing slash."""

    def of(self, name: str, rest: str = "") -> str:
        """URL of a model, or of a version or a file of it, for messages."""

    def listing(self, *, partial: bool = False) -> Listing:
        """List the repository.

        Args:
            partial: Whether to note models that cannot be listed, if others can.

        Raises:
            StorageError: the repository cannot be listed; without `partial`, not completely.
        """

    def check_whole(self) -> None:
        """Check that the URL names all versions of its models, as a pin of one needs.

        Raises:
            StorageError: it names one version only.
        """

    def read_serving(self, name: str) -> bytes | None:
        """Read the file that says which version of a model serves; None without a file.

        Raises:
            StorageError: the file cannot be read.
        """

    def write_serving(self, name: str, content: bytes | None) -> None:
        """Write that file; None removes it.

        Raises:
            StorageError: the file cannot be written.
        """

    def publish(
        self,
        bundle: Path,
        *,
        name: str | None,
        version: str | None,
        sign: MakeSignature | None = None,
    ) -> str:
        """Copy a bundle into the repository; servers see the whole bundle or nothing.

        Args:
            bundle: Folder of the bundle.
            name: Served name; the bundle's own by default.
            version: Integer version; the newest plus one by default.
            sign: Signs the published bundle.

        Returns:
            URL of the version.

        Raises:
            BundleError: the bundle is damaged, name or version are not allowed, the version exists,
                or a signature would be lost.
            StorageError: the repository cannot be read or written.
        """


def open_remote(url: str) -> Remote:
    """Open a repository, without a request.

    Args:
        url: `s3://bucket/prefix`, `gs://bucket/prefix` or `az://container/prefix`; the prefix may
            be empty. Or models in registries, `oci://registry/path/name` with `:version` for one
            version, separated by commas.

    Raises:
        StorageError: the URL is invalid, or variables of the environment are missing or invalid.
    """
    # Each needs libraries that servers of folders do not need.
    if is_in_registry(url):
        from foretell.storage.oci.registry import Registry

        return Registry(url)
    if url.partition("://")[0] not in _BUCKETS:
        raise StorageError(
            f"{url}: expected s3://bucket/prefix, gs://…, az://… or oci://registry/path/name"
        )
    from foretell.storage.bucket import Bucket
    from foretell.storage.location import open_location

    return Bucket(open_location(url))


def is_in_registry(url: str) -> bool:
    """Whether a URL names models in registries."""
    return url.partition("://")[0] in _REGISTRIES


def read_manifest(version: StoredVersion) -> Manifest:
    """Read the manifest of a version.

    Raises:
        BundleError: the manifest is invalid.
        StorageError: the manifest cannot be read.
    """
    return manifest.parse(version.manifest(), f"{version.place}/{layout.MANIFEST}")
