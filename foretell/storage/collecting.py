"""Removal of the files in object storage that no version uses."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Literal, NamedTuple

import obstore

from foretell.bundle.errors import BundleError
from foretell.storage.errors import StorageError
from foretell.storage.location import Location
from foretell.storage.repository import (
    BLOBS,
    FRESH_SECONDS,
    GRACE,
    TRASH,
    Contents,
    list_contents,
    put_parts,
    read_manifest,
)

# S3 copies 5 GB at once.
_COPY_BYTES = 5 * 10**9
_Step = Literal["restore", "remove", "move"]


class Collected(NamedTuple):
    """Numbers of files removed, moved to the trash, and copied back; and failures."""

    removed: int
    moved: int
    restored: int
    failures: tuple[str, ...] = ()


def collect(location: Location, *, empty: bool = False) -> Collected:
    """Remove the files that no manifest has named for `GRACE`.

    Bundles may be published meanwhile. A long run lists the repository again, so a run that paused
    does no harm when it goes on beside another one.

    Args:
        location: The repository.
        empty: Whether the repository may have no versions; then all its files are removed.

    Raises:
        BundleError: a manifest is invalid, or there are no versions.
        StorageError: the repository cannot be read or written.
    """
    done: Counter[_Step] = Counter()
    failures: list[str] = []
    tried: set[str] = set()
    last = -1
    while True:
        there = _Snapshot(location, empty=empty)
        for own, step in there.steps():
            if own in tried:
                continue
            if not there.is_fresh():
                break
            tried.add(own)
            try:
                done[step] += there.take(own, step)
            # The other files can still be collected.
            except StorageError as error:
                failures.append(str(error))
        else:
            return Collected(done["remove"], done["move"], done["restore"], tuple(failures))
        # The first listing may have been interrupted.
        if len(tried) == last:
            raise StorageError(
                f"{location}: reading the manifests takes over an hour; remove old versions first"
            )
        last = len(tried)


class _Snapshot:
    """A listing of the repository, and the steps that follow from it."""

    def __init__(self, location: Location, *, empty: bool) -> None:
        self._location = location
        self._listed = time.time()
        self._until = _now(location) - GRACE
        self._there = _list(location, empty=empty)
        self._named: set[str] = set()
        for key in self._there.versions:
            self._named.update(read_manifest(location, *key).files.values())

    def is_fresh(self) -> bool:
        """Whether a file may be removed: others may have changed what an old listing says."""
        return time.time() - self._listed < FRESH_SECONDS

    def steps(self) -> Iterator[tuple[str, _Step]]:
        """Files by their checksums, and what to do with each."""
        for own, entry in self._there.trash.items():
            if own in self._named and own not in self._there.blobs:
                # Readers may still read the trash; the next run removes the copy there.
                yield own, "restore"
            elif entry.at < self._until:
                yield own, "remove"
        for own, entry in self._there.blobs.items():
            # This run may remove a file in both places from the trash, so the next run moves it.
            is_used = own in self._named or own in self._there.trash
            if not is_used and entry.at < self._until:
                yield own, "move"

    def take(self, own: str, step: _Step) -> bool:
        """Take a step; returns whether it is complete."""
        if step == "restore":
            self._copy(TRASH, BLOBS, own, self._there.trash[own].size)
        elif step == "remove":
            _remove(self._location, f"{TRASH}/{own}")
        else:
            return self._move(own, self._there.blobs[own].size)
        return True

    def _move(self, own: str, size: int) -> bool:
        """Move a file to the trash."""
        self._copy(BLOBS, TRASH, own, size)
        with self._location.naming(f"{TRASH}/{own}"):
            is_whole = obstore.head(self._location.store, f"{TRASH}/{own}")["size"] == size
        # Azure may answer before the copy is complete.
        if not is_whole:
            return False
        if not self.is_fresh():
            raise StorageError(
                f"{self._location.of(f'{BLOBS}/{own}')}: the copy to {TRASH}/ took too long; a "
                "later run moves the file"
            )
        _remove(self._location, f"{BLOBS}/{own}")
        return True

    def _copy(self, source: str, target: str, own: str, size: int) -> None:
        place = self._location
        with place.naming(f"{source}/{own}"):
            if size <= _COPY_BYTES:
                obstore.copy(place.store, f"{source}/{own}", f"{target}/{own}")
            else:
                put_parts(place, f"{target}/{own}", place.read(f"{source}/{own}"))


def _list(location: Location, *, empty: bool) -> Contents:
    """List a repository, which must have versions unless `empty`."""
    there = list_contents(location)
    if there.blobs and not there.versions and not empty:
        raise BundleError(
            f"{location}: has files but no versions; if all versions were removed, --empty removes "
            "the files"
        )
    return there


def _now(location: Location) -> datetime:
    """The time of the storage's clock, which sets the times of objects."""
    path = f"{TRASH}/clock"
    with location.naming(path):
        obstore.put(location.store, path, b"")
        found = obstore.head(location.store, path)["last_modified"]
    _remove(location, path)
    return found


def _remove(location: Location, path: str) -> None:
    with location.naming(path):
        obstore.delete(location.store, [path])
