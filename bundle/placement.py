"""How bundles come into a repository: whole or not at all, and never in place of another one."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest


def check_free(target: Path) -> None:
    """Make sure that a version is not there yet.

    Raises:
        BundleError: it is.
    """
    if target.exists():
        raise BundleError(f"{target}: exists already; bundles are never changed")


@contextmanager
def appearing(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill with files, which becomes `target` at the end; an error leaves nothing.

    What it holds is on disk before it appears.

    Args:
        target: Where.
        replace: Put it in the place of what is there.

    Raises:
        BundleError: `target` is there, or has come meanwhile.
    """
    if not replace:
        check_free(target)
    made = [folder for folder in target.parents if not folder.exists()]
    folder = _hidden(target)
    try:
        folder.mkdir(parents=True)
        yield folder
        for path in (*folder.iterdir(), folder):
            _sync(path)
        if replace and target.exists():
            _exchange(folder, target)
        else:
            _move(folder, target)
        _sync(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            for empty in made:
                empty.rmdir()


def _hidden(target: Path) -> Path:
    """Beside it; the leading dot keeps it out of listings."""
    return target.with_name(f".{target.name}.{uuid4().hex[:8]}")


def _move(folder: Path, target: Path) -> None:
    try:
        folder.rename(target)
    except OSError:
        # Another writer may have been faster.
        check_free(target)
        raise


def _exchange(folder: Path, target: Path) -> None:
    retired = _hidden(target)
    target.rename(retired)
    try:
        folder.rename(target)
    except OSError:
        retired.rename(target)
        raise
    shutil.rmtree(retired)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def misplacement(folder: Path, about: Manifest) -> str:
    """Why a server takes no bundle from a folder that is not named after it, or nothing.

    Args:
        folder: The bundle's.
        about: Its manifest.
    """
    if (about.name, about.version) == (folder.parent.name, folder.name):
        return ""
    return (
        f"{folder}: the manifest is of {about.name} version {about.version}; `foretell publish` "
        "copies a bundle to another name or version"
    )


def publish(
    bundle: Path, repository: Path, *, name: str | None = None, version: str | None = None
) -> Path:
    """Copy a bundle, wherever it lies, into a repository; it appears whole or not at all.

    Args:
        bundle: Its folder.
        repository: Folder of bundles; made if it does not exist.
        name: The model's name there; its own by default.
        version: A whole number; the one after the newest by default.

    Returns:
        Its new folder, `<repository>/<name>/<version>`.

    Raises:
        BundleError: the bundle is damaged, name or version are not allowed, or the version exists.
        OSError: the repository cannot be written.
    """
    about = manifest.read(bundle)
    checksums.check(bundle, about.files)
    name = layout.check_name(name or about.name)
    version = layout.check_version(version or layout.next_version(repository, name))
    target = repository / name / version
    with appearing(target) as folder:
        for file in about.files:
            shutil.copyfile(bundle / file, folder / file)
        (folder / layout.MANIFEST).write_text(manifest_as(bundle, name, version))
    return target


def manifest_as(bundle: Path, name: str, version: str) -> str:
    """A bundle's manifest under another name and version; the rest as written, of any format."""
    fields = json.loads((bundle / layout.MANIFEST).read_bytes())
    return json.dumps({**fields, "name": name, "version": version}, indent=2) + "\n"
