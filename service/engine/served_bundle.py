"""The bundle of a model: its manifest, its signature, and its files as they were opened."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from foretell.bundle import checksums, example, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.engine.signatures import Signers


class ServedBundle:
    """A bundle as it was when its manifest was read; its folder may change later.

    With `signers` each load checks the signature, against the manifest whose checksums a copy is
    compared with: no other files can be served.

    Raises:
        BundleError: the manifest breaks the contract, is not signed as `signers` require, or is of
            a bundle for other devices.
    """

    def __init__(self, folder: Path, signers: Signers | None, *, on_gpu: bool) -> None:
        content = manifest.read_bytes(folder)
        self.manifest = _parse(content, folder, on_gpu=on_gpu)
        self.digest = manifest.digest_of(content)
        self._folder = folder
        self._signers = signers
        self._check_signature(content)

    def has_manifest(self) -> bool:
        """Whether its folder still has the manifest that was read; BundleError if not signed."""
        content = manifest.read_bytes(self._folder)
        if manifest.digest_of(content) != self.digest:
            return False
        self._check_signature(content)
        return True

    def is_of_folder(self) -> bool:
        """Whether its folder still has all content that was opened; OSError if unreadable."""
        try:
            if not self.has_manifest():
                return False
            checksums.check(self._folder, self.manifest.files)
        except BundleError:
            return False
        return True

    def read(self, name: str, copy: PrivateCopy | None) -> bytes:
        """The content of a file, from a copy if there is one, with its checksum verified."""
        if copy is not None:
            # It raises `ValueError` if it was closed meanwhile.
            with suppress(ValueError):
                return copy.read(name)
        return checksums.read(self._folder / name, self.manifest.files[name])

    def example(self, copy: PrivateCopy | None) -> Example | None:
        """The example window, if any; BundleError or OSError if the bundle was changed."""
        return example.read(self._folder, self.manifest, lambda name: self.read(name, copy))

    def _check_signature(self, content: bytes) -> None:
        if self._signers is not None:
            self._signers.check(self._folder, content, self.manifest.files)


def _parse(content: bytes, folder: Path, *, on_gpu: bool) -> Manifest:
    """The manifest of a bundle; BundleError unless this device can run it."""
    found = manifest.parse(content, str(folder / layout.MANIFEST))
    device, here = ("cuda", "CUDA") if on_gpu else ("cpu", "the CPU")
    if device not in found.devices:
        raise BundleError(
            f"{folder}: is for {' and '.join(found.devices)} alone: it has operators "
            f"without a kernel on {here}"
        )
    return found
