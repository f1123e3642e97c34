"""Tables in object storage; see `places`. Needs the extra `storage`."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path

import obstore
import pyarrow as pa

from foretell.batch.places import File
from foretell.storage.location import open_location


class BucketPlace:
    """A prefix of a bucket, or an object of it; see `Place`.

    Args:
        url: Such as `s3://bucket/prefix`.
        is_file: Whether it is that of an object.

    Raises:
        StorageError: it is no such URL.
    """

    def __init__(self, url: str, *, is_file: bool) -> None:
        prefix, _, self._object = url.rpartition("/") if is_file else (url, "", "")
        self._location = open_location(prefix)

    def of(self, name: str) -> str:
        """See `Place.of`."""
        return self._location.of(name) if name else str(self._location)

    def files(self, folder: str = "") -> list[File]:
        """See `Place.files`."""
        with self._location.told(folder):
            if self._object:
                found = [obstore.head(self._location.store, self._object)]
            else:
                found = list(obstore.list(self._location.store, folder or None).collect())
        names = {each["path"]: f"{each['size']}-{each['e_tag']}" for each in found}
        return [
            File(name, names[name])
            for name in sorted(names)
            if not any(part[0] in "._" for part in name.split("/"))
        ]

    def open(self, name: str) -> pa.NativeFile:
        """See `Place.open`."""
        with self._location.told(name):
            file = obstore.open_reader(self._location.store, name)
        return pa.PythonFile(_Reader(file, partial(self._location.told, name)), "r")

    def read(self, name: str) -> bytes | None:
        """See `Place.read`."""
        with self._location.told(name):
            try:
                return bytes(obstore.get(self._location.store, name).bytes())
            except FileNotFoundError:
                return None

    @contextmanager
    def writing(self, name: str) -> Iterator[Path]:
        """See `Place.writing`."""
        with tempfile.TemporaryDirectory(prefix="foretell-") as folder:
            path = Path(folder) / "table"
            yield path
            with self._location.told(name):
                # An object is there as a whole or not at all.
                obstore.put(self._location.store, name, path)

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """See `Place.claimed`; others cannot be told of here, and would write the same."""
        yield


class _Reader(io.RawIOBase):
    """A file of a bucket with all that Python's have.

    Args:
        file: The file.
        told: Names it in errors.
    """

    def __init__(
        self, file: obstore.ReadableFile, told: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._file = file
        self._told = told

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Go to a place."""
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """The place."""
        return self._file.tell()

    def read(self, size: int | None = -1, /) -> bytes:
        """What follows.

        Raises:
            StorageError: it cannot be read.
        """
        with self._told():
            return bytes(self._file.read(None if size is None or size < 0 else size))
