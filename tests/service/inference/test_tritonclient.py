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

from tests.service.conftest import CALENDAR, MULTIVARIATE, UNIVARIATE
from tests.service.loops import on_loop
from tests.support.bundles import Spec, write_bundle
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


def test_health(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("repeat")
    assert client.is_model_ready("repeat", "10")
    assert not client.is_model_ready("repeat", "11")
    assert not client.is_model_ready("nope")


def test_metadata(client: triton.InferenceServerClient) -> None:
    assert client.get_server_metadata()["name"] == "foretell"
    metadata = client.get_model_metadata("calendar")
    assert metadata["versions"] == ["1"]
    assert [tensor["name"] for tensor in metadata["inputs"]] == [
        *("history", "history_calendar", "future_calendar")
    ]
    assert client.get_model_metadata("repeat", "1")["versions"] == ["1", "10"]
    assert client.get_model_config("multi")["input"][0]["dims"] == [8, 2]
    assert client.get_model_config("repeat", "1")["version_policy"] == {
        "specific": {"versions": [1]}
    }


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


@pytest.mark.parametrize("kind", ["f2", "f8", "i8", "u1"])
@pytest.mark.parametrize("binary", [True, False])
def test_other_numbers_become_float32(
    client: triton.InferenceServerClient, kind: str, binary: bool
) -> None:
    answer = client.infer("multi", [given(HISTORY.astype(kind), binary=binary)])
    np.testing.assert_array_equal(answer.as_numpy("forecast"), FORECAST)


def test_a_version(client: triton.InferenceServerClient) -> None:
    history = HISTORY[:, :, :1]
    for version, answered in (("1", "1"), ("10", "10"), ("", "10")):
        answer = client.infer("repeat", [given(history)], model_version=version)
        assert answer.get_response()["model_version"] == answered
        np.testing.assert_array_equal(answer.as_numpy("forecast"), UNIVARIATE.forecast(history))


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


def test_attention_is_answered_where_it_is_named(client: triton.InferenceServerClient) -> None:
    names = ["encoder.0.self.weights", "encoder.1.self.lags", "decoder.0.cross.weights", "forecast"]
    outputs = [*wanted(*names[:2]), *wanted(*names[2:], binary=False)]
    answer = client.infer("multi", [given(HISTORY)], outputs=outputs)
    assert [output["name"] for output in answer.get_response()["outputs"]] == names
    np.testing.assert_allclose(answer.as_numpy(names[0]).sum(axis=-1), 1, rtol=1e-5)
    assert answer.as_numpy(names[0]).shape == (2, 2, 3, 3)
    assert answer.as_numpy(names[1]).dtype == np.int64
    assert answer.as_numpy(names[2]).shape == (2, 2, 2, 3, 3)
    np.testing.assert_array_equal(answer.as_numpy("forecast"), FORECAST)


def test_what_means_nothing_here_is_taken(client: triton.InferenceServerClient) -> None:
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


def test_errors_carry_our_message(client: triton.InferenceServerClient) -> None:
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


def test_requests_at_once(address: str) -> None:
    with triton.InferenceServerClient(address, concurrency=4) as client:
        histories = [HISTORY + number for number in range(12)]
        pending = [client.async_infer("multi", [given(history)]) for history in histories]
        for history, request in zip(histories, pending, strict=True):
            answer = request.get_result(timeout=30).as_numpy("forecast")
            np.testing.assert_array_equal(answer, MULTIVARIATE.forecast(history))


def test_statistics(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec())
    history = HISTORY[:, :, :1]
    with (
        Server(tmp_path / "models", tmp_path / "log", threads=1) as server,
        triton.InferenceServerClient(server.url.removeprefix("http://")) as client,
    ):
        client.infer("repeat", [given(history)])
        client.infer("repeat", [given(history)])
        with pytest.raises(InferenceServerException):
            client.infer("repeat", [given(HISTORY)])
        for report in (
            client.get_inference_statistics(),
            client.get_inference_statistics("repeat"),
            client.get_inference_statistics("repeat", "1"),
        ):
            (counts,) = report["model_stats"]
            assert (counts["name"], counts["version"]) == ("repeat", "1")
            assert (counts["inference_count"], counts["execution_count"]) == (4, 2)
            assert counts["last_inference"] > 1.7e12
            measured = {
                name: duration["count"]
                for name, duration in counts["inference_stats"].items()
                if duration["ns"] > 0
            }
            stages = ("queue", "compute_input", "compute_infer", "compute_output")
            assert measured == dict.fromkeys(("success", *stages), 2)
            assert counts["inference_stats"]["fail"]["count"] == 1
            assert counts["batch_stats"] == []


def test_the_repository(tmp_path: Path) -> None:
    models = tmp_path / "models"
    write_bundle(models, Spec())
    with (
        Server(models, tmp_path / "log", admin_keys="secret", api_keys="other") as server,
        triton.InferenceServerClient(server.url.removeprefix("http://")) as client,
    ):
        assert client.is_server_ready()
        with pytest.raises(InferenceServerException, match="expected a key") as refused:
            client.get_model_repository_index()
        assert refused.value.status() == "401"
        states = {"repeat": "READY"}
        assert index(client) == states
        write_bundle(models, Spec(name="new"))
        assert index(client) == states | {"new": "UNAVAILABLE"}
        with pytest.raises(InferenceServerException, match="expected an admin key") as refused:
            client.load_model("new", headers={"X-API-Key": "other"})
        assert refused.value.status() == "403"
        client.load_model("new", headers=ADMIN)
        assert index(client) == states | {"new": "READY"}
        assert client.is_model_ready("new", headers=ADMIN)
        client.unload_model("repeat", headers=ADMIN)
        assert not client.is_model_ready("repeat", headers=ADMIN)
        with pytest.raises(InferenceServerException, match="no model 'nope'"):
            client.load_model("nope", headers=ADMIN)
        with pytest.raises(InferenceServerException, match="as they are in the repository"):
            client.load_model("new", headers=ADMIN, config="{}")


def index(client: triton.InferenceServerClient) -> dict[str, str]:
    entries = client.get_model_repository_index(headers=ADMIN)
    return {entry["name"]: entry["state"] for entry in entries}


# It leaves answers unread that it wants nothing of but the status.
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
