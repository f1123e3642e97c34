"""The bundles in a repository's folder, and which of them the operator wants served."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import sha256
from os import stat_result
from pathlib import Path

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.nearness import Index, listed
from foretell.service.errors import UnknownModelError, UnknownVersionError
from foretell.service.settings import VersionChoice

Fingerprints = dict[str, dict[str, str]]


class Policy:
    """The operator's choice of versions.

    Args:
        versions: `all` loads every version; `latest` the newest of each model, or the pinned one.
        pins: The version that a name means, for models where that is not the newest one.
    """

    def __init__(
        self, versions: VersionChoice = "all", pins: Mapping[str, str] | None = None
    ) -> None:
        self.pins = dict(pins or {})
        self.only_latest = versions == "latest"

    def choose(self, name: str, present: Iterable[str]) -> list[str]:
        """The versions to load of those present, the first choice first."""
        newest_first = sorted(present, key=int, reverse=True)
        if not self.only_latest:
            return newest_first
        if name in self.pins:
            return [version for version in newest_first if version == self.pins[name]]
        return newest_first[:1]

    def may_fall_back(self, name: str) -> bool:
        """Whether an older version may be loaded where the chosen one is refused at the start."""
        return self.only_latest and name not in self.pins


class ModelStore:
    """What a repository's folder holds; hidden folders and those without a manifest do not count.

    Args:
        folder: `<folder>/<name>/<version>/` are bundles.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def bundle(self, name: str, version: str) -> Path:
        """The folder of a bundle."""
        return self.folder / name / version

    def has(self, name: str, version: str) -> bool:
        """Whether a bundle is there.

        Raises:
            OSError: that cannot be told.
        """
        return (self.bundle(name, version) / layout.MANIFEST).is_file()

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
        """The repository that this folder is a part of, or a level above; None if there is none."""
        folder = self.folder.absolute()
        if (folder / layout.MANIFEST).is_file():
            return folder.parent.parent
        for other in (folder.parent, *sorted(folder.iterdir())):
            with suppress(BundleError, OSError):
                if layout.model_names(other):
                    return other
        return None

    def find(self, name: str, version: str | None = None) -> list[str]:
        """Versions of a model, oldest first.

        Raises:
            UnknownModelError: there is none.
            UnknownVersionError: there are some, and not the given one.
        """
        present = self.versions()
        versions = [own for known, own in present if known == name]
        if not versions:
            raise UnknownModelError.among(name, Index(dict(present)), "in the repository")
        if version is not None and version not in versions:
            raise UnknownVersionError(
                f"the repository has no version {version[:32]!r} of {name}, but {listed(versions)}",
                param="model",
            )
        return versions

    def fingerprint(self, name: str, version: str) -> str:
        """What differs when a file of a bundle was written, replaced, added or removed.

        It differs, too, where a file was only touched.

        Raises:
            OSError: there is no such bundle.
        """
        folder = self.bundle(name, version)
        found = [_stamp(layout.MANIFEST, (folder / layout.MANIFEST).stat())]
        for file in sorted(folder.iterdir()):
            # Programs that copy write to hidden files first, which may be gone by now.
            if file.name != layout.MANIFEST and not file.name.startswith("."):
                with suppress(FileNotFoundError):
                    found.append(_stamp(file.name, file.stat()))
        return sha256("".join(found).encode()).hexdigest()

    def fingerprints(self) -> Fingerprints:
        """Fingerprints of all bundles, by name and version.

        Raises:
            BundleError: there is no such folder.
            OSError: it cannot be read.
        """
        found: Fingerprints = {}
        for name in layout.model_names(self.folder):
            for version in layout.versions(self.folder, name):
                try:
                    fingerprint = self.fingerprint(name, version)
                except FileNotFoundError:
                    # It went at this moment.
                    continue
                except OSError as error:
                    # Whoever tries to load it says so.
                    fingerprint = str(error)
                found.setdefault(name, {})[version] = fingerprint
        return found


def _stamp(name: str, found: stat_result) -> str:
    times = f"{found.st_mtime_ns} {found.st_ctime_ns}"
    return f"{name} {found.st_dev} {found.st_ino} {found.st_size} {times}\n"


def without_folder(text: str, folder: Path) -> str:
    """A message whose paths begin at the repository, for callers whom the rest does not concern.

    Args:
        text: The message.
        folder: The repository's, whose paths some libraries write out in full.
    """
    paths = "|".join(re.escape(str(path)) for path in (folder.absolute(), folder))
    return re.sub(rf"(?<![\w./-])(?:{paths})/", "", text)
