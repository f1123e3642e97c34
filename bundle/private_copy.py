"""A private copy of a bundle's files, which later changes of its folder do not reach."""

from __future__ import annotations

import os
import tempfile
from contextlib import closing
from hashlib import sha256
from io import FileIO
from mmap import mmap
from pathlib import Path

from foretell.bundle import checksums
from foretell.bundle.errors import NoRoomError
from foretell.bundle.mapping import Mapping

_CHUNK = 1024 * 1024
_MOUNTS = Path("/proc/self/mountinfo")


class PrivateCopy:
    """The files of a bundle, copied once and compared with their sums while they are copied.

    A file that changes during the copy is refused; a later change has no effect. The copy is a file
    without a name in the folder for temporary files (`TMPDIR`), so it disappears with the process.
    It is mapped and not open, so that copies do not count as open files. If that folder cannot be
    written or is in memory, the copy is memory of this process.

    Args:
        folder: The bundle.
        sums: sha256 by file name.

    Raises:
        BundleError: a file is missing or differs, or has no sum; the message names it.
        NoRoomError: the folder for temporary files is full.
        OSError: a file cannot be read.
    """

    def __init__(self, folder: Path, sums: dict[str, str]) -> None:
        checksums.check_names(folder, sums)
        sizes = {name: checksums.size(folder / name) for name in sums}
        self._places: dict[str, slice] = {}
        start = 0
        for name, size in sizes.items():
            self._places[name] = slice(start, start + size)
            start += size
        self._content: Mapping | mmap | None = None
        target = _target(start)
        if isinstance(target, mmap):
            self._fill(folder, sums, target)
            self._content = target
            return
        with closing(target):
            self._fill(folder, sums, target)
            self._content = Mapping(target.fileno())

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            ValueError: the copy is closed.
        """
        return self.view(name).tobytes()

    def view(self, name: str) -> memoryview:
        """A read-only view of the content of a file, without a copy.

        Raises:
            ValueError: the copy is closed.
        """
        content = self._content
        if content is None:
            raise ValueError("the copy is closed")
        whole = content.view() if isinstance(content, Mapping) else memoryview(content)
        return whole[self._places[name]]

    def rest(self) -> None:
        """Release the pages that were read of a copy on disk, which count as memory."""
        if isinstance(self._content, Mapping):
            self._content.rest()

    def close(self) -> None:
        """Release the copy once its last view is gone."""
        self._content = None

    def _fill(self, folder: Path, sums: dict[str, str], target: FileIO | mmap) -> None:
        chunk = memoryview(bytearray(_CHUNK))
        for name, expected in sums.items():
            place, digest = self._places[name], sha256()
            left = place.stop - place.start
            with (folder / name).open("rb", buffering=0) as source:
                # The buffer ends at the size read before, even if the file grew since.
                while count := source.readinto(chunk[: min(left, _CHUNK)]):
                    digest.update(chunk[:count])
                    _write(target, chunk[:count], folder)
                    left -= count
            checksums.compare(folder / name, digest.hexdigest(), expected)


def _target(size: int) -> FileIO | mmap:
    try:
        file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - the caller closes it
    except OSError:
        return mmap(-1, size)
    if _is_in_memory(file):
        file.close()
        return mmap(-1, size)
    return file


def _is_in_memory(file: FileIO) -> bool:
    """Whether a file lies in tmpfs."""
    device = os.fstat(file.fileno()).st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        mounts = _MOUNTS.read_text(errors="replace").splitlines()
    except OSError:
        return False
    return any(mount.split()[2] == number and " - tmpfs " in mount for mount in mounts)


def _write(target: FileIO | mmap, content: memoryview, folder: Path) -> None:
    while content:
        try:
            content = content[target.write(content) :]
        except OSError as error:
            raise NoRoomError(
                f"{folder}: cannot be copied to {tempfile.gettempdir()}: {error.strerror}; free "
                "some room there, or set TMPDIR to another folder"
            ) from error
