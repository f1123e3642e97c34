"""Where the bundles of a repository come from, if they are not put into its folder."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.service.engine.store import ModelStore
from foretell.service.errors import StartError
from foretell.service.settings import Settings
from foretell.storage.errors import StorageError

if TYPE_CHECKING:
    # Needs a library that servers of folders do without.
    from foretell.storage.mirror import Mirror

_logger = logging.getLogger(__name__)


def open_source(
    settings: Settings, choose: Callable[[str, Iterable[str]], Iterable[str]]
) -> tuple[Path, Mirror | None]:
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


def fill(store: ModelStore, source: Mirror | None) -> None:
    """Have a folder filled at the start; what it holds is enough where its source cannot be read.

    Args:
        store: Of the folder.
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
        if not store.versions():
            raise StartError(f"model repository {error}") from error
        _logger.warning("models are served as they were fetched before: %s", error)
