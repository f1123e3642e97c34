"""Layout of a repository: `<repository>/<model>/<version>/<file>`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from foretell.bundle.errors import BundleError

MANIFEST = "manifest.json"
# The file of a model that says which version serves.
SERVING = "serving.json"
FORECAST_GRAPH = "forecast.onnx"
EXPLAIN_GRAPH = "explain.onnx"
WEIGHTS = "weights.bin"
PROBES = "probes.npz"
CALIBRATION = "calibration.npz"
EXAMPLE = "example.npz"
EVALUATION = "evaluation.npz"
# The model card.
CARD = "README.md"
# The signature of the manifest, if there is one.
SIGNATURE = "model.sig"
# Small files that a bundle may have and that its manifest does not name; the manifest is written
# after them.
BESIDE = (SIGNATURE,)
# Files of every bundle, besides the manifest.
FILES = (FORECAST_GRAPH, EXPLAIN_GRAPH, WEIGHTS, PROBES)

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
VERSION = re.compile(r"[1-9][0-9]{0,8}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def check_name(name: str) -> str:
    """Return a model name that is safe as a folder and in a URL.

    Raises:
        BundleError: the name is not 1 to 64 letters, digits, `_`, `.` or `-`, the first of them a
            letter or digit.
    """
    if not NAME.fullmatch(name):
        raise BundleError(
            f"model name {name[:80]!r}: expected 1 to 64 letters, digits, '_', '.' or '-', "
            "the first a letter or digit"
        )
    return name


def check_file(file: str) -> str:
    """Return the name of a file that a manifest may name.

    Raises:
        BundleError: it is not a plain name, or that of the manifest or of a file beside it.
    """
    if not _FILE.fullmatch(file) or file in (MANIFEST, *BESIDE):
        raise BundleError(f"{file[:80]!r} is not allowed as the name of a file")
    return file


def check_version(version: str) -> str:
    """Return a version, a whole number from 1, as servers of the Open Inference Protocol use.

    Raises:
        BundleError: the version is not such a number.
    """
    if not VERSION.fullmatch(version):
        raise BundleError(f"version {version[:40]!r}: expected a whole number from 1")
    return version


def model_names(repository: Path) -> list[str]:
    """Names of the models a repository holds, sorted.

    Raises:
        BundleError: the repository is not a folder.
    """
    if not repository.is_dir():
        raise BundleError(f"{repository}: no such folder")
    return sorted(
        entry.name
        for entry in repository.iterdir()
        if entry.is_dir() and NAME.fullmatch(entry.name) and versions(repository, entry.name)
    )


def versions(repository: Path, name: str) -> list[str]:
    """Versions of a model that have a manifest, oldest first."""
    folder = repository / check_name(name)
    found = folder.iterdir() if folder.is_dir() else iter(())
    return sorted(
        (
            entry.name
            for entry in found
            if VERSION.fullmatch(entry.name) and (entry / MANIFEST).is_file()
        ),
        key=int,
    )


def newest(folder: Path) -> Path:
    """The folder of a bundle: the given one, or the newest version in a model's folder."""
    folder = folder.resolve()
    if (folder / MANIFEST).is_file():
        return folder
    if NAME.fullmatch(folder.name) and (found := versions(folder.parent, folder.name)):
        return folder / found[-1]
    return folder


def next_version(repository: Path, name: str) -> str:
    """The version after the newest one present; `1` for a new model."""
    return version_after(versions(repository, name))


def version_after(present: Iterable[str]) -> str:
    """The version after the newest of some versions; `1` without any."""
    return str(max(map(int, present), default=0) + 1)
