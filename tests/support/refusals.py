"""One request of every kind that is refused, for every route that takes POST."""

from __future__ import annotations

import gzip
import json
import socket
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.support.bundles import Spec, write_bundle

ADMIN_KEY = "admin"
MOST_BYTES = 4 * 1024 * 1024
# Numbers in a body that the event loop reads, and in one that a thread reads.
SMALL, LARGE = 10, 60_000

_ARROW = "application/vnd.apache.arrow.stream"
_FORECASTS = ("/forecast", "/v1/timeseries/forecast", "/backtest")
_INFERENCES = ("/v2/models/{model}/infer", "/v2/models/{model}/versions/{version}/infer")
_NIXTLA = ("/nixtla/v2/forecast", "/nixtla/v2/cross_validation")
_CHANGES = ("/v2/repository/models/{model}/load", "/v2/repository/models/{model}/unload")
_INDEX = "/v2/repository/index"
_ACTUALS = "/actuals"
ROUTES = (*_FORECASTS, *_INFERENCES, *_NIXTLA, *_CHANGES, _INDEX, _ACTUALS)


class Refusal(NamedTuple):
    """A request, and the status that it gets."""

    route: str
    name: str
    status: int
    body: bytes
    headers: Mapping[str, str] = {}

    @property
    def request(self) -> bytes:
        """The bytes of the request."""
        path = self.route.replace("{model}", "repeat").replace("{version}", "1")
        head = [f"POST {path} HTTP/1.1", "Host: server", f"Content-Length: {len(self.body)}"]
        head += [f"{name}: {value}" for name, value in self.headers.items()]
        return "\r\n".join([*head, "", ""]).encode() + self.body


def write_models(folder: Path) -> Path:
    """A repository for the requests."""
    write_bundle(folder, Spec(name="repeat"))
    write_bundle(folder, Spec(name="calendar", with_calendar=True))
    return folder


def refusals(count: int) -> Iterator[Refusal]:
    """Refused requests of every kind, for all routes.

    Args:
        count: Numbers in most of the bodies.
    """
    for route in ROUTES:
        yield from refusals_of(route, count)


def refusals_of(route: str, count: int) -> Iterator[Refusal]:
    """Refused requests for one route; see `refusals`."""
    numbers = [1.5] * count
    key = {"Authorization": f"Bearer {ADMIN_KEY}"}
    for name, status, body, headers in _of_bodies(numbers):
        yield Refusal(route, name, status, body, headers | key)
    further: Iterable[tuple[str, int, dict[str, Any]]] = ()
    if route in (*_FORECASTS, _ACTUALS):
        further = _of_forecasts(numbers) if route in _FORECASTS else _of_actuals(numbers)
        yield Refusal(route, "no table", 400, _json(numbers), {"Content-Type": _ARROW} | key)
        yield Refusal(
            route, "another type", 415, _json(numbers), {"Content-Type": "text/plain"} | key
        )
        yield Refusal(route, "no timeout", 422, _json(numbers), {"X-Timeout-Ms": "soon"} | key)
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


def exchange(client: socket.socket, request: bytes) -> int:
    """Send a request over a connection that stays open; returns the status of its answer."""
    client.sendall(request)
    received = b""
    while b"\r\n\r\n" not in received:
        received += _receive(client)
    head, _, body = received.partition(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    while len(body) < length:
        body += _receive(client)
    return int(head.split()[1])


def _receive(client: socket.socket) -> bytes:
    received = client.recv(65536)
    if not received:
        raise EOFError("the server closed the connection")
    return received


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _of_bodies(numbers: list[float]) -> Iterator[tuple[str, int, bytes, dict[str, str]]]:
    """Refusals of all routes."""
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


def _of_actuals(numbers: list[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    start = {"name": "a", "freq": "h", "start_timestamp": "2024-01-01"}
    yield "misspelt", 422, {"inptus": []}
    yield "no name", 422, {"inputs": [{"series": numbers}]}
    yield "text in a series", 422, {"inputs": [{**start, "series": [*numbers, "x"]}]}
    yield "no timestamp", 422, {"inputs": [{**start, "series": numbers, "start_timestamp": "x"}]}


def _of_changes(numbers: list[float]) -> Iterator[tuple[str, int, dict[str, Any]]]:
    yield "version", 422, {"parameters": {"version": numbers}}
    yield "unknown version", 404, {"parameters": {"version": "77", "other": numbers}}
