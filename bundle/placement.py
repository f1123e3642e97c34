"""Atomic placement of bundles in a repository, without replacing existing ones."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from foretell.bundle import checksums, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest


def check_free(target: Path) -> None:
    """Check that a version does not exist yet.

    Raises:
        BundleError: it exists.
    """
    if target.exists():
        raise BundleError(f"{target}: exists already; bundles are never changed")


@contextmanager
def appearing(target: Path, *, replace: bool = False) -> Iterator[Path]:
    """A folder to fill with files, which becomes `target` at the end; an error leaves nothing.

    All files are synced to disk before `target` appears.

    Args:
        target: Path of the finished folder.
        replace: Replace an existing folder.

    Raises:
        BundleError: `target` existed before, or another writer made it meanwhile.
    """
    if not replace:
        check_free(target)
    made = [folder for folder in target.parents if not folder.exists()]
    folder = _hidden(target)
    try:
        folder.mkdir(parents=True)
        yield folder
        for path in (*folder.iterdir(), folder):
            sync(path)
        if replace and target.exists():
            _exchange(folder, target)
        else:
            _move(folder, target)
        sync(target.parent)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        with suppress(OSError):
            for empty in made:
                empty.rmdir()


def _hidden(target: Path) -> Path:
    """A folder beside `target`; the leading dot keeps it out of listings."""
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


def sync(path: Path) -> None:
    """Write a file or folder through to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def misplacement(folder: Path, about: Manifest) -> str:
    """Why a server refuses a bundle from this folder; empty if the names match.

    Args:
        folder: Folder of the bundle.
        about: Manifest of the bundle.
    """
    if (about.name, about.version) == (folder.parent.name, folder.name):
        return ""
    return (
        f"{folder}: the manifest is of {about.name} version {about.version}; `foretell publish` "
        "copies a bundle to another name or version"
    )


# Makes a signature of a name, the content of a manifest, and the checksums in it.
MakeSignature = Callable[[str, bytes, Mapping[str, str]], bytes]


def publish(
    bundle: Path,
    repository: Path,
    *,
    name: str | None = None,
    version: str | None = None,
    sign: MakeSignature | None = None,
) -> Path:
    """Copy a bundle into a repository; it appears whole or not at all.

    Args:
        bundle: Folder of the bundle.
        repository: Folder of bundles; made if it does not exist.
        name: Name of the model there; its own by default.
        version: A whole number; the one after the newest by default.
        sign: Signs the published bundle.

    Returns:
        The new folder, `<repository>/<name>/<version>`.

    Raises:
        BundleError: the bundle is damaged, name or version are not allowed, the version exists, or
            a signature would be lost.
        OSError: the repository cannot be written.
    """
    content, about = manifest.read_both(bundle)
    checksums.check(bundle, about.files)
    name = layout.check_name(name or about.name)
    version = layout.check_version(version or layout.next_version(repository, name))
    target = repository / name / version
    content, signature = published(bundle, content, name, version, sign)
    with appearing(target) as folder:
        for file in about.files:
            shutil.copyfile(bundle / file, folder / file)
        if signature is not None:
            (folder / layout.SIGNATURE).write_bytes(signature)
        (folder / layout.MANIFEST).write_bytes(content)
    return target


def published(
    bundle: Path, content: bytes, name: str, version: str, sign: MakeSignature | None = None
) -> tuple[bytes, bytes | None]:
    """The manifest and the signature of a bundle under a name and version.

    Under its own name and version the manifest stays as it is, and so does its signature.

    Args:
        bundle: Folder of the bundle.
        content: Content of its manifest.
        name: Name of the model.
        version: The version.
        sign: Signs the published bundle.

    Returns:
        The content of the manifest, and that of the signature, if there is one.

    Raises:
        BundleError: a signature would be lost.
    """
    fields, signature = json.loads(content), bundle / layout.SIGNATURE
    own = fields["name"], fields["version"]
    if (name, version) != own:
        fields |= {"name": name, "version": version}
        content = json.dumps(fields, indent=2).encode() + b"\n"
    if sign is not None:
        return content, sign(name, content, fields["files"])
    if not signature.exists():
        return content, None
    if (name, version) != own:
        raise BundleError(
            f"{signature}: signs {own[0]} version {own[1]}, not {name} version {version}; "
            f"--sign-with signs it again, or --name {own[0]} --model-version {own[1]} keeps it"
        )
    return content, signature.read_bytes()
