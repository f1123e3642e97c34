"""The bundles of a repository: its folder, and its mirror."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.nearness import Index, listed
from foretell.service.engine.policy import Policy
from foretell.service.engine.registry import Registry
from foretell.service.errors import (
    LoadFailedError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.settings import Settings
from foretell.storage.errors import StorageError
from foretell.storage.mirror import Mirror, default_cache
from foretell.storage.remote import open_remote

_logger = logging.getLogger(__name__)

# Fingerprints of bundles, by name and version.
Fingerprints = dict[str, dict[str, str]]


class ModelStore:
    """The bundles `<folder>/<name>/<version>/`: folders that are not hidden, with a manifest."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bundle(self, name: str, version: str) -> Path:
        return self.folder / name / version

    def has(self, name: str, version: str) -> bool:
        """Whether a bundle is there; raises OSError if the folder cannot be read."""
        return (self.bundle(name, version) / layout.MANIFEST).is_file()

    def is_removed(self, name: str, version: str) -> bool:
        """Whether a bundle is certainly not there."""
        try:
            return not self.has(name, version)
        except OSError:
            return False

    def versions(self) -> list[tuple[str, str]]:
        """Name and version of every bundle; none if the folder cannot be read."""
        try:
            return [
                (name, version)
                for name in layout.model_names(self.folder)
                for version in layout.versions(self.folder, name)
            ]
        except (BundleError, OSError):
            return []

    def nearest(self) -> Path | None:
        """A repository one level above or below this folder, or None."""
        folder = self.folder.absolute()
        if (folder / layout.MANIFEST).is_file():
            return folder.parent.parent
        for other in (folder.parent, *sorted(folder.iterdir())):
            with suppress(BundleError, OSError):
                if layout.model_names(other):
                    return other
        return None

    def find(self, name: str, version: str | None = None) -> list[str]:
        """Versions of a model, oldest first; or UnknownModelError, UnknownVersionError."""
        present = self.versions()
        versions = [each for known, each in present if known == name]
        if not versions:
            raise UnknownModelError.among(name, Index(dict(present)), "in the repository")
        if version is not None and version not in versions:
            raise UnknownVersionError(
                f"the repository has no version {version[:32]!r} of {name}, but {listed(versions)}",
                param="model",
            )
        return versions

    def fingerprint(self, name: str, version: str) -> str:
        """A text that changes when a file of a bundle is written, touched, added or removed."""
        folder = self.bundle(name, version)
        stamps = [_stamp(folder / layout.MANIFEST)]
        for file in sorted(folder.iterdir()):
            # Copying programs write to hidden files first, which may have been removed.
            if file.name != layout.MANIFEST and not file.name.startswith("."):
                with suppress(FileNotFoundError):
                    stamps.append(_stamp(file))
        return sha256("".join(stamps).encode()).hexdigest()

    def fingerprints(self) -> Fingerprints:
        """Fingerprints of all bundles; BundleError without the folder, OSError if unreadable."""
        found: Fingerprints = {}
        for name in layout.model_names(self.folder):
            for version in layout.versions(self.folder, name):
                try:
                    fingerprint = self.fingerprint(name, version)
                except FileNotFoundError:
                    # It has just been removed.
                    continue
                except OSError as error:
                    # A load of it fails with this error.
                    fingerprint = str(error)
                found.setdefault(name, {})[version] = fingerprint
        return found


def _stamp(file: Path) -> str:
    found = file.stat()
    times = f"{found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{file.name} {found.st_dev} {found.st_ino} {found.st_size} {times}\n"


def open_mirror(settings: Settings, policy: Policy) -> tuple[Path, Mirror | None]:
    """The folder of the bundles, and its mirror if the repository is a URL."""
    if isinstance(settings.models, Path):
        return settings.models, None

    def choose(name: str, present: Iterable[str]) -> list[str]:
        policy.read(mirror.folder, name)
        return policy.choose(name, present)

    try:
        remote = open_remote(settings.models)
    except StorageError as error:
        raise StartError(str(error)) from None
    mirror = Mirror(remote, settings.cache or default_cache(), choose)
    return mirror.folder, mirror


def fill(store: ModelStore, mirror: Mirror | None) -> None:
    """Fill the folder at the start; its bundles are enough if the repository cannot be read."""
    if mirror is None:
        return
    try:
        mirror.refresh()
    except OSError as error:
        raise StartError(f"the cache cannot be written (FORETELL_CACHE): {error}") from error
    except StorageError as error:
        if not store.versions():
            raise StartError(f"model repository {error}") from error
        _logger.warning("serves bundles that were fetched before: %s", error)


def fetch(mirror: Mirror | None, name: str, version: str | None) -> None:
    """Mirror the versions to load; if the repository fails, the folder may still have them.

    LoadFailedError: the version could not be fetched.
    """
    if mirror is None:
        return
    try:
        mirror.refresh(name, version)
    except (StorageError, OSError) as error:
        _logger.warning("the load uses bundles that were fetched before: %s", error)
    failures = mirror.failures
    if version is not None and (name, version) in failures:
        raise LoadFailedError(f"{name}@{version}: {failures[name, version]}", param="model")


def refuse_to_start(store: ModelStore, mirror: Mirror | None, registry: Registry) -> None:
    """Raise StartError with the reasons why no version could be loaded, if there are any."""
    reasons = [f"  {state.refused}" for _, _, state in registry if state.refused]
    if not reasons and not store.versions():
        raise StartError(nothing_here(store, mirror))
    # There is no reason if all names are pinned to missing versions.
    if reasons:
        raise StartError(
            "\n".join(
                [f"model repository {mirror or store.folder}: no bundle could be loaded:", *reasons]
            )
        )


def nothing_here(store: ModelStore, mirror: Mirror | None) -> str:
    """A message about a repository without bundles."""
    hint = "`foretell export` writes them as <name>/<version>/"
    if mirror is not None:
        hint = "`foretell publish` writes them there"
    elif near := store.nearest():
        hint = f"did you mean {near}?"
    return f"model repository {mirror or store.folder}: no bundle in it; {hint}"
