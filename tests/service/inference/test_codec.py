"""Requests for tensors: what is read of them, and what is answered."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.requests import Request

from foretell.service.errors import (
    InvalidInputError,
    NotSupportedError,
    ServiceError,
    UnreadableError,
)
from foretell.service.inference.codec import HEADER, Inference, InferenceCodec, Output
from foretell.service.settings import Settings
from tests.service.client import Client, request_of
from tests.service.inference.bodies import HISTORY, binary, request, tensor

WEIGHTS = "encoder.0.self.weights"


def read(client: Client, body: Any, length: str | None = None, **limits: int) -> Inference:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    model = client.repository.registry.find("multi")
    codec = InferenceCodec(Settings(models=Path(), **limits))
    return codec.decode(codec.parse(bytearray(content), sent(length)), model)


def sent(length: str | None) -> Request:
    return request_of(model="multi", **({} if length is None else {HEADER: length}))


def refusal(client: Client, body: Any, kind: type[ServiceError] = InvalidInputError) -> Any:
    with pytest.raises(kind) as error:
        read(client, body)
    return error.value


def binaries(job: Inference) -> dict[str, bool]:
    return {output.name: output.binary for output in job.outputs}


def test_what_a_request_says(client: Client) -> None:
    job = read(client, request(id="mine", parameters={"timeout": 1500}))
    assert (job.id, job.windows, job.timeout) == ("mine", 1, 0.0015)
    np.testing.assert_array_equal(job.feeds["history"], HISTORY)


@pytest.mark.parametrize("fields", [{}, {"id": None, "parameters": None, "outputs": None}])
def test_what_it_need_not_say(client: Client, fields: dict[str, Any]) -> None:
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


def test_outputs_that_there_are_not(client: Client) -> None:
    error = refusal(client, request(outputs=[{"name": "forecast"}, {"name": "nope"}]))
    assert error.param == "outputs[1].name"
    assert error.message.startswith(f"expected one of forecast, {WEIGHTS}, ")
    error = refusal(client, request(outputs=[{"name": WEIGHTS}] * 2))
    assert (error.param, error.message) == ("outputs[1].name", f"{WEIGHTS} is asked for twice")


@pytest.mark.parametrize("name", ["classification", "shared_memory_region"])
def test_extensions_that_there_are_not(client: Client, name: str) -> None:
    parameters = {"classification": 3, "shared_memory_region": "x"}
    outputs = [{"name": "forecast", "parameters": {name: parameters[name]}}]
    error = refusal(client, request(outputs=outputs), NotSupportedError)
    assert error.param == f"outputs[0].parameters.{name}"


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ([], None),
        ({}, "inputs"),
        (request(tensor(name=5)), "inputs[0].name"),
        (request(tensor(shape=[1.5, 8, 2])), "inputs[0].shape[0]"),
        (request(tensor(shape=[-1, 8, 2])), "inputs[0].shape[0]"),
        (request(tensor(shape=[10**400, 8, 2])), "inputs[0].shape[0]"),
        (request(tensor(shape=[True, 8, 2])), "inputs[0].shape[0]"),
        (request(tensor(data={})), "inputs[0].data"),
        (request(binary() | {"parameters": {"binary_data_size": "64"}}), None),
        (request(parameters={"timeout": -1}), "parameters.timeout"),
        (request(parameters={"timeout": 1e6}), "parameters.timeout"),
        (request(parameters={"binary_data_output": 1}), "parameters.binary_data_output"),
        (request(outputs=[{}]), "outputs[0].name"),
        (request(outputs=[{"name": "forecast"}] * 2000), "outputs"),
        (request(*[tensor()] * 65), "inputs"),
        (request(id=7), "id"),
    ],
)
def test_requests_that_are_none(client: Client, body: Any, place: str | None) -> None:
    error = refusal(client, body)
    assert place is None or error.param == place
    assert len(error.message) < 200


@pytest.mark.parametrize("length", [None, "20", "99999"])
def test_a_body_that_is_compressed_and_does_not_say_so(client: Client, length: str | None) -> None:
    with pytest.raises(UnreadableError, match="send the header Content-Encoding: gzip"):
        read(client, gzip.compress(json.dumps(request()).encode()), length)


def test_numbers_that_json_has_not(client: Client) -> None:
    data = [float("nan"), *HISTORY.ravel().tolist()[1:]]
    error = refusal(client, request(tensor(data=data)))
    assert (
        error.message == "expected finite numbers of at most 3.4e38 (float32), got nan at [0, 0, 0]"
    )


def test_where_the_json_ends(client: Client) -> None:
    text, data = json.dumps(request(binary())).encode(), HISTORY.tobytes()
    job = read(client, text + data, str(len(text)))
    np.testing.assert_array_equal(job.feeds["history"], HISTORY)
    with pytest.raises(UnreadableError, match="not JSON"):
        read(client, text + data, str(len(text) - 1))
    with pytest.raises(InvalidInputError, match="says where the JSON ends"):
        read(client, text)


@pytest.mark.parametrize("length", ["65", "-1", "1.5", "", "x", "9" * 5000, "\u0663"])
def test_where_it_cannot_end(client: Client, length: str) -> None:
    with pytest.raises(UnreadableError, match="at most the 64 of the body") as error:
        read(client, bytes(64), length)
    assert error.value.param == "Inference-Header-Content-Length"


def test_a_body_without_json_is_answered_in_binary(client: Client) -> None:
    job = read(client, HISTORY.tobytes(), "0")
    np.testing.assert_array_equal(job.feeds["history"], HISTORY)
    assert binaries(job) == {"forecast": True}


def test_answers_that_would_be_too_large(client: Client) -> None:
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
def test_how_much_of_a_body_is_json(client: Client, length: str | None, text: int) -> None:
    body = b"[" * text + b" " * (500 - text)
    assert InferenceCodec(client.settings).parsing_work(body, sent(length)) == text + 4 * text


FORECAST = np.arange(16, dtype=np.float32).reshape(2, 4, 2) / 8
LAGS = np.array([[3, 1], [2, 0]])


def job_of(client: Client, *outputs: tuple[str, bool], id: str | None = None) -> Inference:  # noqa: A002
    wanted = [Output(name, 1, attention=False, binary=binary) for name, binary in outputs]
    return Inference(client.repository.registry.find("multi"), id, {"history": FORECAST}, wanted)


def test_an_answer_in_json(client: Client) -> None:
    asked = job_of(client, ("lags", False), ("forecast", False), id="7")
    answer, headers = InferenceCodec(client.settings).encode(
        asked, {"forecast": FORECAST, "lags": LAGS}
    )
    assert headers == {"content-type": "application/json"}
    assert json.loads(answer) == {
        "id": "7",
        "model_name": "multi",
        "model_version": "1",
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


def test_binary_follows_in_order(client: Client) -> None:
    long = np.repeat(FORECAST, 20, axis=0)
    asked = job_of(client, ("forecast", True), ("lags", False), ("more", True))
    asked = replace(asked, feeds={"history": long})
    # Outputs of a batch are slices of it.
    outputs = {"forecast": long, "lags": LAGS, "more": LAGS[:, ::-1]}
    answer, headers = InferenceCodec(client.settings).encode(asked, outputs)
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
    assert InferenceCodec(client.settings).encoding_work(asked, outputs) == work


def test_nothing_but_numbers_leaves(client: Client) -> None:
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
