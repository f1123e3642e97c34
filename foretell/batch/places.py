"""Where tables lie: what is read of them, and what appears there whole or not at all."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pyarrow as pa

from foretell.batch.errors import BatchError

_LOCK = ".lock"
_ENDINGS = (".parquet", ".csv", ".csv.gz")


@dataclass(frozen=True)
class File:
    """A file of a place.

    Attributes:
        name: Its path there; empty where the place is the file.
        stamp: Its size and what differs when it was written anew.
    """

    name: str
    stamp: str


class Place(Protocol):
    """A folder, a file, or a prefix of a bucket; it need not be there yet."""

    def of(self, name: str) -> str:
        """What a file is called in messages."""

    def files(self, folder: str = "") -> list[File]:
        """All files below, but for hidden ones, by name."""

    def open(self, name: str) -> pa.NativeFile:
        """A file to read from, at any place of it."""

    def read(self, name: str) -> bytes | None:
        """What a file holds; None if there is none."""

    def writing(self, name: str) -> AbstractContextManager[Path]:
        """A local file to fill, which becomes the one of that name unless an error is raised."""

    def claimed(self) -> AbstractContextManager[None]:
        """Keep others from writing here meanwhile, as far as they can be told, and tidy up.

        Raises:
            BatchError: another one does.
        """


class LocalPlace:
    """A folder or a file of this machine; see `Place`.

    Args:
        root: Its path.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def of(self, name: str) -> str:
        """See `Place.of`."""
        return str(self._root / name)

    def files(self, folder: str = "") -> list[File]:
        """See `Place.files`."""
        root = self._root / folder
        found = [root] if root.is_file() else sorted(root.rglob("*"))
        return [self._file(path) for path in found if path.is_file() and not self._hidden(path)]

    def _hidden(self, path: Path) -> bool:
        return any(part[0] in "._" for part in path.relative_to(self._root).parts)

    def _file(self, path: Path) -> File:
        about = path.stat()
        name = path.relative_to(self._root).as_posix()
        return File("" if name == "." else name, f"{about.st_size}-{about.st_mtime_ns}")

    def open(self, name: str) -> pa.NativeFile:
        """See `Place.open`."""
        return pa.OSFile(self.of(name))

    def read(self, name: str) -> bytes | None:
        """See `Place.read`."""
        try:
            return (self._root / name).read_bytes()
        except FileNotFoundError:
            return None

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """See `Place.writing`."""
        target = self._root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # Nobody takes for a table what is hidden.
        path = target.with_name(f".{target.name}.{uuid4().hex[:8]}")
        try:
            yield path
            path.replace(target)
        finally:
            path.unlink(missing_ok=True)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """See `Place.claimed`."""
        self._root.mkdir(parents=True, exist_ok=True)
        # Whoever is killed lets go of it.
        with (self._root / _LOCK).open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise BatchError(f"{self._root}: another run is writing it") from None
            self._tidy()
            try:
                yield
            finally:
                self._tidy()

    def _tidy(self) -> None:
        """Remove what workers that were killed had begun."""
        for left in self._root.glob("*/.*.????????"):
            left.unlink(missing_ok=True)


def absolute(text: str) -> str:
    """A path or URL as it is from any folder."""
    return text if "://" in text else str(Path(text).absolute())


def is_table(name: str) -> bool:
    """Whether a file is one that is read, by its name."""
    return name.endswith(_ENDINGS)


def open_place(text: str) -> Place:
    """The place of that path or URL.

    Raises:
        StorageError: the URL names none.
    """
    if "://" not in text:
        return LocalPlace(Path(text))
    from foretell.batch.buckets import BucketPlace

    return BucketPlace(text, is_file=is_table(text))
