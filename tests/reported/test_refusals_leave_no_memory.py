"""Refused requests stayed in memory until the server was killed: BerriAI/litellm#13911.

An error holds the frames that it came through, and these hold the request. Where one of them, or
what it refers to, holds the error, all of it waits for a garbage collection, which is rare.
"""

from __future__ import annotations

import gc
import gzip
import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import psutil
import pytest
from fastapi.routing import APIRoute, APIRouter

from foretell.service.http.sockets import listen
from foretell.service.server import _Server
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server

_MIB = 1024 * 1024
_PATIENCE = 30.0
ADMIN_KEY = "admin"
MOST_BYTES = 4 * 1024 * 1024
# Numbers in a body: of far less than the event loop reads by itself, and of more.
SMALL, LARGE = 10, 60_000
_ARROW = "application/vnd.apache.arrow.stream"
_FORECASTS = ("/forecast", "/v1/timeseries/forecast", "/backtest")
_INFERENCES = ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer")
_NIXTLA = ("/nixtla/v2/forecast", "/nixtla/v2/cross_validation")
_CHANGES = ("/v2/repository/models/{model}/load", "/v2/repository/models/{model}/unload")
_INDEX = "/v2/repository/index"
ROUTES = (*_FORECASTS, *_INFERENCES, *_NIXTLA, *_CHANGES, _INDEX)


class Refusal(NamedTuple):
    """A request, and the status that it gets."""

    route: str
    name: str
    status: int
    body: bytes
    headers: Mapping[str, str] = {}

    def send(self, port: int) -> None:
        """Over a connection of its own, which ends with it."""
        path = self.route.replace("{model}", "repeat").replace("{version}", "1")
        with closing(HTTPConnection("127.0.0.1", port, timeout=_PATIENCE)) as client:
            client.request("POST", path, self.body, dict(self.headers))
            answer = client.getresponse()
            answer.read()
        # Of the routes that change models all large bodies are refused for their size.
        assert answer.status in (self.status, 413), self[:3]


def refusals(count: int) -> Iterator[Refusal]:
    """All kinds, of all routes, with so many numbers in most of the bodies."""
    for route in ROUTES:
        yield from refusals_of(route, count)


def refusals_of(route: str, count: int) -> Iterator[Refusal]:
    """All kinds that a route has; see `refusals`."""
    numbers = [1.5] * count
    key = {"Authorization": f"Bearer {ADMIN_KEY}"}
    for name, status, body, headers in _of_bodies(numbers):
        yield Refusal(route, name, status, body, headers | key)
    further: Iterable[tuple[str, int, dict[str, Any]]] = ()
    if route in _FORECASTS:
        further = _of_forecasts(numbers)
        yield Refusal(route, "no table", 400, _json(numbers), {"Content-Type": _ARROW})
        yield Refusal(route, "another type", 415, _json(numbers), {"Content-Type": "text/plain"})
        yield Refusal(route, "no timeout", 422, _json(numbers), {"X-Timeout-Ms": "soon"})
    elif route in _INFERENCES:
        further = _of_inferences(numbers)
        length = "Inference-Header-Content-Length"
        yield Refusal(route, "no length", 400, _json(numbers), {length: "many"})
        yield Refusal(route, "no tensor", 422, _json([*numbers, 0]), {length: "0"})
    elif route in _NIXTLA:
        further = _of_nixtla(numbers)
    elif route in _CHANGES:
        further = _of_changes(numbers)
        yield Refusal(route, "no key", 401, _json({"parameters": {"other": numbers}}))
    else:
        further = [("ready", 422, {"ready": numbers})]
    for name, status, request in further:
        yield Refusal(route, name, status, _json(request), key)


def bomb(route: str) -> Refusal:
    """A small body that is a million objects when it is decompressed."""
    body = _json({"inputs": [], "outputs": [{"name": "x"}] * 200_000})
    gzipped = {"Content-Encoding": "gzip"}
    return Refusal(route, "many objects", 422, gzip.compress(body), gzipped)


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _of_bodies(numbers: list[float]) -> Iterator[tuple[str, int, bytes, dict[str, str]]]:
    """Of all routes."""
    text = _json({"parameters": numbers})
    gzipped = {"Content-Encoding": "gzip"}
    yield "no JSON", 400, text[:-1], {}
    yield "not gzip", 400, text, gzipped
    yield "half of gzip", 400, gzip.compress(text)[:-9], gzipped
    yield "another encoding", 415, text, {"Content-Encoding": "br"}
    yield "no object", 422, _json(numbers), {}


def _of_forecasts(numbers: list[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    count, series = len(numbers), [{"series": numbers}]
    model = {"model": "repeat"}
    yield "misspelt", 422, {"modle": "repeat", "inputs": series}
    yield "unknown model", 404, {"model": "nobody", "inputs": series}
    yield "no model", 422, {"inputs": series}
    yield "text in a series", 422, {**model, "inputs": [{"series": [*numbers, "x"]}]}
    yield "missing value", 422, {**model, "inputs": [{"series": [*numbers, None]}]}
    yield "not a number", 422, {**model, "inputs": [{"series": [*numbers, float("nan")]}]}
    yield "rows", 422, {**model, "inputs": [{"series": [[1, 2], numbers]}]}
    yield "many inputs", 422, {**model, "inputs": [{}] * (2000 + count)}
    yield "horizon", 422, {**model, "inputs": series, "options": {"horizon": 10**9}}
    yield "metadata", 422, {**model, "inputs": series, "metadata": [numbers]}
    timestamps = {"timestamps": ["2024-01-01T00:00:00"] * (count // 2)}
    yield "few timestamps", 422, {"model": "calendar", "inputs": [{**series[0], **timestamps}]}
    timestamps = {"timestamps": ["x"] * count}
    yield "no timestamps", 422, {"model": "calendar", "inputs": [{**series[0], **timestamps}]}


def _of_inferences(numbers: list[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    count = len(numbers)
    tensor = {"name": "history", "datatype": "FP32", "shape": [1, 8, 1], "data": numbers}
    yield "another shape", 422, {"inputs": [{**tensor, "shape": [count, 8, 1]}]}
    yield "text in a tensor", 422, {"inputs": [{**tensor, "data": ["x", *numbers[1:8]]}]}
    yield "long shape", 422, {"inputs": [{**tensor, "shape": [1] * count}]}
    yield "unknown outputs", 422, {"inputs": [tensor], "outputs": [{"name": "x"}] * count}
    yield "misspelt", 422, {"inputs": [tensor], "outptus": []}
    yield "no inputs", 422, {"inputs": {"history": numbers}}


def _of_nixtla(numbers: list[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    count = len(numbers)
    series = {"y": numbers, "sizes": [count]}
    request = {"series": series, "freq": "h", "h": 2, "model": "repeat"}
    yield "frequency", 422, {**request, "freq": "?"}
    yield "unknown model", 404, {**request, "model": "nobody"}
    yield "sizes", 422, {**request, "series": {**series, "sizes": [1] * count}}
    yield "other sizes", 422, {**request, "series": {**series, "sizes": [count + 1]}}
    yield "text in a series", 422, {**request, "series": {**series, "y": [*numbers[1:], "x"]}}
    yield "other columns", 422, {**request, "series": {**series, "X": [numbers]}}
    yield "horizon", 422, {**request, "h": 10**6}
    yield "levels", 422, {**request, "level": [50] * (count + 50)}


def _of_changes(numbers: list[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    yield "version", 422, {"parameters": {"version": numbers}}
    yield "unknown version", 404, {"parameters": {"version": "77", "other": numbers}}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec(name="repeat"))
    write_bundle(folder, Spec(name="calendar", with_calendar=True))
    return folder


class InThread(_Server):
    """Signals are for the main thread."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Here:
    """A server in this process, with all that is between its sockets and its models."""

    def __init__(self, models: Path) -> None:
        self.client = Client(models, admin_keys=ADMIN_KEY, max_body_bytes=MOST_BYTES)
        (self._socket,) = listen("127.0.0.1", 0)
        sockets = [self._socket]
        self._server = InThread(self.client.settings, self.client.engine, sockets, heartbeat=int)
        self._thread = threading.Thread(target=self._server.run, args=(sockets,), daemon=True)
        self._thread.start()
        wait_for(lambda: self._server.started)

    def send(self, refusal: Refusal) -> None:
        """Until all requests have ended, and all connections."""
        refusal.send(self._socket.getsockname()[1])
        state = self._server.server_state
        wait_for(lambda: not (state.connections or state.tasks or self.client.metrics.in_flight))

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(_PATIENCE)
        self._socket.close()


@pytest.fixture(scope="module")
def here(models: Path) -> Iterator[Here]:
    here = Here(models)
    # What is made once, such as modules that are imported.
    for count in (SMALL, LARGE):
        for each in refusals(count):
            here.send(each)
    yield here
    here.close()


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage is collected, and what there is already is not looked at."""
    gc.collect()
    gc.freeze()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def wait_for(condition: Callable[[], object]) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def garbage() -> list[str]:
    """The errors, frames and tracebacks that only a collection would free."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    found = [
        f"{type(each).__name__}: {each}"[:200]
        for each in gc.garbage
        if isinstance(each, (BaseException, FrameType, TracebackType))
    ]
    gc.garbage.clear()
    gc.collect()
    return found


def test_there_is_a_refusal_for_every_route_that_takes_a_body(here: Here) -> None:
    routers = [getattr(each, "original_router", None) for each in here.client.app.routes]
    routes = {
        route.path
        for router in routers
        if isinstance(router, APIRouter)
        for route in router.routes
        if isinstance(route, APIRoute) and "POST" in route.methods
    }
    assert routes == set(ROUTES)


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("count", [SMALL, LARGE])
@pytest.mark.parametrize("route", ROUTES)
def test_a_refusal_leaves_no_garbage(here: Here, route: str, count: int) -> None:
    left = {}
    for each in refusals_of(route, count):
        here.send(each)
        if found := garbage():
            left[each.name] = found
    assert not left


def resident(server: Server) -> int:
    process = psutil.Process(server.process.pid)
    every = [process, *process.children(recursive=True)]
    return sum(each.memory_info().rss for each in every)


@pytest.mark.parametrize("workers", [1, 2])
def test_resident_memory_stays_as_it_is(models: Path, tmp_path: Path, workers: int) -> None:
    bombs = [bomb(route) for route in ROUTES if route.endswith("infer")]
    if workers == 1:
        large = [*refusals(LARGE)]
    else:
        # They run the same code: one kind of each route.
        large = [next(refusals_of(route, LARGE)) for route in ROUTES]
    settings = {"admin_keys": ADMIN_KEY, "max_body_bytes": MOST_BYTES, "workers": workers}
    with Server(models, tmp_path / "log", **settings) as server:
        port = int(server.url.rpartition(":")[2])

        def repeat(each: Refusal, times: int) -> None:
            for _ in range(times):
                each.send(port)

        for each in [*bombs, *large]:
            repeat(each, workers)
        before = resident(server)
        for each in large:
            repeat(each, 2)
        for each in bombs:
            repeat(each, 10)
        # What is free is given back half a second after the last of them.
        wait_for(lambda: resident(server) - before < 32 * _MIB)
