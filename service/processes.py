"""A server: one process, or an engine and several doors."""

from __future__ import annotations

import logging
import socket
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from foretell.service.settings import Settings
from foretell.service.supervisor import Pulse, Role, Supervisor
from foretell.service.telemetry import logs
from foretell.service.web.keys import Keys
from foretell.service.web.sockets import reserve

_logger = logging.getLogger(__name__)

# Besides the grace period: to close models, and to write the last lines of the log.
_END_SECONDS = 5.0
# Its loop only passes on what doors and workers say.
_STUCK_SECONDS = 15
_BACKLOG = 128


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted by then is still answered.

    Raises:
        StartError: the settings, the device, the repository or an address does not allow it.
    """
    logs.configure(settings.log_level, settings.log_format)
    for name in Settings.unknown():
        _logger.warning("no setting is called %s: it is ignored", name)
    # Once for all processes, and before anything is loaded.
    Keys.read(settings)
    if settings.workers > 1:
        _serve_by_several(settings)
    else:
        # Imported by those who serve, not by the one who watches over them.
        from foretell.service.server import run

        run(settings)


def _serve_by_several(settings: Settings) -> None:
    with ExitStack() as stack:
        # They belong to this process: while a door is replaced, callers wait in its backlog.
        reserved = [reserve(settings.host, settings.port, settings.workers)]
        if settings.operations_port is not None:
            reserved.append(reserve(settings.host, settings.operations_port, settings.workers))
        for each in (each for port in reserved for each in port):
            stack.enter_context(each)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretell-")))
        path = folder / "engine"
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        listener.bind(str(path))
        listener.listen(_BACKLOG)
        doors = [
            Role(f"door-{number}", partial(_open_door, settings, path, list(sockets)))
            for number, sockets in enumerate(zip(*reserved, strict=True))
        ]
        engine = Role("engine", partial(_run_engine, settings, listener), _STUCK_SECONDS)
        stop_seconds = settings.unready_seconds + settings.grace_seconds + _END_SECONDS
        supervisor = Supervisor([*doors, engine], stop_seconds=stop_seconds)
        if not supervisor.run(together=len(doors)):
            sys.exit(1)


def _open_door(settings: Settings, path: Path, sockets: list[socket.socket], pulse: Pulse) -> None:
    from foretell.service.server import run_door

    logs.configure(settings.log_level, settings.log_format)
    run_door(settings, path, sockets, pulse)


def _run_engine(settings: Settings, listener: socket.socket, pulse: Pulse) -> None:
    from foretell.service.loading import run_engine

    logs.configure(settings.log_level, settings.log_format)
    run_engine(settings, listener, pulse)
