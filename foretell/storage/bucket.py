"""A repository in object storage, as servers and commands read it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import obstore

from foretell.bundle import layout
from foretell.bundle.placement import MakeSignature
from foretell.storage import repository
from foretell.storage.location import Location
from foretell.storage.remote import Version
from foretell.storage.repository import Contents


@dataclass(frozen=True)
class Bucket:
    """A repository in object storage.

    Attributes:
        location: Its place.
    """

    location: Location

    def __str__(self) -> str:
        return self.url

    @property
    def url(self) -> str:
        """URL without a trailing slash."""
        return self.location.url

    def of(self, name: str, rest: str = "") -> str:
        """URL of a model, or of a version or a file of it."""
        return self.location.of("/".join(filter(None, (name, rest))))

    def listing(self, *, partial: bool = False) -> BucketListing:  # noqa: ARG002
        """List the repository; one request lists all models."""
        return BucketListing(self.location, repository.list_contents(self.location))

    def check_whole(self) -> None:
        """Do nothing: the URL of a bucket names all versions."""

    def read_serving(self, name: str) -> bytes | None:
        """Read the file that says which version of a model serves; None without a file."""
        return _read(self.location, f"{name}/{layout.SERVING}")

    def write_serving(self, name: str, content: bytes | None) -> None:
        """Write that file; None removes it."""
        path = f"{name}/{layout.SERVING}"
        with self.location.naming(path):
            if content is None:
                obstore.delete(self.location.store, [path])
            else:
                obstore.put(self.location.store, path, content)

    def publish(
        self,
        bundle: Path,
        *,
        name: str | None,
        version: str | None,
        sign: MakeSignature | None = None,
    ) -> str:
        """Copy a bundle into the repository; servers see the whole bundle or nothing."""
        place = self.location
        return repository.publish(bundle, place, name=name, version=version, sign=sign)


@dataclass(frozen=True)
class BucketListing:
    """The content of a repository at one time."""

    location: Location
    contents: Contents

    @property
    def versions(self) -> Collection[Version]:
        """All versions with a manifest."""
        return self.contents.versions

    @property
    def serving(self) -> Mapping[str, str]:
        """Tags of the files that say which version of a model serves, by name."""
        return {name: entry.tag for name, entry in self.contents.serving.items()}

    @property
    def failures(self) -> Mapping[str, str]:
        """Nothing: all models can be listed, or none."""
        return {}

    def tags(self, wanted: Iterable[Version]) -> dict[Version, str]:
        """Tags of versions; a tag changes when the manifest is written again."""
        return {key: self._tag(key) for key in wanted}

    def _tag(self, key: Version) -> str:
        beside = sorted(self.contents.beside.get(key, {}).items())
        return " ".join([self.contents.versions[key].tag, *(entry.tag for _, entry in beside)])

    def open(self, key: Version, tag: str | None = None) -> BucketVersion:  # noqa: ARG002
        """Open a version; without a request."""
        return BucketVersion(self.location, self.contents, key)


@dataclass(frozen=True)
class BucketVersion:
    """A version in a repository."""

    location: Location
    contents: Contents
    key: Version

    @property
    def place(self) -> str:
        """URL of the version."""
        return self.location.of("/".join(self.key))

    @property
    def at(self) -> datetime:
        """Time at which the version was written."""
        return self.contents.versions[self.key].at

    def manifest(self) -> bytes:
        """Read the content of the manifest."""
        return b"".join(self.location.read(repository.manifest_path(*self.key)))

    def beside(self, file: str) -> bytes | None:
        """Read one of `layout.BESIDE`; None if the version has no such file."""
        if file not in self.contents.beside.get(self.key, {}):
            return None
        return _read(self.location, "/".join((*self.key, file)))

    def pieces(self, file: str, wanted: str) -> Iterator[bytes]:
        """Read a file that the manifest names, in pieces."""
        return repository.read_blob(self.location, wanted, "/".join((*self.key, file)))

    def missing(self, files: Mapping[str, str]) -> list[str]:
        """Names of files, given with their checksums, that are not there."""
        there = self.contents.blobs.keys() | self.contents.trash.keys()
        return [file for file, own in files.items() if own not in there]

    def size(self, files: Mapping[str, str]) -> int:
        """Size of the manifest and of those files that are there, in bytes."""
        blobs = self.contents.blobs
        found = sum(blobs[own].size for own in files.values() if own in blobs)
        return self.contents.versions[self.key].size + found


def _read(location: Location, path: str) -> bytes | None:
    """Read a small object; None if it does not exist."""
    with location.naming(path):
        try:
            return bytes(obstore.get(location.store, path).bytes())
        except FileNotFoundError:
            return None
