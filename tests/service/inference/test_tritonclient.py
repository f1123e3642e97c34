"""tritonclient as it is, against a real server."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio
from numpy.typing import NDArray
from tritonclient.utils import InferenceServerException

from tests.service.conftest import CALENDAR, MULTIVARIATE
from tests.service.loops import on_loop
from tests.support.process import Server

ADMIN = {"Authorization": "Bearer secret"}
HISTORY = np.arange(32, dtype=np.float32).reshape(2, 8, 2)
FORECAST = MULTIVARIATE.forecast(HISTORY)
ENCODINGS = [None, "gzip", "deflate"]


@pytest.fixture(scope="module")
def server(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("log") / "log"
    with Server(models, log, admin_keys="secret", threads=1) as server:
        yield server


@pytest.fixture(scope="module")
def address(server: Server) -> str:
    return server.url.removeprefix("http://")


@pytest.fixture(scope="module")
def client(address: str) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(address) as client:
        yield client


def given(values: NDArray[Any], *, binary: bool = True, name: str = "history") -> triton.InferInput:
    datatype = {"f2": "FP16", "f4": "FP32", "f8": "FP64", "i8": "INT64", "u1": "UINT8"}
    tensor = triton.InferInput(name, list(values.shape), datatype[values.dtype.str[1:]])
    return tensor.set_data_from_numpy(values, binary_data=binary)


def wanted(*names: str, binary: bool = True) -> list[triton.InferRequestedOutput]:
    return [triton.InferRequestedOutput(name, binary_data=binary) for name in names]


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("repeat", "10")
    assert not client.is_model_ready("repeat", "11")
    assert client.get_server_metadata()["name"] == "foretell"
    assert client.get_model_metadata("repeat", "1")["versions"] == ["1", "10"]
    assert client.get_model_config("multi")["input"][0]["dims"] == [8, 2]


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False, None])
def test_infer(
    client: triton.InferenceServerClient, binary_in: bool, binary_out: bool | None
) -> None:
    outputs = None if binary_out is None else wanted("forecast", binary=binary_out)
    answer = client.infer(
        "multi", [given(HISTORY, binary=binary_in)], outputs=outputs, request_id="7"
    )
    np.testing.assert_array_equal(answer.as_numpy("forecast"), FORECAST)
    response = answer.get_response()
    assert (response["id"], response["model_name"], response["model_version"]) == (
        *("7", "multi", "1"),
    )
    assert ("data" in response["outputs"][0]) == (binary_out is False)


@pytest.mark.parametrize("encoding_in", ENCODINGS)
@pytest.mark.parametrize("encoding_out", ENCODINGS)
def test_compression(
    client: triton.InferenceServerClient, encoding_in: str | None, encoding_out: str | None
) -> None:
    history = np.repeat(HISTORY, 40, axis=0)
    answer = client.infer(
        "multi",
        [given(history)],
        request_compression_algorithm=encoding_in,
        response_compression_algorithm=encoding_out,
    )
    np.testing.assert_array_equal(answer.as_numpy("forecast"), MULTIVARIATE.forecast(history))


def test_calendars_are_inputs(client: triton.InferenceServerClient) -> None:
    assert CALENDAR.calendar is not None
    history = HISTORY[:, :, :1]
    past, future = (
        np.random.default_rng(0).normal(size=(2, steps, len(CALENDAR.calendar.features)))
        for steps in (8, 4)
    )
    inputs = [
        given(future.astype(np.float32), name="future_calendar"),
        given(past.astype(np.float32), name="history_calendar", binary=False),
        given(history),
    ]
    answer = client.infer("calendar", inputs)
    expected = CALENDAR.forecast(history, future.astype(np.float32))
    np.testing.assert_allclose(answer.as_numpy("forecast"), expected, rtol=1e-6)


def test_requested_attention_is_returned(client: triton.InferenceServerClient) -> None:
    names = ["encoder.0.self.weights", "encoder.1.self.lags", "decoder.0.cross.weights", "forecast"]
    outputs = [*wanted(*names[:2]), *wanted(*names[2:], binary=False)]
    answer = client.infer("multi", [given(HISTORY)], outputs=outputs)
    assert [output["name"] for output in answer.get_response()["outputs"]] == names
    np.testing.assert_allclose(answer.as_numpy(names[0]).sum(axis=-1), 1, rtol=1e-5)
    assert answer.as_numpy(names[0]).shape == (2, 2, 3, 3)
    assert answer.as_numpy(names[1]).dtype == np.int64
    assert answer.as_numpy(names[2]).shape == (2, 2, 2, 3, 3)
    np.testing.assert_array_equal(answer.as_numpy("forecast"), FORECAST)


def test_unused_parameters_are_accepted(client: triton.InferenceServerClient) -> None:
    answer = client.infer(
        "multi",
        [given(HISTORY)],
        sequence_id=5,
        sequence_start=True,
        sequence_end=True,
        priority=1,
        timeout=20_000_000,
        parameters={"colour": "blue"},
    )
    np.testing.assert_array_equal(answer.as_numpy("forecast"), FORECAST)


def test_errors_have_the_servers_message(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=r"no model 'nope'; served \(GET") as unknown:
        client.infer("nope", [given(HISTORY)])
    assert unknown.value.status() == "404"
    expected = r"inputs\[0\]\.shape: expected \[batch, 8, 2\], got \[2, 4, 4\]"
    with pytest.raises(InferenceServerException, match=expected) as shape:
        client.infer("multi", [given(HISTORY.reshape(2, 4, 4))])
    assert shape.value.status() == "422"
    texts = triton.InferInput("history", [1, 8, 2], "BYTES")
    texts.set_data_from_numpy(np.full((1, 8, 2), b"12", np.object_))
    with pytest.raises(
        InferenceServerException, match=r"of numbers, one of INT8.*, got the string"
    ):
        client.infer("multi", [texts])
    with pytest.raises(InferenceServerException, match="Not Found: GET /v2/trace/setting"):
        client.get_trace_settings()


def test_the_repository(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match=r"expected an? (admin )?key") as refused:
        client.unload_model("monthly")
    assert refused.value.status() == "401"
    client.unload_model("monthly", headers=ADMIN)
    assert index(client)["monthly"] != "READY"
    assert not client.is_model_ready("monthly")
    client.load_model("monthly", headers=ADMIN)
    assert index(client)["monthly"] == "READY"
    with pytest.raises(InferenceServerException, match="no model 'nope'"):
        client.load_model("nope", headers=ADMIN)
    with pytest.raises(InferenceServerException, match="as they are in the repository"):
        client.load_model("monthly", headers=ADMIN, config="{}")


def index(client: triton.InferenceServerClient) -> dict[str, str]:
    entries = client.get_model_repository_index(headers=ADMIN)
    return {entry["name"]: entry["state"] for entry in entries}


# The client does not read answers of which it needs only the status.
@pytest.mark.filterwarnings("ignore:Unclosed:ResourceWarning")
@pytest.mark.parametrize("encoding", ENCODINGS)
@on_loop
async def test_the_client_for_asyncio(address: str, encoding: str | None) -> None:
    history = np.repeat(HISTORY, 40, axis=0)
    async with triton_aio.InferenceServerClient(address) as client:
        assert await client.is_server_live()
        assert await client.is_server_ready()
        assert await client.is_model_ready("multi")
        assert (await client.get_server_metadata())["name"] == "foretell"
        assert (await client.get_model_metadata("multi"))["platform"] == "onnxruntime_onnx"
        assert (await client.get_model_config("multi"))["backend"] == "onnxruntime"
        assert (await client.get_inference_statistics("multi"))["model_stats"]
        assert await client.get_model_repository_index()
        for binary in (True, False):
            answer = await client.infer(
                "multi",
                [given(history, binary=binary)],
                outputs=wanted("forecast", binary=binary),
                request_compression_algorithm=encoding,
                response_compression_algorithm=encoding,
            )
            forecast = answer.as_numpy("forecast")
            np.testing.assert_array_equal(forecast, MULTIVARIATE.forecast(history))
        with pytest.raises(InferenceServerException, match="no model 'nope'"):
            await client.infer("nope", [given(HISTORY)])
        await client.load_model("multi", headers=ADMIN)
    gc.collect()
