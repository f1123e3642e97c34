"""A server on a cluster, from its start to its end."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from contextlib import suppress

import ray
from ray import serve as ray_serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from foretell.bundle.errors import BundleError
from foretell.service import logs
from foretell.service.engine.catalogue import Catalogue, Policy
from foretell.service.engine.source import fill, open_source
from foretell.service.errors import StartError
from foretell.service.ray.app import TALLY, Plan, application
from foretell.service.ray.proxy import CALLBACK, PATH
from foretell.service.settings import Settings
from foretell.service.web.keys import Keys

_logger = logging.getLogger(__name__)

# A request ends by its own deadline; Ray's is for what got stuck.
_MARGIN_SECONDS = 5.0
# Between looks at whether doors have answered all, and for one of them.
_LOOK_SECONDS, _ANSWER_SECONDS = 0.5, 2.0
_NAME = "foretell"


def serve(settings: Settings, plan: Plan, address: str | None) -> None:
    """Serve on a cluster until SIGTERM or SIGINT; what was accepted by then is still answered.

    Args:
        settings: Of every door and engine.
        plan: How the cluster is used.
        address: Of the cluster; None begins one on this machine, which ends with the server.

    Raises:
        StartError: the settings, the repository or the cluster does not allow it.
    """
    logs.configure(settings.log_level, settings.log_format)
    for name in Settings.unknown():
        _logger.warning("no setting is called %s: it is ignored", name)
    Keys.read(settings)
    app = application(settings, plan)
    if address is None:
        # Of another machine's folder the doors tell.
        _look_at(settings)
    try:
        _connect(address)
        stopping = _stopping()
        ray_serve.start(
            proxy_location="EveryNode",
            http_options={
                "host": settings.host,
                "port": settings.port,
                "request_timeout_s": settings.timeout_seconds + _MARGIN_SECONDS,
                "keep_alive_timeout_s": round(settings.keep_alive_seconds),
            },
        )
        ray_serve.run(app, name=_NAME, route_prefix="/")
        _logger.info("serving on http://%s:%s", settings.host, settings.port)
        stopping.wait()
        # Of a cluster or an application that is gone nothing more is to be had.
        with suppress(RayError, RayServeException, KeyError):
            drain(settings.grace_seconds)
    except (ConnectionError, RuntimeError, RayServeException) as error:
        raise StartError(str(error)) from error
    finally:
        if ray.is_initialized():
            _end(joined=address is not None)
            ray.shutdown()


def drain(seconds: float) -> None:
    """Have doors refuse what comes and finish what they have accepted, while there are engines.

    Ray ends doors and engines at once: what waits at a door for an engine would wait in vain.

    Args:
        seconds: Most time that it takes, but for the last answer.

    Raises:
        RayError: the cluster is gone; `RayServeException` likewise.
        KeyError: the application is gone.
    """
    stop = ray_serve.get_deployment_handle(TALLY, _NAME).options(method_name="stop")
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        # A tally may be late, and another one takes the place of one that is lost.
        with suppress(RayError, RayServeException, TimeoutError):
            if stop.remote().result(timeout_s=_ANSWER_SECONDS):
                return
        time.sleep(_LOOK_SECONDS)


def _end(*, joined: bool) -> None:
    """End the application, and Ray Serve unless a cluster that was joined has others, too."""
    # Of a cluster that is gone nothing is left to end.
    with suppress(RayError):
        if joined and ray_serve.status().applications.keys() - {_NAME}:
            ray_serve.delete(_NAME)
        else:
            ray_serve.shutdown()  # type: ignore[no-untyped-call]


def _look_at(settings: Settings) -> None:
    folder, source = open_source(settings, Policy(settings.versions, settings.pin).choose)
    catalogue = Catalogue(folder)
    fill(catalogue, source)
    try:
        found = catalogue.fingerprints()
    except (BundleError, OSError) as error:
        raise StartError(f"model repository {error}") from error
    if not found and settings.watch_seconds is None:
        raise StartError(f"model repository {settings.models}: holds no bundle")


def _connect(address: str | None) -> None:
    # Nothing is told to Ray's makers, unless the operator wants that.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Nodes of another cluster have environments of their own.
    os.environ.setdefault(CALLBACK, PATH)
    ray.init(address=address or "local", include_dashboard=None if address else False)


def _stopping() -> threading.Event:
    """What is set at the first signal to stop; Ray has its own handlers before."""
    asked = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: asked.set())
    return asked
