"""A server: one process, or several that share its port."""

from __future__ import annotations

import logging
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from foretell.service.settings import Settings
from foretell.service.supervision.member import Member
from foretell.service.supervision.supervisor import Pulse, Supervisor
from foretell.service.telemetry import logs
from foretell.service.web.keys import Keys
from foretell.service.web.sockets import reserve

_logger = logging.getLogger(__name__)

# Besides the grace period: to close models, and to write the last lines of the log.
_END_SECONDS = 5.0


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
        ports = {"port": stack.enter_context(reserve(settings.host, settings.port))}
        if settings.operations_port is not None:
            other = reserve(settings.host, settings.operations_port)
            ports["operations_port"] = stack.enter_context(other)
        found = {name: socket.getsockname()[1] for name, socket in ports.items()}
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="foretell-")))
        supervisor = Supervisor(
            partial(_work, settings.model_copy(update=found), folder),
            settings.workers,
            stop_seconds=settings.grace_seconds + _END_SECONDS,
            on_end=lambda slot: Member(folder, slot).forget(),
        )
        if not supervisor.run():
            sys.exit(1)


def _work(settings: Settings, folder: Path, slot: int, pulse: Pulse) -> None:
    from foretell.service.server import run

    logs.configure(settings.log_level, settings.log_format)
    run(settings, Member(folder, slot), pulse)
