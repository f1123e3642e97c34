"""A thousand series in one request, as JSON and as an Arrow table: `python -m bench.bulk`.

Writes its part of docs/benchmarks.md; `--print` only prints it.
"""

from __future__ import annotations

import argparse
import gc
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

import httpx
import numpy as np
import pyarrow as pa
from pyarrow import ipc
from starlette.requests import Request

from bench.page import machine, table, write_part
from bench.serving.bodies import ours_answer
from bench.serving.contenders import ROOT
from bench.serving.ports import free_port
from bench.serving.process import running
from bench.serving.subjects import NAME, prepare
from bench.sizes import SIZES
from bench.timing import interleaved_medians
from foretell.service.arrays import FORECAST
from foretell.service.engine.process import load
from foretell.service.engine.registry import Model
from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.routes import ARROW, ArrowCodec, JsonCodec
from foretell.service.http.body import JSON
from foretell.service.metrics import Metrics
from foretell.service.settings import Settings

SERIES = 1000
_SIZE = SIZES[0]
_CHANNELS = tuple(f"channel-{index}" for index in range(_SIZE.config.channels))
_CONNECTIONS = (1, 4)
_ROUNDS = 12
_CODEC_SECONDS = 20
# By default no more than two thousand series wait.
_LIMITS = {"max_queue": max(_CONNECTIONS) * SERIES}
_TEXT = """\
## Bulk

`make bench-bulk` wrote this part: {series:,} series in one request to {model}.
Each has {context} hourly rows of {channels} channels, with 3 decimals; as JSON with a
`start_timestamp`, as an Arrow table in float64 with a timestamp in every row.

{machine}

### Without the model and the server

CPU milliseconds of one request without the model's run: *read* is from the body to batch arrays,
*encode* from the forecasts to the answer's bytes. Medians of calls in turns.

"""
_WHOLE = """\

### The whole

Series a second through a server process, requests one after another and four at a time. The forms
take turns, and ratios are medians over pairs of turns; the client is on the same CPUs and does not
read the answer. The runs of the model alone take {run:.0f} ms of a CPU for {series:,} series.

"""


@dataclass(frozen=True)
class Form:
    """A request.

    Attributes:
        media_type: Of the body.
        body: Whole.
        query: Parameters of the URL.
    """

    media_type: str
    body: bytes
    query: Mapping[str, str] = field(default_factory=dict)

    def read(self, model: Model, settings: Settings) -> Job:
        """All that an HTTP worker does before the model runs."""
        query = urlencode(self.query).encode()
        request = Request({"type": "http", "headers": [], "query_string": query})
        codec = self.codec(settings)
        return codec.decode(codec.parse(self.body, request), model)

    def codec(self, settings: Settings) -> JsonCodec | ArrowCodec:
        """Reads it and writes the answer."""
        kind = ArrowCodec if self.media_type == ARROW else JsonCodec
        return kind(FORECASTING, settings)

    def post(self, client: httpx.Client) -> bytes:
        """Send it; returns the answer's body."""
        # What is measured are the forms, next to which a network is slow.
        headers = {"Content-Type": self.media_type, "Accept-Encoding": "identity"}
        answer = client.post("/forecast", params=self.query, headers=headers, content=self.body)
        answer.raise_for_status()
        return answer.content


def forms() -> dict[str, Form]:
    """The same series in both forms."""
    shape = (SERIES, _SIZE.config.context, len(_CHANNELS))
    windows = np.random.default_rng(0).normal(20, 10, shape).round(3)
    start = np.datetime64("2024-01-01T00:00:00", "us")
    times = start + np.arange(_SIZE.config.context) * np.timedelta64(1, "h")
    names = [f"series-{index}" for index in range(SERIES)]
    inputs = [
        {"name": name, "series": window.tolist(), "start_timestamp": "2024-01-01T00:00:00"}
        for name, window in zip(names, windows, strict=True)
    ]
    body = json.dumps({"model": NAME, "inputs": inputs}, separators=(",", ":"))
    columns = {
        "unique_id": np.repeat(names, len(times)),
        "ds": np.tile(times, SERIES),
        **{name: windows[:, :, index].ravel() for index, name in enumerate(_CHANNELS)},
    }
    return {
        "JSON": Form(JSON, body.encode()),
        "Arrow": Form(ARROW, write_table(pa.table(columns)), {"model": NAME}),
    }


def measure_codecs(repository: Path, requests: Mapping[str, Form]) -> str:
    """The first table."""
    settings = Settings(models=repository, device="cpu", threads=1, **_LIMITS)
    served = load(settings, Metrics())
    try:
        model = served.registry.find(NAME)
        shape = (SERIES, _SIZE.config.horizon, len(_CHANNELS))
        outputs = {FORECAST: np.random.default_rng(1).normal(20, 10, shape).astype(np.float32)}
        reads = {name: partial(form.read, model, settings) for name, form in requests.items()}
        encodes = {
            name: partial(form.codec(settings).encode, reads[name](), outputs)
            for name, form in requests.items()
        }
        sizes = {name: len(encode()[0]) for name, encode in encodes.items()}
        # No server has torch's objects, which the collector would look through.
        gc.freeze()
        seconds = interleaved_medians(
            {
                **{(name, "read"): call for name, call in reads.items()},
                **{(name, "encode"): call for name, call in encodes.items()},
            },
            _CODEC_SECONDS,
            time.process_time,
        )
        gc.unfreeze()
    finally:
        served.close(1)
    total = {name: seconds[name, "read"] + seconds[name, "encode"] for name in requests}
    rows = (
        (
            name,
            f"{len(form.body) / 1e6:.1f}",
            f"{sizes[name] / 1e6:.1f}",
            f"{seconds[name, 'read'] * 1e3:.0f}",
            f"{seconds[name, 'encode'] * 1e3:.1f}",
            f"{total['JSON'] / total[name]:.1f}",
        )
        for name, form in requests.items()
    )
    return table(("form", "request, MB", "answer, MB", "read", "encode", "times faster"), rows)


def measure_whole(client: httpx.Client, requests: Mapping[str, Form]) -> tuple[str, float]:
    """The second table, and seconds that runs of the model take for all series."""
    check_same(client, requests)
    seconds = {count: _seconds(client, requests, count) for count in _CONNECTIONS}
    rows = (
        (
            name,
            *(f"{count * SERIES / median(times[name]):.0f}" for count, times in seconds.items()),
            *(f"{_ratio(times['JSON'], times[name]):.2f}" for times in seconds.values()),
        )
        for name in requests
    )
    ways = ("one after another", "four at a time")
    head = ("form", *ways, *(f"times faster, {way}" for way in ways))
    return table(head, rows), _run_seconds(client, requests["Arrow"])


def check_same(client: httpx.Client, requests: Mapping[str, Form]) -> None:
    """Raise a RuntimeError if the forms do not get the same forecasts."""
    first = np.float32(ours_answer(json.loads(requests["JSON"].post(client))))
    found = ipc.open_stream(requests["Arrow"].post(client)).read_all().slice(0, len(first))
    columns = [found[name].to_numpy() for name in _CHANNELS]
    if not np.array_equal(first, np.stack(columns, axis=1)):
        raise RuntimeError("the forms get different forecasts")


def _seconds(
    client: httpx.Client, requests: Mapping[str, Form], count: int
) -> dict[str, list[float]]:
    """Times of each form, in turns, for so many requests sent together."""
    seconds: dict[str, list[float]] = {name: [] for name in requests}
    with ThreadPoolExecutor(count) as pool:
        for _ in range(_ROUNDS):
            for name, form in requests.items():
                started = time.perf_counter()
                list(pool.map(form.post, [client] * count))
                seconds[name].append(time.perf_counter() - started)
    return seconds


def _ratio(times: list[float], others: list[float]) -> float:
    """Of turns that followed each other, as the load of the machine may change."""
    return median(mine / other for mine, other in zip(times, others, strict=True))


def _run_seconds(client: httpx.Client, form: Form) -> float:
    """Seconds of all workers in runs of the model, for one request, by the server's metrics."""
    before = _runs(client)
    for _ in range(_ROUNDS):
        form.post(client)
    return (_runs(client) - before) / _ROUNDS


def _runs(client: httpx.Client) -> float:
    name = 'foretell_stage_seconds_sum{.*stage="run".*}'
    found = re.search(rf"^{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"the server has no metric {name}")
    return float(found[1])


@contextmanager
def serving(repository: Path, folder: Path) -> Iterator[httpx.Client]:
    """Our server in a process of its own."""
    url = f"http://127.0.0.1:{free_port()}"
    command = [sys.executable, "-m", "foretell", "serve", "--models", repository]
    environment = {
        "PYTHONPATH": str(ROOT),
        "FORETELL_DEVICE": "cpu",
        "FORETELL_LOG_LEVEL": "warning",
        **{f"FORETELL_{name.upper()}": str(value) for name, value in _LIMITS.items()},
    }
    command += ["--port", url.rpartition(":")[2]]
    with (
        running(command, f"{url}/readyz", folder / "log", environment, folder),
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        yield client


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.bulk", description=__doc__)
    options.add_argument("--print", action="store_true", help="do not write the page")
    only_print = options.parse_args().print
    requests = forms()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = prepare(_SIZE, folder / NAME, folder / "repository", NAME).repository
        text = _TEXT.format(
            series=SERIES,
            context=_SIZE.config.context,
            channels=len(_CHANNELS),
            model=_SIZE.name,
            machine=machine("pysimdjson", "orjson", "pyarrow", "onnxruntime"),
        )
        text += measure_codecs(repository, requests)
        with serving(repository, folder) as client:
            whole, run = measure_whole(client, requests)
    text += _WHOLE.format(series=SERIES, run=run * 1e3) + whole
    print(text)
    if not only_print:
        write_part("bulk", text)


if __name__ == "__main__":
    main()
