"""CPU time that a request costs outside the model: `python -m bench.request`.

Writes its part of docs/benchmarks.md; `--print` only prints it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import uvloop

from bench.page import machine, table, write_part
from foretell.service.api.app import create_app
from foretell.service.arrays import FORECAST, HISTORY, Arrays
from foretell.service.engine.engine import LocalEngine
from foretell.service.engine.loading import load
from foretell.service.engine.registry import Model
from foretell.service.engine.run import Run
from foretell.service.forecast.encode import encode
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.parse import parse
from foretell.service.http.protocol import EXTENSION, ClientConnection
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.support.bundles import Spec, write_bundle

CHANNELS, CONTEXT, HORIZON = 7, 336, 96
_TURNS, _CALLS = 15, 100
_NAMES = tuple(f"channel {index}" for index in range(CHANNELS))
_TEXT = """\
## A request outside the model

CPU microseconds of a request outside the model's run (`make bench-request`): medians of turns, in
one process on uvloop, as the server runs. The body is {size} bytes of JSON,
{context} rows of {channels} channels with 3 decimals; the answer has {horizon} steps.

{machine}

"""
_WHOLE = """\
### The whole request

*Read* is from the body to batch arrays, *encode* from the forecast to the answer's bytes; *whole*
is the ASGI application with a model that answers at once: middleware, routing, both of these, and
the wait.

"""


def cpu_medians(calls: Mapping[str, Callable[[], object]]) -> dict[str, float]:
    """Median CPU microseconds of one call of each, taken in turns."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_TURNS):
        for name, call in calls.items():
            call()
            started = time.process_time()
            for _ in range(_CALLS):
                call()
            times[name].append((time.process_time() - started) / _CALLS * 1e6)
    return {name: median(found) for name, found in times.items()}


@dataclass
class Application:
    """The application in this process, with a model that answers at once."""

    app: Any
    model: Model
    settings: Settings

    async def post(self, body: bytes) -> bytes:
        """Send a request; returns the answer's body."""
        coming = [{"type": "http.request", "body": body, "more_body": False}]
        answer: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            if coming:
                return coming.pop()
            await asyncio.get_running_loop().create_future()
            raise AssertionError("the client does not disconnect")

        async def send(message: dict[str, Any]) -> None:
            answer.append(message)

        length = str(len(body)).encode()
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": "/forecast",
            "raw_path": b"/forecast",
            "query_string": b"",
            "root_path": "",
            "headers": [(b"content-type", b"application/json"), (b"content-length", length)],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
            "state": {},
            "extensions": {EXTENSION: ClientConnection(lambda: None)},
        }
        await self.app(scope, receive, send)
        assert answer[0]["status"] == 200, answer
        return bytes(answer[1]["body"])


@contextmanager
def opened(spec: Spec) -> Iterator[Application]:
    with tempfile.TemporaryDirectory() as folder:
        write_bundle(Path(folder), spec)
        settings = Settings(models=Path(folder), device="cpu", threads=1)
        metrics = Metrics()
        repository = load(settings, metrics)
        model = repository.registry.find(spec.name)
        model.submit = _answer_at_once  # type: ignore[method-assign]
        try:
            app = create_app(settings, LocalEngine(repository, metrics))
            yield Application(app, model, settings)
        finally:
            repository.close(1)


def _answer_at_once(feeds: Arrays, **_: object) -> Run:
    run = Run(lambda _: None, feeds=feeds)
    run.began = run.ended = run.submitted
    run.batch = 1
    run.succeed({FORECAST: feeds[HISTORY][:, -HORIZON:]})
    return run


def request(spec: Spec, *, times: bool) -> bytes:
    # Near what the model was trained on, by its scaler: there is nothing to warn of.
    values = np.random.default_rng(0).normal(2, 1, (CONTEXT, CHANNELS)).round(3)
    entry: dict[str, Any] = {"name": "a", "series": values.tolist()}
    if times:
        entry["start_timestamp"] = "2024-01-01T00:00:00"
    return json.dumps({"model": spec.name, "inputs": [entry]}).encode()


def measure(application: Application, body: bytes) -> dict[str, float]:
    settings, model = application.settings, application.model

    def read() -> Job:
        parsed = parse(body, FORECASTING, settings.max_inputs)
        return decode(*parsed, model, settings, FORECASTING)

    job = read()
    outputs = model.submit({HISTORY: job.history}, deadline=0).result()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:

        async def many() -> None:
            for _ in range(_CALLS):
                await application.post(body)

        found = cpu_medians(
            {
                "read": read,
                "encode": lambda: encode(job, outputs),
            }
        )
        runner.run(many())
        turns = []
        for _ in range(_TURNS):
            started = time.process_time()
            runner.run(many())
            turns.append((time.process_time() - started) / _CALLS * 1e6)
    return {**found, "whole": median(turns)}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--print", action="store_true", help="do not write the page")
    only_print = options.parse_args().print
    # As in the server, every request is logged; here to nowhere.
    access = logging.getLogger("foretell.access")
    access.setLevel(logging.INFO)
    access.addHandler(logging.NullHandler())
    access.propagate = False
    plain = Spec(name="plain", channels=_NAMES, context=CONTEXT, horizon=HORIZON)
    calendar = Spec(
        name="calendar", channels=_NAMES, context=CONTEXT, horizon=HORIZON, with_calendar=True
    )
    body = request(plain, times=False)
    text = _TEXT.format(
        size=len(body),
        context=CONTEXT,
        channels=CHANNELS,
        horizon=HORIZON,
        machine=machine("pysimdjson", "orjson", "pydantic_core", "fastapi", "uvloop"),
    )
    rows = []
    for label, spec, times in (
        ("without times", plain, False),
        ("with a start", plain, True),
        ("with calendar features", calendar, True),
    ):
        with opened(spec) as application:
            found = measure(application, request(spec, times=times))
        rows.append((label, *(f"{found[name]:.0f}" for name in ("read", "encode", "whole"))))
    text += _WHOLE + table(("request", "read", "encode", "whole"), rows)
    print(text)
    if not only_print:
        write_part("request", text)


if __name__ == "__main__":
    main()
