"""What one request runs through: `python -m bench.calls`.

Counts our own files, functions and Python calls (resumptions of coroutines included) of one
`POST /forecast` with one series, a key and a start time: in a door, in the engine's process, and on
its workers. Without the connection, the log's line and traces. The demo's models must be there
(`make demo`).
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import socket
import sys
import tempfile
import threading
from collections import Counter
from http import HTTPStatus
from pathlib import Path
from types import FrameType
from typing import Any

import orjson
import uvloop
from fastapi import FastAPI

from foretell.service.api.app import create_app
from foretell.service.engine.client import EngineClient
from foretell.service.engine.engine import Engine, LocalEngine
from foretell.service.engine.process import load
from foretell.service.engine.server import EngineServer
from foretell.service.http import examples
from foretell.service.http.protocol import EXTENSION, ClientConnection
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings

ROOT = Path(__file__).parent.parent
MODELS = ROOT / ".demo" / "repository"
_KEY = "bench"
_WARM = 20
# The engine's looks for news fall into some, and the fewest calls are the request's own.
_ROUNDS = 9
_REST_SECONDS = 0.03


class Tracer:
    """Counts the calls of our functions, by file and name.

    Attributes:
        calls: Those while `on` is set.
        on: Whether they are counted.
    """

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.on = False
        self._service = str(ROOT / "service") + "/"
        # Of this thread, and of those that are started from here on.
        sys.setprofile(self._count)
        threading.setprofile(self._count)

    def _count(self, frame: FrameType, event: str, _: object) -> None:
        if self.on and event == "call":
            code = frame.f_code
            path = str(Path(code.co_filename).resolve())
            if path.startswith(self._service):
                self.calls[path.removeprefix(self._service), code.co_qualname] += 1


async def ask(app: FastAPI, content: bytes, client: ClientConnection) -> int:
    """Send the request; returns the status of its answer."""
    headers = [(b"content-type", b"application/json"), (b"x-api-key", _KEY.encode())]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "path": "/forecast",
        "raw_path": b"/forecast",
        "query_string": b"",
        "scheme": "http",
        "root_path": "",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
        "headers": headers,
        "state": {},
        "extensions": {EXTENSION: client},
    }
    statuses: list[int] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": content, "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    return statuses[0]


async def measure(engine: Engine, settings: Settings, tracer: Tracer) -> Counter[tuple[str, str]]:
    """The calls of one request, by file and name."""
    app = create_app(settings, engine)
    (body, *_) = examples.requests("/forecast").values()
    content, client = orjson.dumps(body), ClientConnection(lambda: None)
    for _ in range(_WARM):
        if await ask(app, content, client) != HTTPStatus.OK:
            raise RuntimeError("the demo's PatchTST does not answer: see `make demo`")
    found = []
    for _ in range(_ROUNDS):
        await asyncio.sleep(_REST_SECONDS)
        tracer.calls.clear()
        tracer.on = True
        await ask(app, content, client)
        # What a worker does after the answer is part of it.
        await asyncio.sleep(_REST_SECONDS)
        tracer.on = False
        found.append(tracer.calls.copy())
    return min(found, key=Counter.total)


def show(title: str, calls: Counter[tuple[str, str]], *, verbose: bool) -> None:
    """Print what was counted."""
    files = {path for path, _ in calls}
    print(f"{title}: {calls.total()} calls of {len(calls)} functions in {len(files)} files")
    if verbose:
        for (path, name), count in sorted(calls.items()):
            print(f"  {count:3} {path}: {name}")


def main() -> None:
    """Count, in one process and through a socket."""
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--verbose", action="store_true", help="show every function")
    verbose = parser.parse_args().verbose
    logging.getLogger("foretell.access").setLevel(logging.WARNING)
    tracer = Tracer()
    settings = Settings.read(models=MODELS, device="cpu", threads=1, api_keys=_KEY)
    metrics = Metrics()
    own = LocalEngine(load(settings, metrics), metrics)

    async def run() -> None:
        show("In one process", await measure(own, settings, tracer), verbose=verbose)
        with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listener:
            path = Path(folder) / "engine"
            listener.bind(str(path))
            listener.listen()
            going = True
            serving = asyncio.ensure_future(EngineServer(own).serve(listener, lambda: going))
            door = EngineClient(path, Metrics())
            await door.start()
            calls = await measure(door, settings, tracer)
            show("A door and the engine", calls, verbose=verbose)
            await door.close()
            going = False
            await serving

    uvloop.run(run())
    sys.setprofile(None)


if __name__ == "__main__":
    main()
