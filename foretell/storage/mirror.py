"""A local mirror of a repository, for a server."""

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
from foretell.storage.remote import Listing, Remote, StoredVersion, Version

# File in a bundle's folder with the tag of its version in the repository.
_TAG = ".tag"
# In the mirror's folder: files by sha256; unfinished and removed folders; the lock.
_BLOBS, _WORK, _LOCK = ".blobs", ".work", ".lock"
# Wait for a lock whose holder makes no progress; longer than a request with its retries.
_LOCK_SECONDS = 60.0
_POLL_SECONDS = 0.05
# Parallel fetches of versions: small files mostly wait for the answer.
_AT_A_TIME = 4
# Pauses between tries of a version that keeps failing; each try may fetch gigabytes.
_FIRST_PAUSE, _LONGEST_PAUSE = 10.0, 300.0


class _Failed(NamedTuple):
    """A failed fetch of a version, with its reason and the time of the next try."""

    tag: str
    reason: str
    pause: float
    again: float


class Mirror:
    """A mirror of a repository; each bundle in it is complete and matches its checksums.

    Servers may share a folder: they take turns, and fetch each file once.

    Args:
        remote: The repository.
        cache: Folder for mirrors of all repositories; created if missing.
        choose: Function that chooses the versions of a model to fetch; others in the mirror stay.

    Attributes:
        remote: The repository.
        folder: Folder of the bundles, `<folder>/<name>/<version>/`.
        failures: Reasons why versions could not be fetched at the last refresh.
        unlisted: Reasons why models could not be listed then, or which of their versions serves
            could not be read; their versions in the mirror stay.
        read_at: Time of the last read of the repository in seconds since 1970; 0 before.
    """

    def __init__(
        self,
        remote: Remote,
        cache: Path,
        choose: Callable[[str, Iterable[str]], Iterable[str]] = lambda _, versions: versions,
    ) -> None:
        self.remote = remote
        place = remote.url.replace("://", "-").replace("/", "-")[:80]
        self.folder = cache / f"{place}-{sha256(remote.url.encode()).hexdigest()[:12]}"
        self.failures: Mapping[Version, str] = {}
        self.unlisted: Mapping[str, str] = {}
        self.read_at = 0.0
        self._failed: dict[Version, _Failed] = {}
        self._choose = choose
        self._checked: set[Version] = set()
        # Tags of the files that say which version serves, by name.
        self._serving: dict[str, str] = {}
        self._stopped = threading.Event()

    def __str__(self) -> str:
        return str(self.remote)

    def refresh(self, name: str | None = None, version: str | None = None) -> None:
        """Fetch new and changed versions, and remove versions that are gone.

        The files that say which version serves are fetched first: the choice may depend on them. A
        version that cannot be fetched, or does not match its checksums, leaves the mirror
        unchanged.

        Args:
            name: Model of a version to fetch in addition to the chosen ones.
            version: That version; None for the chosen ones only.

        Raises:
            StorageError: no model can be read, the repository is suddenly empty, or another
                server holds the lock without progress; no version was fetched.
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with self._alone():
            there = self.remote.listing(partial=True)
            found = set(there.versions)
            here = {key for key in self._here() if key[0] not in there.failures}
            if here and not found:
                raise StorageError(f"{self.remote}: is empty; fetched bundles are kept")
            self.read_at = time.time()
            gone = here - found
            for key in gone:
                self._remove(key)
            asked = found & {(name, version)}
            unread = self._fetch_serving(there, needed=not asked)
            chosen = self._chosen(key for key in found if key[0] not in unread)
            tags = there.tags(sorted(chosen | asked))
            self.unlisted = {**there.failures, **unread}
            missing = [key for key, tag in tags.items() if not self._has(key, tag)]
            locks: dict[str, threading.Lock] = {}

            def fetch(key: Version) -> _Failed | None:
                tag, old = tags[key], self._failed.get(key)
                if self._stopped.is_set():
                    return None
                if old is not None and old.tag != tag:
                    old = None
                if old is not None and key != (name, version) and time.monotonic() < old.again:
                    return old
                try:
                    self._fetch(there, key, tag, locks)
                # One bad version must not stop the others.
                except Exception as error:
                    reason = str(error).replace(f"{self.remote}/", "") or type(error).__name__
                    # The first retry has no pause: most failures are temporary.
                    pause = 0.0 if old is None else max(2 * old.pause, _FIRST_PAUSE)
                    pause = min(pause, _LONGEST_PAUSE)
                    return _Failed(tag, reason, pause, time.monotonic() + pause)
                return None

            with ThreadPoolExecutor(_AT_A_TIME) as pool:
                try:
                    each = zip(missing, pool.map(fetch, missing), strict=True)
                    failed = {key: one for key, one in each if one is not None}
                except (KeyboardInterrupt, SystemExit):
                    # The pool waits for the fetches that it has started.
                    self.stop()
                    raise
            # Versions of models that cannot be read were not tried again.
            untried = {key for key in self._failed if key[0] in self.unlisted and key not in tags}
            self._failed = {key: self._failed[key] for key in untried} | failed
            self.failures = {key: one.reason for key, one in self._failed.items()}
            if gone or missing:
                self._clean()

    def stop(self) -> None:
        """Stop running fetches; may be called from any thread."""
        self._stopped.set()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Take the lock, and remove what a killed server has left."""
        seen, end = 0, 0.0
        with (self.folder / _LOCK).open("a") as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    # Servers that wait see progress by the time of the file.
                    os.utime(lock.fileno())
                    break
                except BlockingIOError:
                    if (touched := os.fstat(lock.fileno()).st_mtime_ns) != seen:
                        seen, end = touched, time.monotonic() + _LOCK_SECONDS
                    if time.monotonic() > end:
                        raise StorageError(
                            f"{self.folder}: another server holds the lock"
                        ) from None
                    if self._stopped.wait(_POLL_SECONDS):
                        raise StorageError(f"{self.folder}: the server is stopping") from None
            shutil.rmtree(self.folder / _WORK, ignore_errors=True)
            for own in (_WORK, _BLOBS):
                (self.folder / own).mkdir(exist_ok=True)
            yield

    def _here(self) -> Iterator[Version]:
        for name in layout.model_names(self.folder):
            for version in layout.versions(self.folder, name):
                yield name, version

    def _fetch_serving(self, there: Listing, *, needed: bool) -> dict[str, str]:
        """Fetch the changed files that say which version serves, and remove those that are gone.

        Returns the models whose file cannot be read, with the reasons. StorageError: these are all
        models, and one is `needed`.
        """
        names = {name for name, _ in there.versions}
        wanted = {name: tag for name, tag in there.serving.items() if name in names}
        for file in self.folder.glob(f"[!.]*/{layout.SERVING}"):
            name = file.parent.name
            if name not in there.failures and name not in wanted:
                self._unlink(file)
        unread: dict[str, str] = {}
        for name, tag in wanted.items():
            file = self.folder / name / layout.SERVING
            if self._serving.get(name) == tag and file.exists():
                continue
            try:
                content, new = self.remote.read_serving(name), self._unused()
            except (BundleError, StorageError) as error:
                unread[name] = str(error)
                continue
            if content is None:
                # It was removed after the listing.
                self._unlink(file)
                continue
            new.write_bytes(content)
            file.parent.mkdir(exist_ok=True)
            new.rename(file)
            self._serving[name] = tag
        if needed and unread and unread.keys() == names:
            raise StorageError("; ".join(unread.values()))
        return unread

    def _unlink(self, file: Path) -> None:
        file.unlink(missing_ok=True)
        with suppress(OSError):
            file.parent.rmdir()

    def _chosen(self, found: Iterable[Version]) -> set[Version]:
        by_name: dict[str, list[str]] = {}
        for name, version in found:
            by_name.setdefault(name, []).append(version)
        return {(name, own) for name, every in by_name.items() for own in self._choose(name, every)}

    def _has(self, key: Version, tag: str) -> bool:
        """Whether the mirror has a version with this tag; its files are checked once."""
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

    def _fetch(
        self, there: Listing, key: Version, tag: str, locks: dict[str, threading.Lock]
    ) -> None:
        """Fetch a version; locks by checksum keep parallel fetches from fetching a file twice."""
        target, folder = self.folder.joinpath(*key), self._unused()
        folder.mkdir()
        # Before the links: a write through a link would change a shared file.
        (folder / _TAG).write_text(tag)
        version = there.open(key, tag)
        for file in layout.BESIDE:
            if (content := version.beside(file)) is not None:
                (folder / file).write_bytes(content)
        (folder / layout.MANIFEST).write_bytes(version.manifest())
        self._go_on()
        try:
            files = manifest.read(folder).files
            checksums.check_names(folder, files)
        except BundleError as error:
            raise BundleError(str(error).replace(str(folder), version.place)) from None
        for file, wanted in files.items():
            with locks.setdefault(wanted, threading.Lock()):
                blob = self._blob(version, wanted, file, f"{'/'.join(key)}/{file}")
            try:
                (folder / file).hardlink_to(blob)
            except OSError:
                # The file system has no links.
                shutil.copyfile(blob, folder / file)
        if target.exists():
            target.rename(self._unused())
        target.parent.mkdir(exist_ok=True)
        folder.rename(target)
        self._checked.add(key)

    def _blob(self, version: StoredVersion, wanted: str, file: str, called: str) -> Path:
        """The file with a checksum, fetched if missing; `called` is its name in messages."""
        blob, new = self.folder / _BLOBS / wanted, self._unused()
        if not blob.exists() or checksums.sha256(blob) != wanted:
            found = self._download(version.pieces(file, wanted), new)
            checksums.compare(Path(called), found, wanted)
            new.rename(blob)
        return blob

    def _download(self, pieces: Iterable[bytes], target: Path) -> str:
        """Write pieces to a file, and return its checksum."""
        found = sha256()
        with target.open("xb") as file:
            for piece in pieces:
                self._go_on()
                file.write(piece)
                found.update(piece)
        return found.hexdigest()

    def _go_on(self) -> None:
        """Note that the repository has answered; servers that wait for the lock wait longer.

        Raises:
            StorageError: the server is stopping.
        """
        if self._stopped.is_set():
            raise StorageError(f"{self.remote}: the server is stopping")
        self.read_at = time.time()
        os.utime(self.folder / _LOCK)

    def _unused(self) -> Path:
        """An unused path, which the next holder of the lock removes."""
        return self.folder / _WORK / uuid4().hex

    def _remove(self, key: Version) -> None:
        target = self.folder.joinpath(*key)
        target.rename(self._unused())
        self._checked.discard(key)
        with suppress(OSError):
            target.parent.rmdir()

    def _clean(self) -> None:
        """Remove replaced folders, and files that no bundle uses."""
        shutil.rmtree(self.folder / _WORK, ignore_errors=True)
        for blob in (self.folder / _BLOBS).iterdir():
            if blob.stat().st_nlink == 1:
                blob.unlink()


def default_cache() -> Path:
    """The default folder for mirrors."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foretell"
