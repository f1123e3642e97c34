"""How bundles come into object storage: whole, and never in place of another one."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING
from uuid import uuid4

import obstore
from obstore.exceptions import AlreadyExistsError, PreconditionError

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.placement import manifest_as
from foretell.storage.errors import StorageError
from foretell.storage.location import Location
from foretell.storage.remote import path_of, versions

if TYPE_CHECKING:
    from obstore import PutMode, UpdateVersion

# Whoever has made this file of a version writes the others, and nobody else does.
_CLAIM = ".push"
# Of a push that broke off. Longer than any file takes that goes at once, after which it is claimed
# again; while parts go it is from time to time.
_CLAIM_AGE = timedelta(minutes=15)
# Larger files go in parts, a few at a time: S3 takes 5 GB at once, or 10,000 parts.
_PART_BYTES, _PARTS_AT_A_TIME = 32 * 1024 * 1024, 4
# Between claims while parts go.
_RENEW_SECONDS = 60.0


def push(
    bundle: Path, location: Location, *, name: str | None = None, version: str | None = None
) -> str:
    """Copy a bundle into a repository; servers see it whole or not at all.

    The manifest is written last, and only where there is none. Where that is not reached, what was
    written is removed; if that fails, too, nobody reads it and the next push writes over it. Where
    the manifest itself fails nothing is removed: it may have been written all the same.

    Args:
        bundle: Its folder.
        location: The repository.
        name: The model's name there; its own by default.
        version: A whole number; the one after the newest by default.

    Returns:
        Its URL, `<repository>/<name>/<version>`.

    Raises:
        BundleError: the bundle is damaged, name or version are not allowed, or the version exists.
        StorageError: the repository cannot be read or written, or somebody else is writing that
            version.
    """
    about = manifest.read(bundle)
    checksums.check(bundle, about.files)
    name = layout.check_name(name or about.name)
    there = {own for known, own in versions(location) if known == name}
    version = layout.check_version(version or str(max(map(int, there), default=0) + 1))
    _check_free(location, name, version, there)
    claim = _Claim(location, path_of(name, version, _CLAIM))
    claim.take()
    written = [claim.path]
    try:
        # Who had claimed it before may have ended meanwhile.
        now_there = {own for known, own in versions(location) if known == name}
        _check_free(location, name, version, now_there)
        for file in about.files:
            written.append(path_of(name, version, file))
            if (bundle / file).stat().st_size > _PART_BYTES:
                _write_parts(location, written[-1], bundle / file, claim)
            else:
                _write(location, written[-1], (bundle / file).read_bytes(), claim)
            claim.renew()
    except BaseException:
        with suppress(StorageError):
            # Not what is somebody else's by now.
            claim.renew()
            _remove(location, written)
        raise
    _put(location, path_of(name, version), manifest_as(bundle, name, version).encode(), "create")
    with suppress(StorageError):
        _remove(location, [claim.path])
    return location.of(f"{name}/{version}")


def _check_free(location: Location, name: str, version: str, there: set[str]) -> None:
    if version in there:
        place = location.of(f"{name}/{version}")
        raise BundleError(f"{place}: exists already; bundles are never changed")


def _write(location: Location, path: str, content: bytes, claim: _Claim) -> None:
    """Write a file of a version, in place of nothing but what a push that broke off has left."""
    try:
        _put(location, path, content, "create")
    except _TakenError:
        with location.told(path):
            left = obstore.head(location.store, path)
        claim.renew()
        _put(location, path, content, _state(left["e_tag"], left["version"]))


def _write_parts(location: Location, path: str, file: Path, claim: _Claim) -> None:
    """Write a large file of a version, whole or not at all.

    Parts know no conditions: what keeps others from writing it is the claim alone, which is renewed
    once more before they are put together. Who stands still after that, until the claim lapses, may
    replace the file of another push.
    """
    broken: list[BaseException] = []
    handed_over, claimed = Event(), Event()

    def parts() -> Iterator[bytes]:
        with file.open("rb") as source:
            while not broken and (part := source.read(_PART_BYTES)):
                yield part
        handed_over.set()
        # By the other thread: nothing can be asked of the client in here.
        claimed.wait()
        if broken:
            # Has the client take back what it has sent.
            raise broken[0]

    with location.told(path), ThreadPoolExecutor(1) as pool:
        putting = pool.submit(
            obstore.put,
            location.store,
            path,
            parts(),
            chunk_size=_PART_BYTES,
            max_concurrency=_PARTS_AT_A_TIME,
        )
        # It may have failed before.
        putting.add_done_callback(lambda _: handed_over.set())
        try:
            while not handed_over.wait(_RENEW_SECONDS):
                claim.renew()
            pause = 0.0
            while wait([putting], pause).not_done:
                claim.renew()
                claimed.set()
                pause = _RENEW_SECONDS
        except BaseException as error:
            broken.append(error)
            claimed.set()
            raise
        putting.result()


def _remove(location: Location, paths: list[str]) -> None:
    with location.told():
        obstore.delete(location.store, paths)


def _put(location: Location, path: str, content: bytes, mode: PutMode) -> UpdateVersion:
    """Write an object on a condition; what a later one compares with.

    Raises:
        _TakenError: the condition does not hold.
        StorageError: it cannot be written.
    """
    with location.told(path):
        try:
            put = obstore.put(location.store, path, content, mode=mode)
        except (AlreadyExistsError, PreconditionError):
            # Unless it was written, and the client asked again as the answer was lost.
            found = obstore.get(location.store, path)
            if bytes(found.bytes()) != content:
                raise _TakenError(f"{location.of(path)}: was written by somebody else") from None
            return _state(found.meta["e_tag"], found.meta["version"])
        return _state(put["e_tag"], put["version"])


def _state(tag: str | None, version: str | None) -> UpdateVersion:
    state: UpdateVersion = {}
    if tag is not None:
        state["e_tag"] = tag
    if version is not None:
        state["version"] = version
    return state


class _TakenError(StorageError):
    """Somebody else was faster."""


class _Claim:
    """The right to write a version.

    Args:
        location: The repository.
        path: Of the file that stands for it.
    """

    def __init__(self, location: Location, path: str) -> None:
        self.path = path
        self._location = location
        self._state: UpdateVersion = {}

    def take(self) -> None:
        """Claim it, unless somebody has within the last minutes.

        Raises:
            StorageError: somebody has, or it cannot be written.
        """
        try:
            self._state = self._write("create")
        except _TakenError:
            with self._location.told(self.path):
                held = obstore.head(self._location.store, self.path)
            until = held["last_modified"] + _CLAIM_AGE
            if datetime.now(UTC) < until:
                place = self._location.of(self.path.rpartition("/")[0])
                raise StorageError(
                    f"{place}: another push is writing it; if that broke off, push again after "
                    f"{until:%H:%M} UTC, or as another --version"
                ) from None
            self._state = self._write(_state(held["e_tag"], held["version"]))

    def renew(self) -> None:
        """Claim it for longer.

        Raises:
            StorageError: it was claimed by somebody else meanwhile.
        """
        self._state = self._write(self._state)

    def _write(self, mode: PutMode) -> UpdateVersion:
        return _put(self._location, self.path, uuid4().hex.encode(), mode)
