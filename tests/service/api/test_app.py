from __future__ import annotations

import asyncio
import gzip
import importlib
import json
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foretell.service.engine.model import Model
from foretell.service.errors import BuffersFullError, QueueFullError
from foretell.service.forecast import routes as forms
from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.parse import JsonCodec
from foretell.service.http.body import MemoryBudget, Share
from foretell.service.metrics import REJECTED
from tests.service.client import Client
from tests.support.bundles import Spec, softmax_stage, write_bundle
from tests.support.zstd import zstd

BODY: dict[str, Any] = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


def zeros_table() -> bytes:
    """500,000 rows of which each takes two bytes."""
    codes = pa.array(np.zeros(500_000, np.int8))
    ids = pa.DictionaryArray.from_arrays(codes, pa.array(["a"]))
    return write_table(pa.table({"unique_id": ids, "y": codes}))


SEE = "; see POST /forecast, GET /models, /docs"


@pytest.mark.parametrize(
    ("method", "path", "status", "message"),
    [
        ("GET", "/nope", 404, f"Not Found: GET /nope{SEE}"),
        ("GET", "/wp-login.php", 404, f"Not Found: GET /wp-login.php{SEE}"),
        ("GET", "/v2/nope", 404, f"Not Found: GET /v2/nope{SEE}"),
        *(
            ("GET", path, 404, f"Not Found: GET {path}; the nearest is {near}{SEE}")
            for path, near in [
                ("/predict", "POST /forecast"),
                ("/invocations", "POST /forecast"),
                ("/FORECAST", "POST /forecast"),
                ("/forecast/", "POST /forecast"),
                ("/v1/forecast", "POST /forecast"),
                ("/api/v1/predict", "POST /forecast"),
                ("/v1/models/repeat:predict", "POST /forecast"),
                ("/models/repeat/forecast", "POST /forecast"),
                ("/model", "GET /models"),
                ("/v2/models", "GET /models"),
                ("/v1/timeseries/forcast", "POST /v1/timeseries/forecast"),
                ("/v2/models/repeat/predict", "POST /v2/models/repeat/infer"),
                ("/v2/models/repeat/configs", "GET /v2/models/repeat/config"),
                ("/v2/", "GET /v2"),
                (
                    "/v2/models/multi/versions//infer",
                    "POST /v2/models/multi/versions/{version}/infer",
                ),
                ("/health", "GET /healthz"),
                ("/metric", "GET /metrics"),
            ]
        ),
        *(
            (method, path, 405, f"Method Not Allowed: {method} {path}; it takes {allowed}")
            for method, path, allowed in [
                ("GET", "/forecast", "POST"),
                ("DELETE", "/models", "GET, HEAD"),
                ("DELETE", "/v2/models/repeat/infer", "POST"),
                ("GET", "/v2/repository/models/repeat/load", "POST"),
            ]
        ),
    ],
)
def test_unknown_routes_are_not_found(
    client: Client, method: str, path: str, status: int, message: str
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.headers.get("allow", "") == message.partition("; it takes ")[2]
    error = answer.json()["error"]
    if path.startswith("/v2"):
        assert error == message
    else:
        kind = {404: "not_found", 405: "method_not_allowed"}[status]
        assert (error["code"], error["type"], error["param"]) == (str(status), kind, None)
        assert error["message"] == message


def test_long_path_is_not_repeated(client: Client) -> None:
    message = client.get("/" + "x" * 5000).json()["error"]["message"]
    assert message.endswith(SEE)
    assert len(message) < 300


@pytest.mark.parametrize(
    ("path", "media"),
    [
        ("/forecast", forms.JSON),
        ("/forecast", forms.ARROW),
        ("/v2/models/repeat/infer", forms.JSON),
        ("/v2/repository/index", forms.JSON),
    ],
)
@pytest.mark.parametrize("size", [10, 100_000])
def test_undeclared_compression_is_suggested(
    client: Client, path: str, media: str, size: int
) -> None:
    noise = np.random.default_rng(0).bytes(size)
    for encoding, body in (("gzip", gzip.compress(noise)), ("zstd", zstd.compress(noise))):
        answer = client.request("POST", path, content=body, headers={"Content-Type": media})
        assert answer.status_code == 400
        assert f"send the header Content-Encoding: {encoding}" in answer.text


@pytest.mark.parametrize(
    ("path", "size", "accepted", "encoding"),
    [
        ("/forecast", 2**16, "gzip, deflate, br, zstd", "zstd"),
        ("/forecast", 2**16, "deflate, br", None),
        ("/forecast", 60_000, "gzip, zstd", None),
        ("/openapi.json", 0, "gzip, deflate", "gzip"),
        ("/openapi.json", 0, "identity", None),
        ("/openapi.json", 0, "gzip;q=0", None),
    ],
)
def test_large_answers_are_compressed(
    client: Client, path: str, size: int, accepted: str, encoding: str | None
) -> None:
    headers = {"Accept-Encoding": accepted}
    if size:
        note = {"note": "x" * size}
        answer = client.forecast({**BODY, "metadata": note}, **headers)
        assert answer.json()["metadata"] == note
    else:
        answer = client.request("GET", path, headers=headers)
        assert "/forecast" in answer.json()["paths"]
        assert answer.headers["vary"] == "Accept-Encoding"
    assert answer.headers.get("content-encoding") == encoding


def test_answers_that_tritonclient_cannot_decompress_are_plain(tmp_path: Path) -> None:
    """Its asyncio client accepts gzip, but decompresses only answers of inferences."""
    channels = tuple(f"channel-{number}" for number in range(30))
    stages = tuple(softmax_stage(name=f"encoder.{number}.self") for number in range(30))
    write_bundle(tmp_path, Spec(channels=channels, stages=stages))
    with Client(tmp_path) as client:
        headers = {"Accept-Encoding": "gzip, deflate"}
        for path in ("/v2/models/repeat", "/v2/models/repeat/config"):
            answer = client.request("GET", path, headers=headers)
            assert len(answer.content) > 1024
            assert "content-encoding" not in answer.headers


def test_full_queue_sets_retry_after(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise QueueFullError("2048 windows are waiting", retry_after=7)

    rejected = REJECTED, "queue_full"
    before = client.metrics.counts.count(*rejected)
    monkeypatch.setattr(Model, "submit", refuse)
    answer = client.forecast(BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json()["error"]["type"] == "queue_full"
    assert client.metrics.counts.count(*rejected) == before + 1
    text = client.get("/metrics").text
    assert 'model="repeat",route="/forecast",status="429",version="10"' in text


@pytest.mark.parametrize(
    ("header", "value", "header_sent", "accepted"),
    [
        ("content_type", "text/csv", "accept", f"{forms.JSON}, {forms.ARROW}"),
        ("content_encoding", "br", "accept-encoding", "gzip, deflate, zstd"),
    ],
)
def test_unsupported_media_types_are_refused(
    client: Client, header: str, value: str, header_sent: str, accepted: str
) -> None:
    answer = client.send(b"{}", **{header: value})
    assert (answer.status_code, answer.json()["error"]["type"]) == (415, "unsupported_media")
    assert answer.headers[header_sent] == accepted


def test_slow_body_is_refused(client: Client) -> None:
    async def slowly() -> Any:
        yield b"{"
        await asyncio.Event().wait()

    headers = {"X-Timeout-Ms": "10"}
    answer = client.request("POST", "/forecast", content=slowly(), headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (408, "slow_body")
    # Later bytes are not a request.
    assert answer.headers["connection"] == "close"


def test_bodies_over_the_limit_are_refused(models: Path) -> None:
    with Client(models, max_body_bytes=100) as client:
        assert client.send(b" " * 100).status_code == 400
        answer = client.send(b" " * 101)
        assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")

        async def parts() -> Any:
            for _ in range(30):
                yield b" " * 10

        assert client.request("POST", "/forecast", content=parts()).status_code == 413


ZEROS = b'{"inputs": [{"series": [%s1]}]}' % (b"0," * 500_000)
TENSOR = b'{"inputs": [{"name": "history", "shape": [1, 8, 1], "datatype": "FP32", "data": [%s1]}]}'


@pytest.mark.parametrize(
    ("path", "body", "media"),
    [
        ("/forecast", ZEROS, forms.JSON),
        ("/forecast", zeros_table(), forms.ARROW),
        ("/v2/models/repeat/infer", TENSOR % (b"0," * 500_000), forms.JSON),
    ],
)
def test_memory_of_reading_is_counted(models: Path, path: str, body: bytes, media: str) -> None:
    headers = {"Content-Type": media}
    with Client(models, max_body_bytes=2 * 10**6, max_buffered_bytes=10**7) as client:
        answer = client.request("POST", path, content=body, headers=headers)
        assert answer.status_code == 413
        assert "may hold 10000000 (max_buffered_bytes)" in answer.text
        # Everything is given back.
        assert client.send(b" " * 1_600_000).status_code == 400
    with Client(models, max_body_bytes=2 * 10**6, max_buffered_bytes=10**8) as client:
        answer = client.request("POST", path, content=body, headers=headers)
        assert answer.status_code in (200, 422)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/forecast", BODY | {"inputs": [{"series": [1] * 8, "time_zone": "UTC"}]}),
        ("/forecast", BODY | {"inputs": [{"series": [1] * 8}] * 200}),
        ("/backtest", BODY),
        (
            "/nixtla/v2/forecast",
            {"series": {"y": [1] * 8, "sizes": [8]}, "freq": "h", "h": 1, "model": "repeat"},
        ),
    ],
)
def test_small_requests_that_wait_for_a_thread_are_counted_too(
    models: Path, path: str, body: dict[str, Any]
) -> None:
    content = json.dumps({**body, "unread": [[]] * 20_000}).encode()
    assert len(content) < 256 * 1024
    with Client(models, max_body_bytes=10**6, max_buffered_bytes=10**6) as client:
        answer = client.request("POST", path, content=content)
        assert answer.status_code == 413, answer.text
        assert "may hold 1000000 (max_buffered_bytes)" in answer.text
        # Requests that do not wait hold no memory.
        immediate = json.dumps({**BODY, "unread": [[]] * 20_000}).encode()
        assert client.send(immediate).status_code == 200


@pytest.mark.parametrize("large", [{"metadata": {"a": "x" * 400_000}}, {"name": "x" * 400_000}])
def test_memory_of_echoed_fields_counts_until_the_answer(
    models: Path, large: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    request: dict[str, Any] = {**BODY, "inputs": [{"series": [1] * 8}]}
    (request if "metadata" in large else request["inputs"][0]).update(large)
    body = json.dumps(request).encode()
    budget, model_submits = MemoryBudget(5 * 10**6), Model.submit
    submitted: list[bool] = []

    def submit(*arguments: Any, **options: Any) -> Any:
        with Share(budget) as others:
            # The echoed field counts twice: in the request, and in the answer.
            with pytest.raises(BuffersFullError):
                others.reserve(42 * 10**5)
            others.reserve(41 * 10**5)
        submitted.append(True)
        return model_submits(*arguments, **options)

    monkeypatch.setattr("foretell.service.api.app.MemoryBudget", lambda _: budget)
    monkeypatch.setattr(Model, "submit", submit)
    with Client(models, max_body_bytes=10**6) as client:
        assert client.send(body).status_code == 200
    assert submitted
    with Share(budget) as all_of_it:
        all_of_it.reserve(5 * 10**6)


def test_tensors_take_no_memory_beside_their_body(models: Path) -> None:
    values = np.zeros((1000, 8, 1), np.float32).tobytes() * 30
    head = (
        b'{"inputs": [{"name": "history", "shape": [30000, 8, 1], "datatype": "FP32", '
        b'"parameters": {"binary_data_size": %d}}]}' % len(values)
    )
    headers = {"Inference-Header-Content-Length": str(len(head))}
    limits = {"max_inputs": 30_000, "max_queue": 30_000, "max_body_bytes": 10**6}
    with Client(models, **limits, max_buffered_bytes=10**6) as client:
        path = "/v2/models/repeat/infer"
        answer = client.request("POST", path, content=head + values, headers=headers)
        assert answer.status_code == 200, answer.text


def test_large_bodies_are_read_and_written_off_the_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[bool] = []

    def watched(name: str) -> None:
        original = getattr(JsonCodec, name)

        def watch(*arguments: Any) -> Any:
            threads.append(threading.current_thread() is threading.main_thread())
            return original(*arguments)

        monkeypatch.setattr(JsonCodec, name, staticmethod(watch) if name == "encode" else watch)

    for name in ("parse", "decode", "encode"):
        watched(name)
    (series,) = BODY["inputs"]
    timed = {**series, "start_timestamp": "2024-01-01T00:00:00"}
    for body, off_the_loop in (
        (BODY, []),
        ({**BODY, "metadata": {"large": "x" * 300_000}}, ["parse", "decode", "encode"]),
        # Few bytes, but much work.
        ({**BODY, "inputs": [series] * 40}, ["decode"]),
        ({**BODY, "inputs": [series] * 70}, ["decode", "encode"]),
        ({**BODY, "inputs": [timed]}, []),
        ({**BODY, "inputs": [{**timed, "time_zone": "Asia/Tokyo"}]}, ["decode"]),
    ):
        threads.clear()
        assert client.forecast(body).is_success
        assert threads == [name not in off_the_loop for name in ("parse", "decode", "encode")]


def test_table_libraries_are_imported_off_the_loop(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[threading.Thread] = []

    def load(name: str) -> Any:
        threads.append(threading.current_thread())
        return importlib.import_module(name)

    monkeypatch.setattr(forms, "import_module", load)
    assert client.send(b"no table", content_type=forms.ARROW).status_code == 400
    assert threads != [threading.main_thread()]


def test_shutting_down_closes_the_models(models: Path) -> None:
    with Client(models) as client:

        async def start_and_stop() -> None:
            async with client.app.router.lifespan_context(client.app):
                assert client.repository.snapshot.ready

        asyncio.run(start_and_stop())
        assert not client.repository.snapshot.ready
        assert client.forecast(BODY).status_code == 503
