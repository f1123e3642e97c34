"""Files that are compressed, and archives of one file."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

from foretell.data.errors import DataError

# First bytes of the files.
_PACKED: dict[bytes, Callable[[bytes], bytes]] = {
    b"\x1f\x8b": gzip.decompress,
    b"BZh": bz2.decompress,
    b"\xfd7zXZ\0": lzma.decompress,
    b"\x28\xb5\x2f\xfd": lambda content: _by_arrow(content, "zstd"),
    b"\x04\x22\x4d\x18": lambda content: _by_arrow(content, "lz4"),
}
_ZIP = b"PK\x03\x04"
_NO_TABLE = {
    b"\xd0\xcf\x11\xe0": "a spreadsheet",
    b"\x89HDF": "HDF5",
    b"SQLite format 3": "a database of SQLite",
    b"7z\xbc\xaf": "an archive of 7-Zip",
    b"Rar!": "an archive of RAR",
    b"ORC": "ORC",
    b"Obj\x01": "Avro",
    b"%PDF": "a PDF",
}
# The mark of a tar archive, and its position.
_TAR, _TAR_AT = b"ustar", 257
_REMEDY = "save it as CSV or Parquet"


def read_bytes(path: Path) -> bytes:
    """The content of a file; compressed files and archives of one file are unpacked.

    Raises:
        DataError: the file cannot be read, or its format holds no table.
    """
    try:
        content = path.read_bytes()
        # An archive may be compressed, and so may the table in it.
        for _ in range(3):
            unpack = next((_PACKED[mark] for mark in _PACKED if content.startswith(mark)), None)
            if unpack is not None:
                content = unpack(content)
            elif content.startswith(_ZIP):
                content = _unzip(path, content)
            elif content[_TAR_AT:].startswith(_TAR):
                content = _untar(path, content)
            else:
                break
    except DataError:
        raise
    except (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, tarfile.TarError) as error:
        raise DataError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    for mark, kind in _NO_TABLE.items():
        if content.startswith(mark):
            raise DataError(f"{path}: {kind} and no table; {_REMEDY}")
    return content


def _by_arrow(content: bytes, codec: str) -> bytes:
    import pyarrow as pa

    with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
        return bytes(stream.read())


def _unzip(path: Path, content: bytes) -> bytes:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = [each.filename for each in archive.infolist() if not each.is_dir()]
            if "[Content_Types].xml" in names or "mimetype" in names:
                raise DataError(f"{path}: a spreadsheet; {_REMEDY}")
            return archive.read(_only(path, names))
    except (RuntimeError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(
            f"{path}: a spreadsheet, or no zip file of one table; {_REMEDY} ({error})"
        ) from None


def _untar(path: Path, content: bytes) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        name = _only(path, [each.name for each in archive.getmembers() if each.isfile()])
        file = archive.extractfile(name)
        if file is None:
            raise DataError(f"{path}: {name} in the archive is not a file; {_REMEDY}")
        return file.read()


def _only(path: Path, names: list[str]) -> str:
    """The only file of an archive, without those that macOS adds."""
    found = [
        name
        for name in names
        if not name.startswith("__MACOSX/") and not name.rpartition("/")[2].startswith(".")
    ]
    if len(found) != 1:
        held = ", ".join(found[:4]) or "none"
        raise DataError(
            f"{path}: no zip file of one table, or other archive of one, but of {len(found)} files "
            f"({held}); extract the one to read"
        )
    return found[0]
