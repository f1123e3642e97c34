from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from foretell.service.arrays import Arrays
from foretell.service.engine.model import Model
from tests.service.client import Client, connect
from tests.service.conftest import MULTIVARIATE
from tests.service.inference.bodies import (
    HEADER,
    HISTORY,
    binary,
    infer,
    joined,
    refused,
    request,
    tensor,
)
from tests.support.bundles import Spec, write_bundle

FORECAST = MULTIVARIATE.forecast(HISTORY)


def test_json(client: Client) -> None:
    answer = infer(client, request(tensor(data=HISTORY.tolist())), {"X-Request-Id": "mine"})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert HEADER not in answer.headers
    assert answer.headers["x-request-id"] == "mine"
    (forecast,) = answer.json().pop("outputs")
    assert forecast["shape"] == [1, 4, 2]
    np.testing.assert_array_equal(forecast["data"], FORECAST.ravel())


def test_binary(client: Client) -> None:
    body, headers = joined(request(binary(), parameters={"binary_data_output": True}), HISTORY)
    answer = infer(client, body, headers)
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.content[int(answer.headers[HEADER]) :] == FORECAST.tobytes()
    answer = infer(client, HISTORY.tobytes(), {HEADER: "0"})
    assert answer.content[int(answer.headers[HEADER]) :] == FORECAST.tobytes()


@pytest.mark.parametrize("media", ["text/plain", "application/octet-stream", "", "x/y; z"])
def test_content_types_are_not_looked_at(client: Client, media: str) -> None:
    assert infer(client, request(), {"Content-Type": media}).status_code == 200


@pytest.mark.parametrize(("name", "fold"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_the_header_counts_json_that_is_not_compressed(
    client: Client, name: str, fold: Any
) -> None:
    body, headers = joined(request(binary()), HISTORY)
    answer = infer(client, fold(body), headers | {"Content-Encoding": name})
    np.testing.assert_array_equal(answer.json()["outputs"][0]["data"], FORECAST.ravel())


def test_what_unfolds_to_too_much(client: Client) -> None:
    limit = client.settings.max_body_bytes
    bomb = gzip.compress(bytes(limit + 1))
    status, message = refused(client, bomb, {"Content-Encoding": "gzip"})
    assert (status, message) == (413, f"expected a body of at most {limit} bytes")


def test_errors_are_one_text(client: Client) -> None:
    status, message = refused(client, request(tensor(shape=[8, 2])))
    assert status == 422
    assert message == "inputs[0].shape: expected [batch, 8, 2], got [8, 2]"
    assert refused(client, b"{")[0] == 400
    assert refused(client, b"", {"Content-Encoding": "br"})[0] == 415
    assert infer(client, request(), model="nope").status_code == 404
    assert infer(client, request(), model="multi/versions/9").status_code == 404
    assert infer(client, request(), {"X-Timeout-Ms": "x"}).json() == {
        "error": "X-Timeout-Ms: expected a whole number of milliseconds from 1, got 'x'"
    }


def test_requests_are_counted_for_their_model(
    client: Client, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_the_caller_may_shorten_the_time(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_forecast_that_is_not_finite(client: Client) -> None:
    history = np.full((1, 8, 2), 3e38, np.float32)
    status, message = refused(client, request(tensor(history)))
    assert (status, message[:35]) == (422, "inputs: forecast of window 0 is not")


def test_a_model_that_fails(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="multi", channels=("a", "b"), fails=True))
    with Client(tmp_path) as client:
        assert refused(client, request()) == (503, "onnxruntime could not run the model")


class Run(Future[Arrays]):
    """A run that is done when the test says so."""

    submitted = began = ended = loading = 0.0
    batch = 1


def test_the_body_is_counted_until_it_was_run(
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
            pending.set_result({"forecast": FORECAST})
            return [second, await first, await http.post(path, content=body, headers=headers)]

    monkeypatch.setattr(Model, "submit", submit)
    with Client(models, max_body_bytes=len(body), max_buffered_bytes=len(body)) as client:
        answers = asyncio.run(scene(client))
    assert [answer.status_code for answer in answers] == [503, 200, 200]
    assert answers[0].json()["error"].startswith("the server holds")
