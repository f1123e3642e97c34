"""A repository of bundles in object storage.

`<name>/<version>/manifest.json` is a version, `<name>/serving.json` says which version serves, and
`blobs/<sha256>` are the files that manifests name. `<name>/<version>/` also has the few small files
that a manifest does not name (`layout.BESIDE`). A manifest is written after all its files, and is
never replaced. Only `collect` removes files: it moves a file that no manifest names to
`trash/<sha256>`, and removes it from there after `GRACE`. If a version with this file is published
in between, readers find the file in the trash, and the next `collect` copies it back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.bundle.placement import MakeSignature, published
from foretell.storage.errors import StorageError
from foretell.storage.location import Location
from foretell.storage.remote import Version

GRACE = timedelta(hours=24)
# Largest age of a listing when a manifest is written or a file removed; far below `GRACE`.
FRESH_SECONDS = 3600.0
BLOBS, TRASH = "blobs", "trash"
_MANIFEST = re.compile(
    rf"({layout.NAME.pattern})/({layout.VERSION.pattern})/{re.escape(layout.MANIFEST)}"
)
_BESIDE = re.compile(
    rf"({layout.NAME.pattern})/({layout.VERSION.pattern})/"
    rf"({'|'.join(map(re.escape, layout.BESIDE))})"
)
_SERVING = re.compile(rf"({layout.NAME.pattern})/{re.escape(layout.SERVING)}")
_BLOB = re.compile(rf"({BLOBS}|{TRASH})/([0-9a-f]{{64}})")
# S3 takes 5 GB at once, or 10,000 parts.
_PART_BYTES, _PARTS_AT_A_TIME = 32 * 1024 * 1024, 4


class Entry(NamedTuple):
    """An object of a listing; the tag changes when the object is written again."""

    tag: str
    at: datetime
    size: int


class Contents(NamedTuple):
    """The manifests of a repository by name and version, and its files by their sha256.

    `serving` has the files that say which version of a model serves, by name, and `beside` the
    files in the folder of a version besides its manifest.
    """

    versions: dict[Version, Entry]
    blobs: dict[str, Entry]
    trash: dict[str, Entry]
    serving: dict[str, Entry]
    beside: dict[Version, dict[str, Entry]]


def list_contents(location: Location) -> Contents:
    """List a repository.

    Raises:
        StorageError: the repository cannot be listed completely.
    """
    contents = Contents({}, {}, {}, {}, {})
    places = {BLOBS: contents.blobs, TRASH: contents.trash}
    with location.naming():
        for some in obstore.list(location.store):
            for found in some:
                at, size = found["last_modified"], found["size"]
                entry = Entry(found["e_tag"] or f"{at.isoformat()} {size}", at, size)
                if match := _MANIFEST.fullmatch(found["path"]):
                    contents.versions[match[1], match[2]] = entry
                elif match := _SERVING.fullmatch(found["path"]):
                    contents.serving[match[1]] = entry
                elif match := _BESIDE.fullmatch(found["path"]):
                    contents.beside.setdefault((match[1], match[2]), {})[match[3]] = entry
                elif match := _BLOB.fullmatch(found["path"]):
                    places[match[1]][match[2]] = entry
    return contents


def manifest_path(name: str, version: str) -> str:
    """The path of the manifest of a version."""
    return f"{name}/{version}/{layout.MANIFEST}"


def read_manifest(location: Location, name: str, version: str) -> Manifest:
    """Read the manifest of a version.

    Raises:
        BundleError: the manifest is invalid.
        StorageError: the manifest cannot be read.
    """
    path = manifest_path(name, version)
    return manifest.parse(b"".join(location.read(path)), location.of(path))


def read_blob(location: Location, wanted: str, called: str) -> Iterator[bytes]:
    """Read a file in pieces.

    Args:
        location: The repository.
        wanted: Checksum of the file, SHA-256.
        called: Name of the file for messages.

    Raises:
        StorageError: the file does not exist, or the connection broke.
    """
    with location.naming(called):
        # `collect` may move the file between both places meanwhile.
        for place in (BLOBS, TRASH, BLOBS):
            try:
                found = obstore.get(location.store, f"{place}/{wanted}")
            except FileNotFoundError:
                continue
            yield from map(bytes, found)
            return
    raise StorageError(f"{location.of(called)}: {BLOBS}/{wanted} is missing")


def publish(
    bundle: Path,
    location: Location,
    *,
    name: str | None = None,
    version: str | None = None,
    sign: MakeSignature | None = None,
) -> str:
    """Copy a bundle into a repository; servers see the whole bundle or nothing.

    Args:
        bundle: Folder of the bundle.
        location: The repository.
        name: Served name; the bundle's own by default.
        version: Integer version; the newest plus one by default.
        sign: Signs the published bundle.

    Returns:
        URL of the version, `<repository>/<name>/<version>`.

    Raises:
        BundleError: the bundle is damaged, name or version are not allowed, the version exists, or
            a signature would be lost.
        StorageError: the repository cannot be read or written.
    """
    content, about = manifest.read_both(bundle)
    checksums.check(bundle, about.files)
    name = layout.check_name(name or about.name)
    listed = time.time()
    there = list_contents(location)
    known = [own for found, own in there.versions if found == name]
    # An interrupted publication may have left files without a manifest.
    used = [*known, *(own for found, own in there.beside if found == name)]
    version = layout.check_version(version or layout.version_after(used))
    place = location.of(f"{name}/{version}")
    exists = BundleError(f"{place}: exists already; bundles are never changed")
    if version in known:
        raise exists
    content, signature = published(bundle, content, name, version, sign)
    while True:
        for file, wanted in about.files.items():
            if wanted not in there.blobs:
                _put_blob(location, bundle / file, wanted)
        if time.time() - listed < FRESH_SECONDS:
            break
        # `collect` may have moved listed files since.
        listed = time.time()
        there = list_contents(location)
    path = f"{name}/{version}/{layout.SIGNATURE}"
    if signature is None:
        is_free = layout.SIGNATURE not in there.beside.get((name, version), ())
    else:
        is_free = _create(location, path, signature)
    if not is_free:
        raise BundleError(
            f"{location.of(path)}: exists already; publish another version, or remove it if an "
            "interrupted publication has left it"
        )
    if not _create(location, manifest_path(name, version), content):
        raise exists
    return place


def _create(location: Location, path: str, content: bytes) -> bool:
    """Write a new small object; returns whether it has this content now."""
    with location.naming(path):
        try:
            obstore.put(location.store, path, content, mode="create")
        except (AlreadyExistsError, PreconditionError):
            # The client retries after a lost answer, so an existing object may be its own.
            return b"".join(location.read(path)) == content
    return True


def _put_blob(location: Location, file: Path, wanted: str) -> None:
    """Write a file under its checksum, unless the file has changed."""
    path, found = f"{BLOBS}/{wanted}", sha256()

    def parts() -> Iterator[bytes]:
        with file.open("rb") as source:
            while part := source.read(_PART_BYTES):
                found.update(part)
                yield part
        # The storage joins the parts after this check.
        checksums.compare(file, found.hexdigest(), wanted)

    with location.naming(path):
        put_parts(location, path, parts())


def put_parts(location: Location, path: str, parts: Iterator[bytes]) -> None:
    """Write an object of any size."""
    obstore.put(
        location.store, path, parts, chunk_size=_PART_BYTES, max_concurrency=_PARTS_AT_A_TIME
    )
