"""The content of a bundle, as OpenSSF Model Signing signs it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path, PurePosixPath
from typing import Any

from model_signing import hashing, manifest

from foretell.bundle import layout
from foretell.bundle.errors import BundleError

_SERIALIZATION = {
    "method": "files",
    "hash_type": "sha256",
    "allow_symlinks": False,
    "ignore_paths": [layout.SIGNATURE],
}


class Contents(hashing.Config):  # type: ignore[misc]
    """Gives the library the checksums of a bundle, so that it reads no file itself.

    The checksums are those that the bundle's reader compares its files with. So what is signed or
    verified is what is read.

    Args:
        content: Content of `manifest.json`.
        sums: sha256 of every other file, by name.

    Attributes:
        differing: Names of files with other checksums in a signature, or that one of both lacks;
            None before the library has compared them, which it does once the signature is valid.
    """

    def __init__(self, content: bytes, sums: Mapping[str, str]) -> None:
        super().__init__()
        self._sums = {**sums, layout.MANIFEST: sha256(content).hexdigest()}
        self.differing: list[str] | None = None

    def hash(
        self,
        model_path: Any,  # noqa: ANN401 - the library's type
        *,
        files_to_hash: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> manifest.Manifest:
        """The checksums in the library's form."""
        digest = manifest.hashing.Digest
        items = [
            manifest.FileManifestItem(
                path=PurePosixPath(name), digest=digest("sha256", bytes.fromhex(found))
            )
            for name, found in self._sums.items()
        ]
        form = manifest.SerializationType.from_args(_SERIALIZATION)
        return _Compared(self, str(model_path), items, form)


class _Compared(manifest.Manifest):  # type: ignore[misc]
    """A manifest of the library that notes what differs from another one."""

    def __init__(self, contents: Contents, *given: Any) -> None:  # noqa: ANN401
        super().__init__(*given)
        self._contents = contents

    def __eq__(self, other: Any) -> bool:  # noqa: ANN401
        own, others = (
            {each.identifier: each.digest for each in one.resource_descriptors()}
            for one in (self, other)
        )
        names = own.keys() | others.keys()
        found = sorted(name for name in names if own.get(name) != others.get(name))
        self._contents.differing = found
        return not found

    # Like the library's, which has no hash either.
    __hash__ = None  # type: ignore[assignment]


def check_listed(folder: Path, sums: Mapping[str, str]) -> None:
    """Check that a signature covers all files of a bundle but hidden ones, which are never read.

    Args:
        folder: Folder of the bundle.
        sums: sha256 of every file but the manifest, by name, from the manifest.

    Raises:
        BundleError: the folder has another file.
        OSError: the folder cannot be read.
    """
    known = {layout.MANIFEST, layout.SIGNATURE, *sums}
    for entry in sorted(folder.iterdir()):
        if entry.name not in known and not entry.name.startswith("."):
            raise BundleError(f"{entry}: is not in the manifest; remove it from the bundle")
