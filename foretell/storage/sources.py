"""The bundle that a command line names."""

from __future__ import annotations

from pathlib import Path

from foretell.bundle import layout
from foretell.bundle.errors import BundleError


def find_bundle(text: str, cache: Path | None = None) -> Path:
    """A bundle's folder.

    Args:
        text: The folder, or `repository/name`, the newest version, or `repository/name@version`;
            or one of these as a URL, whose bundle is fetched.
        cache: Where fetched bundles are kept, as those of servers are.

    Raises:
        BundleError: there is none, or it cannot be fetched.
        StorageError: its repository is no URL, or cannot be read.
        OSError: the cache cannot be written.
    """
    if "://" in text:
        return _fetched(*_split(text), cache)
    path, at, version = text.rpartition("@")
    # A folder above may have the sign in its name.
    is_version = bool(at) and "/" not in version
    folder = Path(path) / layout.check_version(version) if is_version else layout.newest(Path(text))
    if not (folder / layout.MANIFEST).is_file():
        raise _missing(text)
    return folder.resolve()


def pinned(text: str, bundle: Path) -> str | None:
    """What names the bundle that was found, from any machine; None if it is a folder's path."""
    if "://" not in text:
        return None
    repository, name, _ = _split(text)
    return f"{repository}/{name}@{bundle.name}"


def _split(url: str) -> tuple[str, str, str]:
    """The repository, the name and the version of a URL; the version is empty if it has none."""
    head, _, last = url.rstrip("/").rpartition("/")
    last, _, version = last.partition("@")
    path = f"{head}/{last}"
    if not version and layout.VERSION.fullmatch(last) and "/" in head.partition("://")[2]:
        path, version = head, last
    repository, _, name = path.rpartition("/")
    if repository.endswith(":/"):
        raise BundleError(f"{url}: expected the URL of a model, s3://bucket/prefix/name")
    return repository, layout.check_name(name), version and layout.check_version(version)


def _fetched(repository: str, name: str, version: str, cache: Path | None) -> Path:
    # Needs a library that runs with folders do without.
    from foretell.storage.location import open_location
    from foretell.storage.mirror import Mirror, default_cache
    from foretell.storage.repository import list_contents

    location = open_location(repository)
    known = [own for found, own in list_contents(location).versions if found == name]
    if not known or version not in ("", *known):
        raise _missing(location.of("/".join(filter(None, (name, version)))))
    version = version or max(known, key=int)
    # Of all there is, this alone is wanted.
    mirror = Mirror(location, cache or default_cache(), lambda *_: ())
    mirror.refresh(name, version)
    if (reason := mirror.failures.get((name, version))) is not None:
        raise BundleError(f"{location}: {reason}")
    return mirror.folder / name / version


def _missing(text: str) -> BundleError:
    return BundleError(f"{text}: there is no bundle, which has a {layout.MANIFEST}")
