"""The bundles of a repository, a folder or a URL."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, ParamSpec, TypeVar

import click

from foretell.bundle import layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.bundle.serving import Serving
from foretell.promotion import Versions
from foretell.storage.remote import Version, open_remote, read_manifest
from foretell.terminal.tables import Facts, show

_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

# Parallel requests: each answer may be slow.
_THREADS = 8
_COLUMNS = (
    *("model", "version", "architecture", "channels", "context", "horizon", "step"),
    *("size", "written"),
)


class Listed(NamedTuple):
    """A version of a model.

    Attributes:
        name: Name of the model.
        version: The version.
        at: Time at which the manifest was written; None if it is unknown.
        size: Size of its files in bytes; None if it is unknown.
        about: Manifest, or the error of reading it.
    """

    name: str
    version: str
    at: datetime | None
    size: int | None
    about: Manifest | BundleError


def in_folder(repository: Path) -> list[Listed]:
    """The bundles in a folder, by name, oldest first.

    Raises:
        BundleError: there is no such folder.
        OSError: the folder or a file in it cannot be read.
    """
    found = []
    for name in layout.model_names(repository):
        for version in layout.versions(repository, name):
            folder = repository / name / version
            at = datetime.fromtimestamp((folder / layout.MANIFEST).stat().st_mtime, UTC)
            size = sum(file.stat().st_size for file in folder.iterdir())
            found.append(Listed(name, version, at, size, _tried(manifest.read, folder)))
    return found


def in_remote(url: str) -> list[Listed]:
    """The bundles under a URL, by name, oldest first.

    Raises:
        StorageError: the URL is invalid, or the repository cannot be listed or read.
    """
    found = open_remote(url).listing()

    def one(key: Version) -> Listed:
        version = _tried(found.open, key)
        if isinstance(version, BundleError):
            return Listed(*key, None, None, version)
        about = _tried(read_manifest, version)
        files = about.files if isinstance(about, Manifest) else {}
        return Listed(*key, version.at, version.size(files), about)

    with ThreadPoolExecutor(_THREADS) as pool:
        return list(pool.map(one, sorted(found.versions, key=lambda key: (key[0], int(key[1])))))


def said_in(repository: Versions, names: Iterable[str]) -> dict[str, Serving | BundleError]:
    """Pins and challengers of models, or the errors of reading them.

    Raises:
        StorageError: the repository cannot be read.
    """
    return {name: _tried(repository.read, name) for name in names}


def _tried(
    read: Callable[_Given, _Found], *given: _Given.args, **named: _Given.kwargs
) -> _Found | BundleError:
    try:
        return read(*given, **named)
    except BundleError as error:
        return error


def print_bundles(bundles: list[Listed], serving: Mapping[str, Serving | BundleError]) -> None:
    """Print a table of bundles, and errors of those that cannot be read.

    Args:
        bundles: The bundles.
        serving: Pins and challengers by model, or the errors of reading them.
    """
    known = {name: each for name, each in serving.items() if isinstance(each, Serving)}
    roles = {key: role for name, each in known.items() for key, role in _roles(name, each)}
    has_roles, rows = bool(roles), []
    for name, version, at, size, about in bundles:
        cells: tuple[str, ...] = ("unreadable", "", "", "", "")
        if isinstance(about, Manifest):
            steps = map(str, (about.context, about.horizon, about.frequency))
            cells = (about.architecture, _channels(about), *steps)
        written = (
            "" if size is None else f"{size / 1e6:,.1f} MB",
            "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC",
        )
        role = (roles.pop((name, version), ""),) if has_roles else ()
        rows.append((name, version, *cells, *written, *role))
    show(Facts("", (*_COLUMNS, *(("serving",) if has_roles else ())), rows))
    for bundle in bundles:
        if isinstance(bundle.about, BundleError):
            click.echo(str(bundle.about))
    for each in serving.values():
        if isinstance(each, BundleError):
            click.echo(str(each))
    for (name, version), missing in roles.items():
        click.echo(f"{name}: version {version} is {missing}, and not there")


def _roles(name: str, roles: Serving) -> Iterator[tuple[tuple[str, str], str]]:
    """Name and version of the versions that a repository names, and what they are."""
    if roles.pin is not None:
        yield (name, roles.pin), "pinned"
    if roles.challenger is not None:
        yield (name, roles.challenger.version), f"challenger for {roles.challenger.share:.3g}"


def _channels(about: Manifest) -> str:
    """The number of channels that a model reads; also of those it forecasts, if fewer."""
    read, forecast = len(about.channels), len(about.targets)
    return str(read) if read == forecast else f"{forecast} of {read}"
