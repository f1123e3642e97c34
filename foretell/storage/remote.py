"""A repository of bundles in object storage: `<prefix>/<name>/<version>/<file>`."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from datetime import datetime

import obstore

from foretell.bundle import layout
from foretell.bundle.manifest import Manifest, parse
from foretell.storage.location import Location

Version = tuple[str, str]
_FILE = re.compile(rf"({layout.NAME.pattern})/({layout.VERSION.pattern})/([^/]+)")


@dataclass(frozen=True)
class Pushed:
    """A version that is whole: its manifest is written after all else.

    Attributes:
        tag: Differs when the manifest was written again.
        at: When it was written.
        size: Bytes of all its files.
    """

    tag: str
    at: datetime
    size: int


def versions(location: Location) -> dict[Version, Pushed]:
    """What is in a repository, by name and version; one listing.

    Raises:
        StorageError: it cannot be listed whole.
    """
    manifests: dict[Version, tuple[str, datetime]] = {}
    sizes: Counter[Version] = Counter()
    with location.told():
        for some in obstore.list(location.store):
            for entry in some:
                if found := _FILE.fullmatch(entry["path"]):
                    key, at, size = (found[1], found[2]), entry["last_modified"], entry["size"]
                    sizes[key] += size
                    if found[3] == layout.MANIFEST:
                        manifests[key] = entry["e_tag"] or f"{at.isoformat()} {size}", at
    return {key: Pushed(tag, at, sizes[key]) for key, (tag, at) in manifests.items()}


def path_of(name: str, version: str, file: str = layout.MANIFEST) -> str:
    """Where a file of a bundle lies."""
    return f"{name}/{version}/{file}"


def manifest_of(location: Location, name: str, version: str) -> Manifest:
    """The manifest of a version.

    Raises:
        BundleError: it does not keep the contract.
        StorageError: it cannot be read.
    """
    path = path_of(name, version)
    return parse(b"".join(location.read(path)), location.of(path))
