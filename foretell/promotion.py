"""Changes of pins and challengers in a repository, for commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from foretell.bundle import layout, manifest, serving
from foretell.bundle.errors import BundleError
from foretell.bundle.nearness import listed, suggestion
from foretell.bundle.serving import NOTHING, Challenger, Serving
from foretell.storage import serving as stored
from foretell.storage.remote import Remote, open_remote, read_manifest

if TYPE_CHECKING:
    from foretell.client import Client


class Versions(Protocol):
    """The versions of a repository, with its pins and challengers."""

    def present(self) -> dict[str, list[str]]:
        """Versions with a manifest by name of their model, oldest first.

        Raises:
            StorageError: the repository's URL names one version only.
        """

    def missing(self, name: str, version: str) -> list[str]:
        """Files that a manifest names and that are not there."""

    def read(self, name: str) -> Serving:
        """Read the pin and the challenger of a model."""

    def write(self, name: str, roles: Serving) -> None:
        """Write the pin and the challenger of a model."""


class _InFolder:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __str__(self) -> str:
        return str(self._folder)

    def present(self) -> dict[str, list[str]]:
        names = layout.model_names(self._folder)
        return {name: layout.versions(self._folder, name) for name in names}

    def missing(self, name: str, version: str) -> list[str]:
        folder = self._folder / name / version
        return [file for file in manifest.read(folder).files if not (folder / file).is_file()]

    def read(self, name: str) -> Serving:
        return serving.read(self._folder, name)

    def write(self, name: str, roles: Serving) -> None:
        serving.write(self._folder, name, roles)


class _InRemote:
    def __init__(self, remote: Remote) -> None:
        self._remote = remote
        self._listing = remote.listing()

    def __str__(self) -> str:
        return str(self._remote)

    def present(self) -> dict[str, list[str]]:
        self._remote.check_whole()
        found: dict[str, list[str]] = {}
        for name, version in sorted(self._listing.versions, key=lambda key: int(key[1])):
            found.setdefault(name, []).append(version)
        return found

    def missing(self, name: str, version: str) -> list[str]:
        found = self._listing.open((name, version))
        return found.missing(read_manifest(found).files)

    def read(self, name: str) -> Serving:
        is_there = name in self._listing.serving
        return stored.read(self._remote, name) if is_there else NOTHING

    def write(self, name: str, roles: Serving) -> None:
        stored.write(self._remote, name, roles)


def open_versions(repository: str) -> Versions:
    """The versions of a folder, or of the repository at a URL.

    Raises:
        StorageError: the URL is invalid, or the repository cannot be listed.
    """
    if "://" not in repository:
        return _InFolder(Path(repository))
    return _InRemote(open_remote(repository))


def split(reference: str) -> tuple[str, str | None]:
    """Name and version of `MODEL` or `MODEL@VERSION`.

    Raises:
        BundleError: the name or the version is not allowed.
    """
    name, at, version = reference.partition("@")
    return layout.check_name(name), layout.check_version(version) if at else None


def promote(repository: Versions, name: str, version: str | None) -> str:
    """Pin a version of a model, or remove its pin; it is a challenger no longer.

    Args:
        repository: The repository.
        name: Name of the model.
        version: The version; None for the newest.

    Returns:
        The version that serves now.

    Raises:
        BundleError: there is no such version, or it is not complete; nothing has changed.
        StorageError: the repository cannot be read or written.
        OSError: likewise, for a folder.
    """
    present = _check(repository, name, version)
    serves = version or present[-1]
    challenger = repository.read(name).challenger
    if challenger is not None and challenger.version == serves:
        challenger = None
    repository.write(name, Serving(pin=version, challenger=challenger))
    return serves


def check_better(repository: Versions, name: str, version: str, client: Client) -> str:
    """Compare a version with the one that serves, by the ledger of a server.

    Returns:
        The verdict in words.

    Raises:
        BundleError: there is no such version, it serves now, or it is not better.
        StorageError: the repository cannot be read.
        ForetellError: the server does not answer, or keeps no ledger.
    """
    present = _check(repository, name, version)
    serves = repository.read(name).pin or present[-1]
    if version == serves:
        raise BundleError(f"{repository}: version {version} of {name} serves now")
    found = client.compare(name, serves, version)
    if found.verdict != "better":
        raise BundleError(f"{name}@{version} is not promoted: {found.sentence}")
    return found.sentence


def challenge(repository: Versions, name: str, version: str, share: float) -> None:
    """Let a version forecast a share of the requests, from above 0 to 1, once more.

    Raises:
        BundleError: there is no such version, it is not complete, or it serves now; nothing has
            changed.
        StorageError: the repository cannot be read or written.
        OSError: likewise, for a folder.
    """
    present = _check(repository, name, version)
    pin = repository.read(name).pin
    if version == (pin or present[-1]):
        how = "is pinned" if pin else "is the newest"
        raise BundleError(
            f"{repository}: version {version} of {name} serves now, as it {how}; a challenger is "
            f"another version, and `foretell promote {name}@VERSION` lets that one serve"
        )
    challenger = Challenger(version=version, share=share)
    repository.write(name, Serving(pin=pin, challenger=challenger))


def end_challenge(repository: Versions, name: str) -> None:
    """Remove the challenger of a model, if it has one.

    Raises:
        BundleError: there is no such model.
        StorageError: the repository cannot be read or written.
        OSError: likewise, for a folder.
    """
    _check(repository, name, None)
    repository.write(name, Serving(pin=repository.read(name).pin))


def _check(repository: Versions, name: str, version: str | None) -> list[str]:
    """Check that a version is there and complete; returns all of the model, oldest first."""
    present = repository.present()
    if name not in present:
        hint = suggestion(name, sorted(present)) if present else "there is none at all"
        raise BundleError(f"{repository}: there is no model {name}; {hint}")
    versions = present[name]
    if version is None:
        return versions
    if version not in versions:
        raise BundleError(
            f"{repository}: {name} has no version {version} with a {layout.MANIFEST}, but "
            f"{listed(versions)}"
        )
    if missing := repository.missing(name, version):
        others = [each for each in versions if each != version]
        rest = f"; other versions: {listed(others)}" if others else ""
        raise BundleError(
            f"{repository}: version {version} of {name} is incomplete, without {missing[0]}{rest}"
        )
    return versions
