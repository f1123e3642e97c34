"""Tensors of BF16 in the Open Inference Protocol (triton-inference-server/client#897)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.http as triton

from foretell.service.errors import InvalidInputError
from foretell.service.inference import tensors
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle

_VALUES = np.array([1.0, -2.5, 0.0078125, 3.0e38], dtype=np.float32)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("models")
    write_bundle(folder, Spec())
    with Client(folder) as client:
        yield client


def test_binary_values_are_the_upper_halves_of_float32() -> None:
    raw = (_VALUES.view(np.uint32) >> 16).astype("<u2").tobytes()
    assert tensors.binary_size("BF16", (2, 2)) == len(raw)
    found = tensors.from_binary(memoryview(raw), "BF16", (2, 2), "history")
    expected = (_VALUES.view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(found, expected.reshape(2, 2))


def test_infinity_is_refused_in_its_place() -> None:
    raw = np.array([0x3F80, 0x7F80], "<u2").tobytes()
    with pytest.raises(InvalidInputError, match="expected finite numbers") as refused:
        tensors.from_binary(memoryview(raw), "BF16", (1, 2), "history")
    assert refused.value.param == "history"


def test_tritonclient_sends_bfloat16(client: Client) -> None:
    history = np.arange(8, dtype=np.float32).reshape(1, 8, 1)
    tensor = triton.InferInput("history", list(history.shape), "BF16")
    tensor.set_data_from_numpy(history)
    body, size = triton.InferenceServerClient.generate_request_body(
        [tensor], outputs=[triton.InferRequestedOutput("forecast", binary_data=False)]
    )
    headers = {"Inference-Header-Content-Length": str(size)}
    answer = client.request("POST", "/v2/models/repeat/infer", content=body, headers=headers)
    assert answer.status_code == 200, answer.text
    [output] = answer.json()["outputs"]
    np.testing.assert_allclose(output["data"], Spec().forecast(history).ravel())


def test_json_numbers_of_bfloat16_are_read(client: Client) -> None:
    data = [float(value) for value in range(8)]
    tensor = {"name": "history", "shape": [1, 8, 1], "datatype": "BF16", "data": data}
    answer = client.request("POST", "/v2/models/repeat/infer", json={"inputs": [tensor]})
    assert answer.status_code == 200, answer.text
