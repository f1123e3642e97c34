"""Bundles that command lines name."""

from __future__ import annotations

from pathlib import Path

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.storage.mirror import Mirror, default_cache
from foretell.storage.oci import reference
from foretell.storage.remote import is_in_registry, open_remote


def find_bundle(text: str, cache: Path | None = None) -> Path:
    """Find a bundle's folder, and fetch the bundle if necessary.

    Args:
        text: Folder of the bundle, `repository/name` for the newest version, or
            `repository/name@version`; or the URL of one of these. In a registry
            `oci://registry/path/name`, with `:version` or `@digest` for one that is not the newest.
        cache: Folder for fetched bundles, which servers may share.

    Raises:
        BundleError: there is no such bundle, or it cannot be fetched.
        StorageError: the repository's URL is invalid, or the repository cannot be read.
        OSError: the cache cannot be written.
    """
    if "://" in text:
        return _fetched(*_split(text), cache)
    path, at, version = text.rpartition("@")
    # The name of a parent folder may contain @.
    is_version = bool(at) and "/" not in version
    folder = Path(path) / layout.check_version(version) if is_version else layout.newest(Path(text))
    if not (folder / layout.MANIFEST).is_file():
        raise _missing(text)
    return folder.resolve()


def pinned(text: str, bundle: Path) -> str | None:
    """The URL of a found bundle with its version; None if `text` is a path."""
    if "://" not in text:
        return None
    repository, name, _ = _split(text)
    if is_in_registry(text):
        found = reference.parse(text)
        return str(found if found.digest else found.of(bundle.name))
    return f"{repository}/{name}@{bundle.name}"


def _split(url: str) -> tuple[str, str, str]:
    """Repository, name and version of a URL; the version may be empty."""
    if is_in_registry(url):
        found = reference.parse(url)
        # A digest stays in the URL, which then has one version.
        return str(found.of("") if found.version else found), found.name, found.version
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
    remote = open_remote(repository)
    known = [own for found, own in remote.listing().versions if found == name]
    if not known or version not in ("", *known):
        raise _missing(remote.of(name, version))
    version = version or max(known, key=int)
    # Fetch this version only.
    mirror = Mirror(remote, cache or default_cache(), lambda *_: ())
    mirror.refresh(name, version)
    if (reason := mirror.failures.get((name, version))) is not None:
        raise BundleError(f"{remote}: {reason}")
    return mirror.folder / name / version


def _missing(text: str) -> BundleError:
    return BundleError(f"{text}: there is no bundle (no {layout.MANIFEST})")
