"""Files as layers of an image: a tar archive for each file.

Tools for images unpack such layers: containerd and CRI-O mount them as a volume of Kubernetes,
and `COPY --from` of a Dockerfile copies them. Layers of raw files, as `oras push` writes them,
would be simpler to read, but containerd cannot unpack them. An archive is not compressed: weights
would hardly get smaller, and its digest depends on the file only. A file has the same path in all
versions, so that versions with equal files share their layer.

    models/.bundle/<file>             each file, in a layer of its own
    models/<name>/<version>/          manifest.json, and symbolic links to the files: one more layer

The image is thus a repository, which a server reads at `models`.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from foretell.bundle import checksums, layout
from foretell.storage.errors import StorageError
from foretell.storage.oci.client import Blob

_ROOT, _FILES = "models", ".bundle"
_PIECE = 1024 * 1024
# Two empty blocks end an archive.
_END = bytes(2 * tarfile.BLOCKSIZE)


@dataclass(frozen=True)
class Layer:
    """The archive of a file; iterating yields its bytes, the same every time.

    Attributes:
        file: Name of the file.
        path: Path of the file in the archive.
        source: The file, or its content.
        wanted: Checksum of the file, SHA-256; None if the manifest does not name the file.
        links: Targets of symbolic links that follow the file, by path.
    """

    file: str
    path: str
    source: Path | bytes
    wanted: str | None = None
    links: tuple[tuple[str, str], ...] = ()

    def __iter__(self) -> Iterator[bytes]:
        size = len(self.source) if isinstance(self.source, bytes) else checksums.size(self.source)
        yield _header(self.path, size)
        yield from self._pieces()
        yield bytes(-size % tarfile.BLOCKSIZE)
        for path, target in self.links:
            yield _header(path, 0, target)
        yield _END

    def _pieces(self) -> Iterator[bytes]:
        if isinstance(self.source, bytes):
            yield self.source
            return
        found = sha256()
        with self.source.open("rb") as file:
            while piece := file.read(_PIECE):
                found.update(piece)
                yield piece
        if self.wanted is not None:
            checksums.compare(self.source, found.hexdigest(), self.wanted)

    def blob(self) -> Blob:
        """Digest and size; reads the file, and compares its checksum.

        Raises:
            BundleError: the file is missing or differs.
        """
        found, size = sha256(), 0
        for piece in self:
            found.update(piece)
            size += len(piece)
        return Blob(f"sha256:{found.hexdigest()}", size)


def layer_of_file(bundle: Path, file: str, wanted: str | None) -> Layer:
    """The layer of a file of a bundle."""
    return Layer(file, f"{_ROOT}/{_FILES}/{file}", bundle / file, wanted)


def layer_of_signature(content: bytes) -> Layer:
    """The layer of a signature."""
    return Layer(layout.SIGNATURE, f"{_ROOT}/{_FILES}/{layout.SIGNATURE}", content)


def layer_of_manifest(content: bytes, name: str, version: str, others: Iterable[str]) -> Layer:
    """The layer of a version's folder: its manifest, and links to the other files."""
    file = layout.MANIFEST
    folder = f"{_ROOT}/{name}/{version}"
    links = tuple((f"{folder}/{other}", f"../../{_FILES}/{other}") for other in others)
    return Layer(file, f"{folder}/{file}", content, links=links)


def unpack(pieces: Iterator[bytes], file: str, place: str) -> Iterator[bytes]:
    """The content of the file in an archive, which is its first member.

    All pieces are read, because their reader compares their digest after the last one.

    Raises:
        StorageError: the archive does not begin with this file, or is cut.
    """
    head = bytearray()
    for piece in pieces:
        head += piece
        if len(head) >= tarfile.BLOCKSIZE:
            break
    try:
        found = tarfile.TarInfo.frombuf(
            bytes(head[: tarfile.BLOCKSIZE]), tarfile.ENCODING, "surrogateescape"
        )
    except tarfile.HeaderError as error:
        raise StorageError(f"{place}: the layer is not an archive: {error}") from None
    if not found.isreg() or found.name.rpartition("/")[2] != file:
        raise StorageError(f"{place}: the layer does not begin with {file}")
    left, first = found.size, bytes(head[tarfile.BLOCKSIZE :])
    for piece in _chain(first, pieces):
        if left > 0:
            yield piece[:left]
            left -= len(piece)
    if left > 0:
        raise StorageError(f"{place}: the layer ends before the file does")


def _chain(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _header(path: str, size: int, link: str = "") -> bytes:
    """The header of a file, or of a symbolic link."""
    member = tarfile.TarInfo(path)
    member.size = size
    if link:
        member.type, member.linkname = tarfile.SYMTYPE, link
    # This format has sizes over 8 GB in the header itself.
    return member.tobuf(tarfile.GNU_FORMAT)
