from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from foretell.service.errors import InvalidInputError
from foretell.service.inference.tensors import (
    binary_size,
    check_datatype,
    datatype_of,
    from_binary,
    from_json,
)

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


@given(st.data())
def test_every_number_that_float32_has(data: st.DataObject) -> None:
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
    # Wherever the JSON before it ends.
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


@pytest.mark.parametrize("datatype", ["BYTES", "BOOL", "FP8", "fp32", "", "x" * 1000])
def test_what_is_no_number(datatype: str) -> None:
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
def test_lists_of_another_shape(data: list[Any]) -> None:
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
def test_values_that_are_none_of_the_datatype(
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
def test_values_that_are_not_finite(datatype: str, value: float) -> None:
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
