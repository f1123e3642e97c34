from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from foretell.service.errors import InvalidInputError, NotSupportedError, ServiceError
from foretell.service.inference.tensors import (
    Inputs,
    binary_size,
    check_datatype,
    datatype_of,
    from_binary,
    from_json,
)
from foretell.service.inference.wire import InputTensor
from tests.service.client import Client
from tests.service.conftest import MULTIVARIATE
from tests.service.inference.bodies import HEADER, HISTORY, binary, infer, tensor

DATATYPES = {
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "FP16": np.float16,
    "FP32": np.float32,
    "FP64": np.float64,
}
SHAPE = (2, 3, 1)
PLACE = "inputs[1]"
NAN, INFINITY = float("nan"), float("inf")
BYTES, EITHER = HISTORY.tobytes(), "expected either data or parameters.binary_data_size"


@given(st.data())
def test_every_float32_is_read(data: st.DataObject) -> None:
    datatype = data.draw(st.sampled_from(sorted(DATATYPES)))
    dtype = np.dtype(DATATYPES[datatype])
    elements: dict[str, Any] = {}
    if dtype.kind == "f":
        elements = {"min_value": -60_000, "max_value": 60_000}
    values = data.draw(arrays.arrays(dtype, SHAPE, elements=elements or None))
    expected = values.astype(np.float32)
    content = values.astype(dtype.newbyteorder("<")).tobytes()
    assert len(content) == binary_size(datatype, SHAPE)
    assert datatype_of(values) == datatype
    # At any alignment, which the length of the JSON decides.
    padded = memoryview(b"x" * data.draw(st.integers(0, 8)) + content)[-len(content) :]
    for found in (
        from_binary(padded, datatype, SHAPE, PLACE),
        from_json(values.tolist(), datatype, SHAPE, PLACE),
        from_json(values.ravel().tolist(), datatype, SHAPE, PLACE),
    ):
        assert found.dtype == np.float32
        assert found.flags.aligned
        np.testing.assert_array_equal(found, expected)


def test_float32_is_not_copied() -> None:
    body = bytearray(np.arange(6, dtype=np.float32).tobytes())
    found = from_binary(memoryview(body), "FP32", SHAPE, PLACE)
    assert np.shares_memory(found, np.frombuffer(body, np.uint8))


def test_bfloat16_is_the_upper_half_of_float32(client: Client) -> None:
    """As tritonclient sends it (triton-inference-server/client#897)."""
    values = np.array([1.0, -2.5, 0.0078125, 3.0e38, 0, 7], np.float32).reshape(SHAPE)
    raw = (values.view(np.uint32) >> 16).astype("<u2").tobytes()
    assert binary_size("BF16", SHAPE) == len(raw)
    expected = (values.view(np.uint32) & 0xFFFF0000).view(np.float32)
    np.testing.assert_array_equal(from_binary(memoryview(raw), "BF16", SHAPE, PLACE), expected)
    np.testing.assert_array_equal(from_json(values.tolist(), "BF16", SHAPE, PLACE), values)
    infinite = np.array([0x3F80, 0x7F80] * 3, "<u2").tobytes()
    with pytest.raises(InvalidInputError, match="expected finite numbers") as refused:
        from_binary(memoryview(infinite), "BF16", SHAPE, PLACE)
    assert refused.value.param == PLACE
    tensor = triton.InferInput("history", list(HISTORY.shape), "BF16")
    tensor.set_data_from_numpy(HISTORY)
    wanted = [triton.InferRequestedOutput("forecast", binary_data=False)]
    body, size = triton.InferenceServerClient.generate_request_body([tensor], outputs=wanted)
    (output,) = infer(client, body, {HEADER: str(size)}).json()["outputs"]
    np.testing.assert_allclose(output["data"], MULTIVARIATE.forecast(HISTORY).ravel())


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL", "FP8", "fp32", "", "x" * 1000])
def test_nonnumeric_datatypes_are_refused(datatype: str) -> None:
    with pytest.raises(InvalidInputError, match="expected a datatype of numbers") as error:
        check_datatype(datatype, PLACE)
    assert error.value.param == "inputs[1].datatype"
    assert len(error.value.message) < 250


@pytest.mark.parametrize(
    "data",
    [
        *([], [1.0] * 5, [1.0] * 7, [[1.0] * 3] * 2, [[[1.0]] * 3] * 3, [[[1.0]] * 4] * 2),
        *(
            [[[1.0]] * 3, [[1.0]] * 2],
            [[[1.0]] * 3, 1.0],
            [[[1.0]] * 3, [[1.0], [1.0], [1.0, 2.0]]],
        ),
        *([[[1.0]] * 3, [[1.0], [1.0], 1.0]], [[]], [[], []]),
    ],
)
def test_lists_of_another_shape_are_refused(data: list[Any]) -> None:
    expected = r"a list of 6 numbers, or lists nested as \[2, 3, 1\], got a list of \d"
    with pytest.raises(InvalidInputError, match=expected) as error:
        from_json(data, "FP32", SHAPE, PLACE)
    assert error.value.param == "inputs[1].data"


@pytest.mark.parametrize("wrong", ["x", None, True, [1], 10**400])
@pytest.mark.parametrize("at", [0, 1, 499, 500, 998, 999])
def test_the_first_wrong_value_of_many_is_named(wrong: object, at: int) -> None:
    data: list[object] = [1.5] * 1000
    data[at] = data[-1] = wrong
    with pytest.raises(InvalidInputError, match="expected a number of FP32") as error:
        from_json(data, "FP32", (1000,), PLACE)
    assert error.value.param == f"inputs[1].data[{at}]"


@pytest.mark.parametrize(
    ("datatype", "value", "shown"),
    [
        *(
            ("FP32", "1.5", "the string '1.5'"),
            ("FP32", None, "null"),
            ("FP32", [1.0], "a list of"),
        ),
        *(("FP32", True, "true"), ("FP64", False, "false"), ("INT8", True, "true")),
        *(("FP32", 1e39, "1e\\+39"), ("FP16", 65536.0, "65536.0"), ("FP32", 10**400, "70 digits")),
        *(("INT32", 1.5, "1.5"), ("UINT8", 256, "256"), ("UINT8", -1, "-1"), ("INT64", 2**63, "9")),
        ("FP32", {}, "an object"),
    ],
)
@pytest.mark.parametrize("nested", [True, False])
def test_values_of_another_datatype_are_refused(
    datatype: str, value: object, shown: str, nested: bool
) -> None:
    flat: list[Any] = [0, 1, 1, 0, value, 1]
    data = [[[each] for each in flat[:3]], [[each] for each in flat[3:]]] if nested else flat
    with pytest.raises(InvalidInputError, match=f"of {datatype}, got .*{shown}") as error:
        from_json(data, datatype, SHAPE, PLACE)
    assert error.value.param == "inputs[1].data" + ("[1][1][0]" if nested else "[4]")


@pytest.mark.parametrize(
    ("datatype", "value"),
    [("FP32", NAN), ("FP32", -INFINITY), ("FP16", INFINITY), ("FP64", NAN), ("FP64", 1e39)],
)
def test_nonfinite_values_are_refused(datatype: str, value: float) -> None:
    values = np.array([0, 1, 2, 3, value, 5], DATATYPES[datatype]).reshape(SHAPE)
    expected = f"expected finite numbers .* got {re.escape(str(value))} at "
    for found in (
        lambda: from_binary(memoryview(values.tobytes()), datatype, SHAPE, PLACE),
        lambda: from_json(values.ravel().tolist(), datatype, SHAPE, PLACE),
    ):
        with pytest.raises(InvalidInputError, match=expected) as error:
            found()
        assert error.value.message.endswith(" at [1, 1, 0]")
        assert error.value.param == "inputs[1]"


MOST = 4


def read_inputs(
    client: Client, *inputs: dict[str, Any], data: bytes = b"", model: str = "multi"
) -> Any:
    """The feeds of a request with inputs in JSON and binary data."""
    manifest = client.repository.registry.find(model).manifest
    reader = Inputs(manifest, MOST, memoryview(data))
    return reader.read([InputTensor.model_validate(each) for each in inputs])


def read_raw(client: Client, data: bytes, model: str = "multi") -> Any:
    """The feeds of a body without JSON."""
    manifest = client.repository.registry.find(model).manifest
    return Inputs(manifest, MOST, memoryview(data)).read_raw()


def refusal_of(client: Client, *inputs: dict[str, Any], **options: Any) -> tuple[str | None, str]:
    with pytest.raises(ServiceError) as error:
        read_inputs(client, *inputs, **options)
    assert isinstance(error.value, NotSupportedError) == ("supported" in error.value.message)
    return error.value.param, error.value.message


def test_binary_tensors_follow_in_order(client: Client) -> None:
    features = client.repository.registry.find("calendar").manifest.calendar
    assert features is not None
    past = np.random.default_rng(0).normal(size=(2, 8, len(features.features))).astype(np.float64)
    future = np.ones((2, 4, len(features.features)), np.float16)
    history = np.arange(16, dtype=np.int32).reshape(2, 8, 1)
    feeds = read_inputs(
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


@pytest.mark.parametrize(
    ("inputs", "data", "place", "message"),
    [
        ([tensor(name="x")], b"", "[0].name", "expected one of history, got the string 'x'"),
        ([tensor(), tensor()], b"", "[1].name", "history is given twice"),
        ([], b"", "", "history: required, but missing"),
        ([tensor(parameters={"binary_data_size": 64})], b"", "[0]", EITHER),
        ([tensor(data=None)], b"", "[0]", EITHER),
        (
            [binary() | {"parameters": {"binary_data_size": 63}}],
            *(BYTES, "[0].parameters.binary_data_size"),
            "expected 64 bytes of FP32 for [1, 8, 2], got 63",
        ),
        ([binary()], BYTES[1:], "[0]", "expected 64 bytes of data, of which the body holds 63; "),
        ([binary()], BYTES + b"xy", "", "2 bytes follow the last of the tensors"),
        ([tensor()], b"x", "", "1 bytes follow the last of the tensors"),
        *(
            ([tensor(shape=shape)], b"", "[0].shape", "expected [batch, 8, 2], got ")
            for shape in ([], [1], [8, 2], [1, 8, 2, 1], [1, 7, 2], [1, 8, 1], [0, 8, 2], [1] * 100)
        ),
        (
            [tensor(np.zeros((MOST + 1, 8, 2)))],
            *(b"", "[0].shape[0]", "expected a batch of at most 4 (max_inputs), got 5"),
        ),
        # Refused before anything of that size is made.
        ([tensor(shape=[2**50, 8, 2])], b"", "[0].shape[0]", "expected a batch of at most 4"),
        (
            [tensor(data=None, parameters={"shared_memory_region": "mine"})],
            *(b"", "[0].parameters.shared_memory_region", "shared memory is not supported"),
        ),
    ],
)
def test_inputs_that_are_refused(
    client: Client, inputs: list[dict[str, Any]], data: bytes, place: str, message: str
) -> None:
    param, text = refusal_of(client, *inputs, data=data)
    assert param == f"inputs{place}"
    assert text.startswith(message)
    assert len(text) < 100 or "bytes of data" in text


def test_inputs_have_one_batch(client: Client) -> None:
    most = read_inputs(client, tensor(np.zeros((MOST, 8, 2))))["history"]
    assert len(most) == MOST
    features = client.repository.registry.find("calendar").manifest.calendar
    assert features is not None
    other = tensor(np.zeros((3, 8, len(features.features))), name="history_calendar")
    assert refusal_of(client, tensor(np.zeros((2, 8, 1))), other, model="calendar") == (
        *("inputs[1].shape[0]", "expected a batch of 2, as in the inputs before, got 3"),
    )
    assert refusal_of(client, tensor(HISTORY[:, :, :1]), model="calendar") == (
        *("inputs", "history_calendar, future_calendar: required, but missing"),
    )


def test_binary_body_is_histories(client: Client) -> None:
    history = np.arange(32, dtype=np.float32).reshape(2, 8, 2)
    np.testing.assert_array_equal(read_raw(client, history.tobytes())["history"], history)


@pytest.mark.parametrize(
    ("data", "model", "message"),
    [
        *((bytes(size), "multi", f"64 bytes for each .* got {size}$") for size in (0, 63, 65, 4)),
        (bytes(64 * (MOST + 1)), "multi", "at most 4"),
        (b"\xff" * 64, "multi", "finite"),
        (bytes(32), "calendar", "history, history_calendar, future_calendar"),
    ],
)
def test_invalid_binary_bodies_are_refused(
    client: Client, data: bytes, model: str, message: str
) -> None:
    with pytest.raises(ServiceError, match=message) as error:
        read_raw(client, data, model)
    assert type(error.value) is (NotSupportedError if model == "calendar" else InvalidInputError)
