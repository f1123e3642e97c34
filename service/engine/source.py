"""Where the bundles of a repository come from, if they are not put into its folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Protocol

from foretell.service.engine.catalogue import Catalogue
from foretell.service.errors import StartError
from foretell.service.settings import Settings
from foretell.storage.errors import StorageError

_logger = logging.getLogger(__name__)


class Source(Protocol):
    """Fills the folder of a repository; see `Mirror`.

    Attributes:
        failures: Why versions are not in the folder, or not as they are in the source.
        read_at: When the source was last read, in seconds since 1970; 0 before.
    """

    failures: Mapping[tuple[str, str], str]
    read_at: float

    def refresh(self, name: str | None = None, version: str | None = None) -> None:
        """Bring the folder up to date, with a version that is wanted, too.

        Raises:
            StorageError: the source cannot be read; the folder is as it was.
            OSError: the folder cannot be written.
        """

    def stop(self) -> None:
        """Break off what is being fetched."""


def open_source(
    settings: Settings, choose: Callable[[str, Iterable[str]], Iterable[str]]
) -> tuple[Path, Source | None]:
    """The folder of the bundles, and what fills it; None where others do.

    Args:
        settings: The repository, and where it is kept.
        choose: The versions to fetch of a model, of those there are.

    Raises:
        StartError: the URL is wrong, or the environment does not say enough.
    """
    if isinstance(settings.models, Path):
        return settings.models, None
    # Needs a library that servers of folders do without.
    from foretell.storage.location import open_location
    from foretell.storage.mirror import Mirror, default_cache

    try:
        location = open_location(settings.models)
    except StorageError as error:
        raise StartError(str(error)) from None
    mirror = Mirror(location, settings.cache or default_cache(), choose)
    return mirror.folder, mirror


def fill(catalogue: Catalogue, source: Source | None) -> None:
    """Have a folder filled at the start; what it holds is enough where its source cannot be read.

    Args:
        catalogue: Of the folder.
        source: What fills it, if anything does.

    Raises:
        StartError: the folder cannot be written, or is empty, and its source cannot be read.
    """
    if source is None:
        return
    try:
        source.refresh()
    except OSError as error:
        raise StartError(f"the cache cannot be written (FORETELL_CACHE): {error}") from error
    except StorageError as error:
        if not catalogue.versions():
            raise StartError(f"model repository {error}") from error
        _logger.warning("models are served as they were fetched before: %s", error)
