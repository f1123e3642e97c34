"""From settings to a server: one process, or an engine, HTTP workers and their parent."""

from __future__ import annotations

import logging
from importlib import import_module
from pathlib import Path

from foretell.service import logs
from foretell.service.engine.limits import use_all_files, use_one_heap
from foretell.service.http.auth import Keys
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted by then is still answered.

    Raises:
        StartError: the settings, the device, the repository or an address does not allow it.
    """
    use_one_heap()
    use_all_files()
    logs.configure(settings.log_level, settings.log_format)
    for name in Settings.unknown():
        _logger.warning("no setting is called %s: it is ignored", name)
    # Once for all processes, and before anything is loaded.
    Keys.read(settings)
    if not isinstance(settings.models, Path):
        # Where a library is missing, this import says so.
        import_module("foretell.storage.location")
    # The parent of several processes needs no libraries of a server.
    several = settings.workers > 1
    import_module(f"foretell.service.{'workers' if several else 'server'}").run(settings)
