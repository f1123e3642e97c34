"""The bundle that a command line names."""

from __future__ import annotations

from pathlib import Path

from foretell.bundle import layout
from foretell.bundle.errors import BundleError


def find_bundle(text: str) -> Path:
    """A bundle's folder.

    Args:
        text: The folder, or `repository/name`, the newest version, or `repository/name@version`.

    Raises:
        BundleError: there is none.
    """
    path, at, version = text.rpartition("@")
    folder = Path(path) / layout.check_version(version) if at else layout.newest(Path(text))
    if not (folder / layout.MANIFEST).is_file():
        raise BundleError(f"{text}: there is no bundle, which has a {layout.MANIFEST}")
    return folder.resolve()
