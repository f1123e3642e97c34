from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.inference.tensors import Inputs
from foretell.service.inference.wire import InputTensor
from tests.service.client import Client
from tests.service.inference.bodies import HISTORY, binary, tensor

MOST = 4


def reader(client: Client, data: bytes = b"", model: str = "multi") -> Inputs:
    return Inputs(client.repository.registry.find(model).manifest, MOST, memoryview(data))


def read(client: Client, *inputs: dict[str, Any], data: bytes = b"", model: str = "multi") -> Any:
    parsed = [InputTensor.model_validate(each) for each in inputs]
    return reader(client, data, model).read(parsed)


def refusal(client: Client, *inputs: dict[str, Any], **options: Any) -> tuple[str | None, str]:
    with pytest.raises(InvalidInputError) as error:
        read(client, *inputs, **options)
    return error.value.param, error.value.message


def test_binary_tensors_follow_in_order(client: Client) -> None:
    features = client.repository.registry.find("calendar").manifest.calendar
    assert features is not None
    past = np.random.default_rng(0).normal(size=(2, 8, len(features.features))).astype(np.float64)
    future = np.ones((2, 4, len(features.features)), np.float16)
    history = np.arange(16, dtype=np.int32).reshape(2, 8, 1)
    feeds = read(
        client,
        binary(past, name="history_calendar", datatype="FP64"),
        tensor(history, datatype="INT32"),
        binary(future, name="future_calendar", datatype="FP16"),
        data=past.tobytes() + future.tobytes(),
        model="calendar",
    )
    assert {name: values.dtype for name, values in feeds.items()} == dict.fromkeys(
        ("history", "history_calendar", "future_calendar"), np.float32
    )
    np.testing.assert_array_equal(feeds["history_calendar"], past.astype(np.float32))
    np.testing.assert_array_equal(feeds["future_calendar"], future)
    np.testing.assert_array_equal(feeds["history"], history)


def test_names(client: Client) -> None:
    assert refusal(client, tensor(name="x")) == (
        *("inputs[0].name", "expected one of history, got the string 'x'"),
    )
    assert refusal(client, tensor(), tensor()) == ("inputs[1].name", "history is given twice")
    assert refusal(client) == ("inputs", "history: required, but missing")
    assert refusal(client, tensor(HISTORY[:, :, :1]), model="calendar") == (
        *("inputs", "history_calendar, future_calendar: required, but missing"),
    )


@pytest.mark.parametrize(
    "shape", [[], [1], [8, 2], [1, 8, 2, 1], [1, 7, 2], [1, 8, 1], [0, 8, 2], [1] * 100]
)
def test_shapes(client: Client, shape: list[int]) -> None:
    place, message = refusal(client, tensor(shape=shape))
    assert place == "inputs[0].shape"
    assert message.startswith("expected [batch, 8, 2], got ")
    assert len(message) < 100


def test_batches(client: Client) -> None:
    most = read(client, tensor(np.zeros((MOST, 8, 2))))["history"]
    assert len(most) == MOST
    assert refusal(client, tensor(np.zeros((MOST + 1, 8, 2)))) == (
        *("inputs[0].shape[0]", "expected a batch of at most 4 (max_inputs), got 5"),
    )
    # Refused before anything of that size is made.
    place, _ = refusal(client, tensor(shape=[2**50, 8, 2]))
    assert place == "inputs[0].shape[0]"
    features = client.repository.registry.find("calendar").manifest.calendar
    assert features is not None
    other = tensor(np.zeros((3, 8, len(features.features))), name="history_calendar")
    assert refusal(client, tensor(np.zeros((2, 8, 1))), other, model="calendar") == (
        *("inputs[1].shape[0]", "expected a batch of 2, as in the inputs before, got 3"),
    )


def test_data_comes_in_one_way(client: Client) -> None:
    either = "expected either data or parameters.binary_data_size"
    assert refusal(client, tensor(parameters={"binary_data_size": 64})) == ("inputs[0]", either)
    assert refusal(client, tensor(data=None)) == ("inputs[0]", either)


def test_sizes(client: Client) -> None:
    data = HISTORY.tobytes()
    wrong = binary() | {"parameters": {"binary_data_size": 63}}
    assert refusal(client, wrong, data=data) == (
        "inputs[0].parameters.binary_data_size",
        "expected 64 bytes of FP32 for [1, 8, 2], got 63",
    )
    place, message = refusal(client, binary(), data=data[:-1])
    assert place == "inputs[0]"
    assert message.startswith("expected 64 bytes of data, of which the body holds 63; ")
    assert refusal(client, binary(), data=data + b"xy") == (
        *("inputs", "2 bytes follow the last of the tensors"),
    )
    assert refusal(client, tensor(), data=b"x")[1] == "1 bytes follow the last of the tensors"


def test_shared_memory(client: Client) -> None:
    shared = tensor(data=None, parameters={"shared_memory_region": "mine"})
    with pytest.raises(NotSupportedError, match="shared memory"):
        read(client, shared)


def test_a_body_without_json(client: Client) -> None:
    history = np.arange(32, dtype=np.float32).reshape(2, 8, 2)
    feeds = reader(client, history.tobytes()).read_raw()
    np.testing.assert_array_equal(feeds["history"], history)


@pytest.mark.parametrize("size", [0, 63, 65, 4])
def test_a_body_that_is_no_whole_number_of_histories(client: Client, size: int) -> None:
    with pytest.raises(InvalidInputError, match=f"64 bytes for each .* got {size}$"):
        reader(client, bytes(size)).read_raw()


def test_a_body_without_json_has_limits_too(client: Client) -> None:
    with pytest.raises(InvalidInputError, match="at most 4"):
        reader(client, bytes(64 * (MOST + 1))).read_raw()
    with pytest.raises(InvalidInputError, match="finite"):
        reader(client, b"\xff" * 64).read_raw()
    with pytest.raises(NotSupportedError, match="history, history_calendar, future_calendar"):
        reader(client, bytes(32), "calendar").read_raw()
