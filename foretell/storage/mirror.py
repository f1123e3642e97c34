"""A folder that follows a repository in object storage, for a server to serve."""

from __future__ import annotations

import fcntl
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.storage.errors import StorageError
from foretell.storage.location import Location
from foretell.storage.remote import Version, path_of, versions

# In the folder of a bundle: which manifest in storage it is of.
_TAG = ".tag"
_LOCK = ".lock"
# Without a sign of life of who holds it: longer than a request that is tried again takes.
_LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.05
# Versions that are fetched at a time: most of what small files take is waiting for the storage.
_AT_A_TIME = 4
# Between tries of a version that fails again and again: each may fetch gigabytes.
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0


class _Failed(NamedTuple):
    """A version that could not be fetched.

    Attributes:
        tag: As it was in storage.
        said: Why.
        pause: Seconds until it is tried again, but on request.
        again: When that is.
    """

    tag: str
    said: str
    pause: float
    again: float

    @classmethod
    def after(cls, old: _Failed | None, tag: str, said: str) -> _Failed:
        """What follows on the failure before: a fault of a moment is over at the next look."""
        pause = 0.0 if old is None else min(max(2 * old.pause, _FIRST_PAUSE), _LONGEST_PAUSE)
        return cls(tag, said, pause, time.monotonic() + pause)


class Mirror:
    """Bundles of a bucket, each whole and with the sums of its manifest, or not there at all.

    Servers may share a folder: they take turns, and fetch each bundle once. Files that bundles have
    in common are there once.

    Args:
        location: The repository.
        cache: A folder for those of all locations; made if it does not exist.
        choose: The versions to fetch of a model, of those in storage. Others that are here stay.

    Attributes:
        location: As given.
        folder: `<folder>/<name>/<version>/` are the bundles.
        failures: Why versions could not be fetched, at the last refresh.
        read_at: When the location was last read, in seconds since 1970; 0 before.
    """

    def __init__(
        self,
        location: Location,
        cache: Path,
        choose: Callable[[str, Iterable[str]], Iterable[str]] = lambda _, versions: versions,
    ) -> None:
        self.location = location
        place = location.url.replace("://", "-").replace("/", "-")[:80]
        self.folder = cache / f"{place}-{sha256(location.url.encode()).hexdigest()[:12]}"
        self.failures: Mapping[Version, str] = {}
        self.read_at = 0.0
        self._failed: dict[Version, _Failed] = {}
        self._choose = choose
        self._checked: set[Version] = set()
        self._stopped = threading.Event()
        # While it is held no folder comes or is moved. A file may still not be where it is known to
        # be, or be another: its version failed, or was replaced by one of the same name.
        self._moving = threading.Lock()

    def __str__(self) -> str:
        return str(self.location)

    def refresh(self, name: str | None = None, version: str | None = None) -> None:
        """Fetch what is new or was changed, and remove what is gone.

        What cannot be fetched, or has not the sums of its manifest, changes nothing that is here.

        Args:
            name: A model of which a version is wanted, whatever was chosen.
            version: That version; None for what is chosen.

        Raises:
            StorageError: the repository cannot be listed, or is empty all of a sudden, or another
                server holds the folder and gets no further; nothing has changed.
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            found = versions(self.location)
            here = set(self._here())
            if here and not found:
                raise StorageError(f"{self.location}: is empty; what was fetched stays")
            self.read_at = time.time()
            for key in here - found.keys():
                self._remove(*key)
            wanted = self._wanted(found)
            wanted += [key for key in found if key == (name, version) and key not in wanted]
            missing = [key for key in wanted if not self._has(key, found[key].tag)]
            known = self._files() if missing else {}
            fetching: dict[str, threading.Lock] = {}

            def bring(key: Version) -> _Failed | None:
                tag, old = found[key].tag, self._failed.get(key)
                if self._stopped.is_set():
                    return None
                if old is not None and old.tag != tag:
                    old = None
                if old is not None and key != (name, version) and time.monotonic() < old.again:
                    return old
                try:
                    self._fetch(key, tag, known, fetching)
                except (StorageError, BundleError, OSError) as error:
                    said = str(error).replace(f"{self.location}/", "")
                    return _Failed.after(old, tag, said)
                return None

            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                try:
                    each = zip(missing, pool.map(bring, missing), strict=True)
                    self._failed = {key: one for key, one in each if one is not None}
                except (KeyboardInterrupt, SystemExit):
                    # The pool waits for those that it has begun.
                    self.stop()
                    raise
            self.failures = {key: one.said for key, one in self._failed.items()}

    def stop(self) -> None:
        """Break off what is being fetched, from any thread."""
        self._stopped.set()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep other servers out, and clear what one that was killed has left."""
        seen, end = 0, 0.0
        with (self.folder / _LOCK).open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Who still waits sees that it goes on.
                    os.utime(lock.fileno())
                    break
                except BlockingIOError:
                    # Who fetches many bundles gets on, and says so.
                    if (touched := os.fstat(lock.fileno()).st_mtime_ns) != seen:
                        seen, end = touched, time.monotonic() + _LOCK_SECONDS
                    if time.monotonic() > end:
                        raise StorageError(f"{self.folder}: another server fills it") from None
                    if self._stopped.wait(_POLL_SECONDS):
                        raise StorageError(f"{self.folder}: the server is stopping") from None
            for left in self.folder.glob("*/.*"):
                shutil.rmtree(left, ignore_errors=True)
            yield

    def _here(self) -> Iterator[Version]:
        for name in layout.model_names(self.folder):
            for version in layout.versions(self.folder, name):
                yield name, version

    def _wanted(self, found: Iterable[Version]) -> list[Version]:
        by_name: dict[str, list[str]] = {}
        for name, version in found:
            by_name.setdefault(name, []).append(version)
        return [
            (name, own) for name in sorted(by_name) for own in self._choose(name, by_name[name])
        ]

    def _has(self, key: Version, tag: str) -> bool:
        """Whether a version is here, of that manifest, and whole: a machine may have crashed."""
        folder = self.folder.joinpath(*key)
        try:
            if (folder / _TAG).read_text() != tag:
                return False
            if key not in self._checked:
                checksums.check(folder, manifest.read(folder).files)
                self._checked.add(key)
        except (BundleError, OSError):
            return False
        return True

    def _files(self) -> dict[str, Path]:
        """Where a file with a sum is, of the bundles that were checked."""
        found: dict[str, Path] = {}
        for key in self._checked:
            folder = self.folder.joinpath(*key)
            with suppress(BundleError):
                about = manifest.read(folder)
                found |= {known: folder / file for file, known in about.files.items()}
        return found

    def _fetch(
        self,
        key: Version,
        tag: str,
        known: dict[str, Path],
        fetching: dict[str, threading.Lock],
    ) -> None:
        """Fetch a version.

        Args:
            key: It.
            tag: Of its manifest.
            known: Where a file with a sum is, or was; takes those of this version.
            fetching: Locks of files by their sums: who needs one that others fetch waits for it.
        """
        target = self.folder.joinpath(*key)
        # Hidden folders are no bundles, and are removed by whoever comes next.
        folder, old = (target.with_name(f".{uuid4().hex}") for _ in range(2))
        with self._moving:
            folder.mkdir(parents=True)
        try:
            self._download(path_of(*key), folder / layout.MANIFEST)
            about = manifest.read(folder)
            checksums.check_names(folder, about.files)
            for file, wanted in about.files.items():
                own = folder / file
                with fetching.setdefault(wanted, threading.Lock()):
                    with self._moving:
                        is_here = _linked(known.get(wanted), own)
                    if is_here and checksums.sha256(own) != wanted:
                        own.unlink()
                        is_here = False
                    if not is_here:
                        self._download(path_of(*key, file), own)
                        checksums.check_file(own, wanted)
                        known[wanted] = own
            (folder / _TAG).write_text(tag)
            with self._moving:
                if target.exists():
                    target.rename(old)
                folder.rename(target)
                known |= {wanted: target / file for file, wanted in about.files.items()}
        except BundleError as error:
            place = self.location.of("/".join(key))
            raise BundleError(str(error).replace(str(folder), place)) from None
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.rmtree(old, ignore_errors=True)
            with self._moving, suppress(OSError):
                target.parent.rmdir()
        self._checked.add(key)

    def _download(self, path: str, target: Path) -> None:
        with target.open("xb") as file:
            for piece in self.location.read(path):
                if self._stopped.is_set():
                    raise StorageError(f"{self.location.of(path)}: the server is stopping")
                file.write(piece)
                self.read_at = time.time()
                os.utime(self.folder / _LOCK)

    def _remove(self, name: str, version: str) -> None:
        target = self.folder / name / version
        hidden = target.with_name(f".{uuid4().hex}")
        target.rename(hidden)
        shutil.rmtree(hidden)
        self._checked.discard((name, version))
        with suppress(OSError):
            target.parent.rmdir()


def default_cache() -> Path:
    """Where a server keeps what it fetched, unless told otherwise."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foretell"


def _linked(source: Path | None, target: Path) -> bool:
    """Whether a file is there already, and could be given another name."""
    if source is None:
        return False
    try:
        os.link(source, target)
    except OSError:
        # It was removed meanwhile, or the file system has no links.
        return False
    return True
