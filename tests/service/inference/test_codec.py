"""Requests for tensors: what the codec reads and writes, and the route that serves them."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import numpy as np
import pytest
from starlette.requests import Request

from foretell.service.arrays import Arrays
from foretell.service.engine.model import Model
from foretell.service.errors import (
    InvalidInputError,
    NotSupportedError,
    ServiceError,
    UnreadableError,
)
from foretell.service.inference.codec import HEADER, Inference, InferenceCodec, Output
from foretell.service.settings import Settings
from tests.service.client import Client, connect, request_of
from tests.service.conftest import MULTIVARIATE
from tests.service.inference.bodies import HISTORY, binary, infer, joined, refused, request, tensor
from tests.support.bundles import Spec, write_bundle

WEIGHTS = "encoder.0.self.weights"
NAN = float("nan")


def read(client: Client, body: Any, length: str | None = None, **limits: int) -> Inference:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    model = client.repository.registry.find("multi")
    codec = InferenceCodec(Settings(models=Path(), **limits))
    return codec.decode(codec.parse(bytearray(content), sent(length)), model)


def sent(length: str | None) -> Request:
    return request_of(model="multi", **({} if length is None else {HEADER: length}))


def outputs(*names: object, **parameters: object) -> Any:
    """A request for some outputs."""
    return request(outputs=[{"name": name, "parameters": parameters} for name in names])


def binaries(job: Inference) -> dict[str, bool]:
    return {output.name: output.binary for output in job.outputs}


def test_fields_of_a_request_are_read(client: Client) -> None:
    job = read(client, request(id="mine", parameters={"timeout": 1500}))
    assert (job.id, job.windows, job.timeout) == ("mine", 1, 0.0015)
    np.testing.assert_array_equal(job.feeds["history"], HISTORY)
    for fields in ({}, {"id": None, "parameters": None, "outputs": None}):
        job = read(client, request(**fields))
        assert (job.id, job.timeout, job.attention) == (None, None, [])
        assert binaries(job) == {"forecast": False}


def test_binary_outputs(client: Client) -> None:
    parameters = {"binary_data_output": True}
    assert binaries(read(client, request(parameters=parameters))) == {"forecast": True}
    outputs = [
        {"name": "forecast"},
        {"name": WEIGHTS, "parameters": {"binary_data": False}},
    ]
    job = read(client, request(parameters=parameters, outputs=outputs))
    assert binaries(job) == {"forecast": True, WEIGHTS: False}
    outputs[1]["parameters"] = {"binary_data": True}
    job = read(client, request(outputs=outputs))
    assert binaries(job) == {"forecast": False, WEIGHTS: True}
    assert job.attention == [WEIGHTS]
    assert not read(client, request(outputs=outputs[:1])).attention


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        ([], None, ""),
        ({}, "inputs", ""),
        (request(tensor(name=5)), "inputs[0].name", ""),
        *(
            (request(tensor(shape=[size, 8, 2])), "inputs[0].shape[0]", "")
            for size in (1.5, -1, 10**400, True)
        ),
        (request(tensor(data={})), "inputs[0].data", ""),
        (request(binary() | {"parameters": {"binary_data_size": "64"}}), ANY, ""),
        (request(binary()), ANY, "says where the JSON ends"),
        (request(tensor(data=[NAN, *range(15)])), ANY, r"3\.4e38 .*, got nan at \[0, 0, 0\]$"),
        *((request(parameters={"timeout": late}), "parameters.timeout", "") for late in (-1, 1e6)),
        (request(parameters={"binary_data_output": 1}), "parameters.binary_data_output", ""),
        (request(outputs=[{}]), "outputs[0].name", ""),
        (outputs(*["forecast"] * 2000), "outputs", ""),
        (outputs("forecast", "nope"), "outputs[1].name", f"^expected one of forecast, {WEIGHTS}, "),
        (outputs(WEIGHTS, WEIGHTS), "outputs[1].name", f"^{WEIGHTS} is given twice$"),
        (outputs(WEIGHTS, classification=3), "outputs[0].parameters.classification", "supported"),
        (
            outputs(WEIGHTS, shared_memory_region="x"),
            "outputs[0].parameters.shared_memory_region",
            "not supported",
        ),
        (request(*[tensor()] * 65), "inputs", ""),
        (request(id=7), "id", ""),
    ],
)
def test_requests_that_are_refused(client: Client, body: Any, place: str, message: str) -> None:
    with pytest.raises(ServiceError, match=message or None) as error:
        read(client, body)
    assert error.value.param == place
    assert len(error.value.message) < 200
    kind = NotSupportedError if "supported" in message else InvalidInputError
    assert type(error.value) is kind


def test_header_gives_the_length_of_the_json(client: Client) -> None:
    text, data = json.dumps(request(binary())).encode(), HISTORY.tobytes()
    job = read(client, text + data, str(len(text)))
    np.testing.assert_array_equal(job.feeds["history"], HISTORY)
    with pytest.raises(UnreadableError, match="not JSON"):
        read(client, text + data, str(len(text) - 1))
    for length in ("65", "-1", "1.5", "", "x", "9" * 5000, "\u0663"):
        with pytest.raises(UnreadableError, match="at most the 64 of the body") as error:
            read(client, bytes(64), length)
        assert error.value.param == "Inference-Header-Content-Length"
    for shorter in (None, "20", "99999"):
        with pytest.raises(UnreadableError, match="send the header Content-Encoding: gzip"):
            read(client, gzip.compress(text), shorter)


def test_too_large_answers_are_refused(client: Client) -> None:
    attention = [{"name": WEIGHTS}]
    # Two heads of three patches by three.
    assert read(client, request(outputs=attention), max_attention_values=18).attention
    with pytest.raises(InvalidInputError, match=r"18 values and may hold 17 \(max_attention"):
        read(client, request(outputs=attention), max_attention_values=17)
    parameters = {"binary_data_output": True}
    wanted = request(outputs=attention, parameters=parameters)
    assert read(client, wanted, max_attention_values=17).attention
    with pytest.raises(InvalidInputError, match=r"18 values and may hold 17 \(max_answer"):
        read(client, wanted, max_answer_values=17)
    with pytest.raises(InvalidInputError, match="hold 8 values and may hold 7"):
        read(client, request(), max_answer_values=7)


@pytest.mark.parametrize(
    ("length", "text"), [(None, 500), ("0", 0), ("120", 120), ("900", 500), ("-1", 500), ("x", 500)]
)
def test_parsing_work_counts_the_json_part(client: Client, length: str | None, text: int) -> None:
    body = b"[" * text + b" " * (500 - text)
    assert InferenceCodec(client.settings).parsing_work(body, sent(length)) == text + 4 * text


FORECAST = np.arange(16, dtype=np.float32).reshape(2, 4, 2) / 8
LAGS = np.array([[3, 1], [2, 0]])


def job_of(client: Client, *outputs: tuple[str, bool], id: str | None = None) -> Inference:  # noqa: A002
    wanted = [Output(name, 1, attention=False, binary=binary) for name, binary in outputs]
    return Inference(client.repository.registry.find("multi"), id, {"history": FORECAST}, wanted)


def test_an_answer_in_json(client: Client) -> None:
    job = job_of(client, ("lags", False), ("forecast", False), id="7")
    answer, headers = InferenceCodec(client.settings).encode(
        job, {"forecast": FORECAST, "lags": LAGS}
    )
    assert headers == {"content-type": "application/json"}
    assert json.loads(answer) == {
        "id": "7",
        "model_name": "multi",
        "model_version": "1",
        "parameters": {"model_digest": job.model.digest},
        "outputs": [
            {"name": "lags", "datatype": "INT64", "shape": [2, 2], "data": [3, 1, 2, 0]},
            {
                "name": "forecast",
                "datatype": "FP32",
                "shape": [2, 4, 2],
                "data": FORECAST.ravel().tolist(),
            },
        ],
    }


def test_binary_outputs_follow_in_order(client: Client) -> None:
    long = np.repeat(FORECAST, 20, axis=0)
    job = job_of(client, ("forecast", True), ("lags", False), ("more", True))
    job = replace(job, feeds={"history": long})
    # Outputs of a batch are slices of it.
    outputs = {"forecast": long, "lags": LAGS, "more": LAGS[:, ::-1]}
    answer, headers = InferenceCodec(client.settings).encode(job, outputs)
    assert headers["content-type"] == "application/octet-stream"
    length = int(headers["inference-header-content-length"])
    head = json.loads(answer[:length])
    assert "id" not in head
    assert [each.get("parameters") for each in head["outputs"]] == [
        {"binary_data_size": long.nbytes},
        None,
        {"binary_data_size": 32},
    ]
    assert answer[length:] == long.tobytes() + LAGS[:, ::-1].tobytes()
    # Binary tensors are copied.
    work = (long.nbytes // 16) + LAGS.nbytes + (LAGS.nbytes // 16)
    assert InferenceCodec(client.settings).encoding_work(job, outputs) == work


def test_nonfinite_outputs_are_an_error(client: Client) -> None:
    bad = FORECAST.copy()
    bad[1, 2, 0] = np.inf
    for is_binary in (True, False):
        with pytest.raises(InvalidInputError, match="forecast of window 1 is not finite"):
            InferenceCodec(client.settings).encode(
                job_of(client, ("forecast", is_binary)), {"forecast": bad, "lags": LAGS}
            )
    assert InferenceCodec(client.settings).encode(
        job_of(client, ("lags", False)), {"forecast": bad, "lags": LAGS}
    )[0]


def test_json_is_answered_in_json(client: Client) -> None:
    answer = infer(client, request(tensor(data=HISTORY.tolist())), {"X-Request-Id": "mine"})
    assert answer.headers["content-type"] == "application/json"
    assert HEADER not in answer.headers
    assert answer.headers["x-request-id"] == "mine"
    (forecast,) = answer.json().pop("outputs")
    assert forecast["shape"] == [1, 4, 2]
    np.testing.assert_array_equal(forecast["data"], MULTIVARIATE.forecast(HISTORY).ravel())


def test_a_body_without_json_is_answered_in_binary(client: Client) -> None:
    answer = infer(client, HISTORY.tobytes(), {HEADER: "0"})
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.content[int(answer.headers[HEADER]) :] == MULTIVARIATE.forecast(HISTORY).tobytes()


@pytest.mark.parametrize("media", ["text/plain", "application/octet-stream", "", "x/y; z"])
def test_content_types_are_ignored(client: Client, media: str) -> None:
    assert infer(client, request(), {"Content-Type": media}).status_code == 200


def test_errors_are_plain_texts(client: Client) -> None:
    overflowing = np.full((1, 8, 2), 3e38, np.float32)
    for body, headers, status, message in (
        (request(tensor(shape=[8, 2])), {}, 422, "inputs[0].shape: expected [batch, 8, 2], got"),
        (request(tensor(overflowing)), {}, 422, "inputs: forecast of window 0 is not finite"),
        (request(), {"X-Timeout-Ms": "x"}, 422, "X-Timeout-Ms: expected a whole number of"),
        (b"{", {}, 400, ""),
        (b"", {"Content-Encoding": "br"}, 415, ""),
        (
            gzip.compress(bytes(client.settings.max_body_bytes + 1)),
            {"Content-Encoding": "gzip"},
            413,
            "expected a body of",
        ),
    ):
        answer = refused(client, body, headers)
        assert (answer[0], answer[1][: len(message)]) == (status, message)
    assert infer(client, request(), model="multi/versions/9").status_code == 404


def test_requests_are_counted_by_model(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "foretell.access")
    assert refused(client, b"{no json")[0] == 400
    (record,) = caplog.records
    fields: dict[str, Any] = record.__dict__["fields"]
    assert (fields["model"], fields["status"]) == ("multi", 400)
    metrics = client.get("/metrics").text
    assert re.search(
        r'^foretell_requests_total\{model="multi",.*status="400",', metrics, re.MULTILINE
    )
    infer(client, request())
    text = client.get("/metrics").text
    labels = 'model="multi",route="/v2/models/{model}/infer",status="200",version="1"'
    assert f"foretell_requests_total{{{labels}}}" in text
    assert 'foretell_stage_seconds_count{model="multi",stage="decode",version="1"}' in text
    # The model comes first: the body of a request for another one is not read.
    assert infer(client, b"{no json", model="nope").status_code == 404


BODY = {"model": "repeat", "inputs": [{"series": [1.0] * 8}]}


def test_caller_may_shorten_the_timeout(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[Future[Arrays]] = []

    def queue(*_: object, **__: object) -> Future[Arrays]:
        queued.append(Future())
        return queued[-1]

    monkeypatch.setattr(Model, "submit", queue)
    forecast = client.forecast(BODY, **{"X-Timeout-Ms": "10"})
    assert (forecast.status_code, forecast.json()["error"]["type"]) == (504, "deadline_exceeded")
    for body, headers in (
        (request(parameters={"timeout": 10_000}), {}),
        (request(), {"X-Timeout-Ms": "10"}),
    ):
        answer = infer(client, body, headers)
        assert answer.status_code == 504
        assert answer.json()["error"].startswith("the deadline passed")
        assert queued[-1].cancelled()


def test_failing_model_is_an_error(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="multi", channels=("a", "b"), fails=True))
    with Client(tmp_path) as client:
        assert refused(client, request()) == (503, "onnxruntime could not run the model")


class Run(Future[Arrays]):
    """A run that the test ends."""

    submitted = began = ended = loading = 0.0
    batch = 1


def test_memory_of_the_body_counts_until_the_run_ends(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tensors are views of it."""
    body, headers = joined(request(binary()), HISTORY)
    path = "/v2/models/multi/infer"
    pending = Run()
    submitted = asyncio.Event()

    def submit(*_: object, **__: object) -> Run:
        submitted.set()
        return pending

    async def scene(client: Client) -> list[httpx.Response]:
        async with connect(client.app) as http:
            first = asyncio.create_task(http.post(path, content=body, headers=headers))
            await submitted.wait()
            second = await http.post(path, content=body, headers=headers)
            pending.set_result({"forecast": MULTIVARIATE.forecast(HISTORY)})
            return [second, await first, await http.post(path, content=body, headers=headers)]

    monkeypatch.setattr(Model, "submit", submit)
    with Client(models, max_body_bytes=len(body), max_buffered_bytes=len(body)) as client:
        answers = asyncio.run(scene(client))
    assert [answer.status_code for answer in answers] == [503, 200, 200]
    assert answers[0].json()["error"].startswith("the server holds")
