"""Starts a server from settings: one process, or an engine, HTTP workers and their parent."""

from __future__ import annotations

import logging
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from foretell.service import logs
from foretell.service.engine.limits import use_all_files, use_one_heap
from foretell.service.errors import StartError
from foretell.service.http.auth import Keys
from foretell.service.settings import Settings
from foretell.storage.errors import StorageError
from foretell.storage.remote import open_remote

_logger = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; accepted requests are still answered.

    Raises:
        StartError: the settings, the device, the repository or an address is unusable, or a
            library is missing.
    """
    use_one_heap()
    use_all_files()
    logs.configure(settings.log_level, settings.log_format)
    for name in Settings.unknown():
        _logger.warning("no setting is called %s: it is ignored", name)
    # Checked once for all processes, before anything is loaded.
    Keys.read(settings)
    if settings.mcp and find_spec("mcp") is None:
        raise StartError("FORETELL_MCP: mcp is not installed; install foretell with the extra mcp")
    if not isinstance(settings.models, Path):
        # The URL may be invalid, or a library missing.
        try:
            open_remote(settings.models)
        except StorageError as error:
            raise StartError(str(error)) from None
    # The parent of several processes does not need the server's libraries.
    several = settings.workers > 1
    import_module(f"foretell.service.{'workers' if several else 'server'}").run(settings)
