"""Cost of requests outside the model: one series, and a thousand as JSON and as a table."""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from unittest.mock import patch
from urllib.parse import urlencode

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import ipc
from starlette.requests import Request

from bench.harness import Call, Result, Row, Run, in_turns, interleaved_medians, ratio
from bench.models import NAME, SERVED, SIZES, START, prepare
from bench.servers import metrics
from bench.servers import ours as serve
from foretell.service.arrays import FORECAST
from foretell.service.engine.loading import load
from foretell.service.engine.registry import Model
from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.routes import ARROW, ArrowCodec, JsonCodec
from foretell.service.http.body import JSON
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings
from tests.support.bundles import Spec, write_bundle

_CONTEXT, _HORIZON = 336, 96
_CHANNELS = tuple(f"channel-{index}" for index in range(7))
_SERIES, _CONNECTIONS = 1000, (1, 4)
_SIMD = "foretell.service.forecast.parse._simd"


class Form(NamedTuple):
    """A request: its body, in JSON or as a table, and the query of its URL."""

    body: bytes
    media_type: str = JSON
    query: Mapping[str, str] = {}

    def codec(self, settings: Settings) -> JsonCodec | ArrowCodec:
        """Reads it and writes the answer."""
        return (ArrowCodec if self.media_type == ARROW else JsonCodec)(FORECASTING, settings)

    def read(self, model: Model, settings: Settings) -> Job:
        """All that an HTTP worker does before the model runs."""
        query = urlencode(self.query).encode()
        request = Request({"type": "http", "headers": [], "query_string": query})
        codec = self.codec(settings)
        return codec.decode(codec.parse(self.body, request), model)

    def post(self, http: httpx.Client) -> bytes:
        """Send it; returns the answer's body."""
        headers = {"Content-Type": self.media_type, "Accept-Encoding": "identity"}
        answer = http.post("/forecast", params=self.query, headers=headers, content=self.body)
        return answer.raise_for_status().content


def _json(name: str, windows: np.ndarray, *, times: bool) -> Form:
    start = {"start_timestamp": START} if times else {}
    inputs = [{"name": "a", "series": window.tolist(), **start} for window in windows]
    return Form(json.dumps({"model": name, "inputs": inputs}, separators=(",", ":")).encode())


def _windows(count: int) -> np.ndarray:
    # Values near the training data by the models' scalers, so that answers have no warnings.
    return np.random.default_rng(0).normal(2, 1, (count, _CONTEXT, len(_CHANNELS))).round(3)


def _codec_times(
    repository: Path, forms: Mapping[str, tuple[str, Form]], seconds: float
) -> list[Row]:
    """CPU time of reading requests and of encoding answers, by name of the form."""
    most = _SERIES * max(_CONNECTIONS)
    settings = Settings(models=repository, device="cpu", threads=1, max_queue=most)
    served = load(settings, Metrics())
    calls: dict[tuple[str, str], Call] = {}
    sizes = {}
    try:
        for what, (name, form) in forms.items():
            read = partial(form.read, served.registry.find(name), settings)
            job = read()
            shape = (len(job.history), _HORIZON, len(_CHANNELS))
            forecast = np.random.default_rng(1).normal(2, 1, shape).astype(np.float32)
            encode = partial(form.codec(settings).encode, job, {FORECAST: forecast})
            calls |= {(what, "read"): read, (what, "encode"): encode}
            if form.media_type == JSON:
                calls[what, "read by orjson"] = partial(_without_simd, read)
            sizes[what] = len(encode()[0])
        # A server has no objects of torch, which would slow the garbage collector down.
        gc.freeze()
        taken = interleaved_medians(calls, seconds, time.process_time)
        gc.unfreeze()
    finally:
        served.close(1)
    return [
        {
            "request": what,
            "kB": len(form.body) / 1e3,
            "answer, kB": sizes[what] / 1e3,
            **{f"{step}, µs": 1e6 * each for (own, step), each in taken.items() if own == what},
        }
        for what, (_, form) in forms.items()
    ]


def _without_simd(read: Call) -> object:
    with patch(_SIMD, None):
        return read()


def measure(run: Run) -> Result:
    """A request of one series: its codec, and the CPU time of a server whose model does nothing."""
    sizes: dict[str, Any] = {"channels": _CHANNELS, "context": _CONTEXT, "horizon": _HORIZON}
    repository = run.folder / "models"
    write_bundle(repository, Spec(name="plain", **sizes))
    write_bundle(repository, Spec(name="calendar", **sizes, with_calendar=True))
    window = _windows(1)
    forms = {
        "without times": ("plain", _json("plain", window, times=False)),
        "with a start": ("plain", _json("plain", window, times=True)),
        "with calendar features": ("calendar", _json("calendar", window, times=True)),
    }
    rows: list[dict[str, Any]] = [
        *map(dict, _codec_times(repository, forms, run.duration(10, 0.5)))
    ]
    count = run.pick(4000, 100)
    with serve(repository, run.folder / "server", threads=1) as (process, port):
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, timeout=60) as http:
            for row, (_, form) in zip(rows, forms.values(), strict=True):
                form.post(http)
                before = sum(process.cpu_times()[:2])
                for _ in range(count):
                    form.post(http)
                row["the whole server, µs"] = 1e6 * (sum(process.cpu_times()[:2]) - before) / count
    return Result({"one series": rows})


def bulk(run: Run) -> Result:
    """A thousand series in one request, as JSON and as a table: codecs, and series a second."""
    size = run.pick(SIZES[0], SERVED[-1])
    subject = prepare(size, run.folder / NAME)
    count = run.pick(_SERIES, 20)
    windows = _windows(count)
    times = np.datetime64(START, "us") + np.arange(_CONTEXT) * np.timedelta64(1, "h")
    columns = {
        "unique_id": np.repeat([f"series-{index}" for index in range(count)], _CONTEXT),
        "ds": np.tile(times, count),
        **{name: windows[:, :, index].ravel() for index, name in enumerate(_CHANNELS)},
    }
    forms = {
        "JSON": (NAME, _json(NAME, windows, times=True)),
        "Arrow": (NAME, Form(write_table(pa.table(columns)), ARROW, {"model": NAME})),
    }
    codecs = _codec_times(subject.repository, forms, run.duration(20, 0.5))
    rows: list[dict[str, Any]] = [{"request": what} for what in forms]
    # By default no more than two thousand series wait.
    most = _SERIES * max(_CONNECTIONS)
    with serve(subject.repository, run.folder / "server", max_queue=most) as (_, port):
        base = f"http://127.0.0.1:{port}"
        with httpx.Client(base_url=base, timeout=60) as http:
            _check_same(http, *(form for _, form in forms.values()))
            for connections in _CONNECTIONS:
                parts = [partial(_post, http, form, connections) for _, form in forms.values()]
                turns = in_turns(parts, 0, run.pick(12, 1))
                for row, seconds in zip(rows, turns, strict=True):
                    row[f"{connections} at a time: series/s"] = round(
                        connections * count / median(seconds)
                    )
                    row[f"{connections} at a time: times faster"] = ratio(turns[0], seconds)
            requests, spent = metrics(
                port, "foretell_requests_total", r'foretell_stage_seconds_sum\{.*stage="run"'
            )
    runs = {"requests": round(requests), "seconds of runs": spent}
    return Result({"codecs": codecs, "served": rows, "runs": [runs]})


def _post(http: httpx.Client, form: Form, connections: int, _: int) -> float:
    """Seconds of `connections` requests that are sent together."""
    began = time.perf_counter()
    with ThreadPoolExecutor(connections) as pool:
        list(pool.map(form.post, [http] * connections))
    return time.perf_counter() - began


def _check_same(http: httpx.Client, json_form: Form, arrow_form: Form) -> None:
    content = json.loads(json_form.post(http))["outputs"][0]["content"][0]
    first = np.float32(content["mean_forecast"])
    found = ipc.open_stream(arrow_form.post(http)).read_all().slice(0, len(first))
    columns = np.stack([found[name].to_numpy() for name in _CHANNELS], axis=1)
    # Windows in another batch may be rounded otherwise.
    if not np.allclose(first, columns, rtol=1e-5, atol=1e-5):
        raise RuntimeError("the forms get different forecasts")
