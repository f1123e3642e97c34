"""From settings to a running server, and its graceful end."""

from __future__ import annotations

import logging
import socket
from functools import partial
from pathlib import Path
from types import FrameType

import uvicorn

from service import logs
from service.app import create_app
from service.errors import StartError
from service.metrics import Metrics
from service.model import Capacity, Model
from service.repository import Repository
from service.runtime import Runtime
from service.settings import Settings

_logger = logging.getLogger(__name__)


def serve(settings: Settings) -> None:
    """Serve until SIGTERM or SIGINT; what was accepted by then is still answered.

    Raises:
        StartError: the runtime, the repository or the address does not allow it.
    """
    logs.configure(settings.log_level, settings.log_format)
    for name in Settings.unknown():
        _logger.warning("no setting is called %s: it is ignored", name)
    with _listen(settings.host, settings.port) as listener:
        metrics = Metrics()
        repository = load(settings, metrics)
        config = uvicorn.Config(
            create_app(settings, repository, metrics),
            http="httptools",
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(settings.grace_seconds)),
        )
        _Server(config, repository).run(sockets=[listener])


def load(settings: Settings, metrics: Metrics) -> Repository:
    """Load the repository on the device of the settings.

    Raises:
        StartError: the device does not work, or no model could be loaded.
    """
    runtime = Runtime(settings.device)
    capacity = Capacity(settings.workers, settings.max_batch, settings.max_queue)
    repository = Repository.load(settings.models, partial(_open, runtime, capacity, metrics))
    for model in repository.models:
        metrics.add_model(model)
    return repository


def _open(runtime: Runtime, capacity: Capacity, metrics: Metrics, folder: Path) -> Model:
    return Model(folder, runtime, capacity, metrics.observer(folder.parent.name, folder.name))


def _listen(host: str, port: int) -> socket.socket:
    """Take the address before anything is loaded: a wrong one should fail at once."""
    try:
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
        )
    except OSError as error:
        raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


class _Server(uvicorn.Server):
    """Ends with exit status 0 when asked to stop, and says at once that it is not ready."""

    def __init__(self, config: uvicorn.Config, repository: Repository) -> None:
        super().__init__(config)
        self._repository = repository

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to answer, and say where."""
        await super().startup(sockets)
        for listener in sockets or ():
            host, port = listener.getsockname()[:2]
            address = f"[{host}]" if ":" in host else host
            names = ", ".join(self._repository.names)
            _logger.info("serving %s on http://%s:%s", names, address, port)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Begin to stop; asked a second time, stop at once."""
        self._repository.drain()
        self.force_exit = self.should_exit
        self.should_exit = True
