"""sha256 sums of a bundle's files."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

from foretell.bundle import layout
from foretell.bundle.errors import BundleError


def sha256(path: Path) -> str:
    """The sum of a file, as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(folder: Path, sums: dict[str, str]) -> None:
    """Compare every file with its sum.

    Args:
        folder: The bundle.
        sums: sha256 by file name.

    Raises:
        BundleError: a file is missing or differs, or has no sum; the message names it.
    """
    check_names(folder, sums)
    for name, expected in sums.items():
        check_file(folder / name, expected)


def check_names(folder: Path, sums: dict[str, str]) -> None:
    """Check that every file has a sum.

    Args:
        folder: The bundle.
        sums: sha256 by file name.

    Raises:
        BundleError: a file has no sum; the message names it.
    """
    for name in layout.FILES:
        if name not in sums:
            raise BundleError(f"{folder}: the manifest has no checksum of {name}")


def check_file(path: Path, expected: str) -> None:
    """Compare a file with its sum.

    Raises:
        BundleError: the file is missing or differs.
    """
    size(path)
    compare(path, sha256(path), expected)


def copy(path: Path, target: Path, expected: str) -> None:
    """Copy a file, and compare the copy with its sum.

    Raises:
        BundleError: the file is missing or differs.
        OSError: the file cannot be read, or the copy not written.
    """
    size(path)
    shutil.copyfile(path, target)
    compare(path, sha256(target), expected)


def size(path: Path) -> int:
    """Size of a file in bytes.

    Raises:
        BundleError: the file is missing.
    """
    if not path.is_file():
        raise BundleError(f"{path}: missing")
    return path.stat().st_size


def compare(path: Path, found: str, expected: str) -> None:
    """Compare the sum of a file's content with the expected one.

    Raises:
        BundleError: the sums differ.
    """
    if found != expected:
        raise BundleError(f"{path}: sha256 differs from the manifest; the file was changed")


def read(path: Path, expected: str) -> bytes:
    """The content of a file, compared with its sum.

    Raises:
        BundleError: the file is missing or differs.
        OSError: the file cannot be read.
    """
    size(path)
    content = path.read_bytes()
    compare(path, hashlib.sha256(content).hexdigest(), expected)
    return content
