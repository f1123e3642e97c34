from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from foretell.service.errors import InvalidInputError
from foretell.service.forecast import cut, merge, metadata
from foretell.service.forecast.form import Form
from foretell.service.forecast.pieces import read_pieces
from foretell.service.validation import MOST_UNKNOWN

FORM = Form(
    {
        "": dict.fromkeys(("model", "inputs", "metadata", "options")),
        "options": dict.fromkeys(("levels", "a")),
        "inputs[]": dict.fromkeys(("name", "times", "rows", "values", "by_name", "a")),
    },
    texts={"inputs[].times", "inputs[].by_name.*"},
    nested={"inputs[].rows"},
    numbers={"inputs[].values"},
    named={"inputs[].by_name"},
)
TEXTS = st.text('ab,:[]{}"\\ é😀\n', max_size=6)
NUMBERS = st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
DATA = st.recursive(
    TEXTS | NUMBERS | st.none() | st.booleans(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=20,
)


@pytest.fixture(autouse=True, scope="module", params=[7, 40])
def _small_pieces(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "_PIECE", request.param)
        yield


def read(text: str | bytes, most: int = 1000) -> Any:
    body = text.encode() if isinstance(text, str) else text
    return read_pieces(memoryview(body), FORM, most)


def without_objects(value: object) -> Any:
    """Content of lists, with empty objects."""
    if isinstance(value, dict):
        return {}
    return [without_objects(part) for part in value] if isinstance(value, list) else value


@settings(max_examples=300)
@given(st.lists(DATA, max_size=8), st.sampled_from([None, 1, "\t"]), st.booleans())
def test_data_are_read_completely(
    data: list[Any], indent: str | int | None, is_ascii: bool
) -> None:
    request = {"inputs": [{"rows": data}], "model": "m"}
    found = read(json.dumps(request, indent=indent, ensure_ascii=is_ascii))
    assert found["model"] == "m"
    assert without_objects(found["inputs"][0]["rows"]) == without_objects(data)


@pytest.mark.parametrize("wrong", [[1, [2]], {"a": {}}, [], [[]]])
@pytest.mark.parametrize("path", ["inputs[].times", "options.levels", "model"])
def test_lists_and_objects_among_texts_are_kept_once(wrong: Any, path: str) -> None:
    items = ["text", 1, wrong, None, *[[3], {"b": 4}] * 40, "text"]
    request: Any = items
    for name in reversed(path.split(".")):
        inner, is_list = name.removesuffix("[]"), name.endswith("[]")
        request = {inner: [request] if is_list else request}
    found = read(json.dumps(request))
    for name in path.split("."):
        found = found[name.removesuffix("[]")]
        found = found[0] if name.endswith("[]") else found
    assert len(found) == len(items)
    assert without_objects(found[:4]) == without_objects(items[:4])
    assert found[-1] == "text"
    assert len({id(each) for each in found if isinstance(each, list | dict)}) == 1


def test_objects_among_lists_are_not_all_kept() -> None:
    found = read(json.dumps({"inputs": [{"rows": [[1, 2], *[{"a": [1]}] * 80, [3]]}]}))
    rows = found["inputs"][0]["rows"]
    assert [rows[0], len(rows), rows[-1]] == [[1, 2], 82, [3]]
    assert len({*map(id, rows)}) == 3


@pytest.mark.parametrize("text", [r"\\", r"\"", "]", "[", "{", ",", ":", r"\u00e9", r"\\\"", "a"])
@pytest.mark.parametrize("place", ['{"model":%s}', '{"metadata":{"a":%s}}', '{"unknown":%s}'])
def test_a_long_text_takes_no_more_than_a_few_times_its_size(
    text: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cut, "_PIECE", 16 * 1024)
    body = (place % f'"{text * (2_000_000 // len(text))}"').encode()
    tracemalloc.start()
    try:
        read(body)
        # orjson reserves twelve times the input, and writes to little of it.
        assert tracemalloc.get_traced_memory()[1] < 18 * len(body)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("mark", ["[", "]", "{", "}", "[]", "[{"])
def test_endless_brackets_are_refused_early(mark: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cut, "_PIECE", 1024)
    body = (mark * 2_000_000).encode()
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="at line 1 column"):
            read(body)
        assert tracemalloc.get_traced_memory()[1] < len(body) // 2
    finally:
        tracemalloc.stop()


@settings(max_examples=500)
@given(DATA, st.data())
def test_invalid_json_is_refused(value: object, data: st.DataObject) -> None:
    text = json.dumps({"inputs": [{"times": value}], "unknown": value, "options": {"a": value}})
    at = data.draw(st.integers(0, len(text)))
    marks = data.draw(st.text(',[]{}":\\1 ', max_size=2))
    text = text[:at] + marks + text[at + data.draw(st.integers(0, 2)) :]
    try:
        from_json(text, allow_inf_nan=True)
    except ValueError:
        with pytest.raises(ValueError, match="line"):
            read(text)
    else:
        read(text)


@pytest.mark.parametrize(
    "text",
    [
        *("1,2", "[1,2,]", "[,1]", "[1,,2]", '{"a":1,}', '{,"a":1}', "[1,2}", '{"a":[1,2},3]'),
        *("[1,2],[3,4]", "[1,2]]", "[[1,2],3", '["a,b', "  "),
    ],
)
def test_brackets_and_commas_in_wrong_places(text: str) -> None:
    with pytest.raises(ValueError, match="line"):
        read(text)


def test_an_error_has_its_place_in_the_whole_text() -> None:
    for text in ("[" + "1,\n " * 30 + "x, 2]", "[" + "10, " * 30 + "x, 2]"):
        with pytest.raises(ValueError, match="expected value at line") as expected:
            from_json(text)
        with pytest.raises(ValueError, match="expected value at line") as found:
            read(text)
        assert str(found.value) == str(expected.value)


@pytest.mark.parametrize(
    "values", [[1, 2.5] * 20, [[1, 2], [3.5, -4]] * 20, [[0.5]] * 30, [7] * 50, [2**63] * 20]
)
def test_numbers_become_arrays(values: list[Any]) -> None:
    found = read(json.dumps({"inputs": [{"values": values}]}))["inputs"][0]["values"]
    assert isinstance(found, np.ndarray)
    assert found.dtype == np.float64
    assert np.array_equal(found, np.array(values, np.float64))


@pytest.mark.parametrize("values", [[1, None, 2.5] * 20, [[1, None], [2, 3]] * 20, [None] * 30])
def test_null_and_nan_differ(values: list[Any]) -> None:
    found = read(json.dumps({"inputs": [{"values": values}]}))["inputs"][0]["values"]
    is_null = np.array([[value is None for value in np.ravel(row)] for row in values])
    assert np.array_equal(np.isnan(found).reshape(is_null.shape), is_null)
    assert np.signbit(found).reshape(is_null.shape)[is_null].all()
    odd = read('{"inputs":[{"values":[1,NaN,2,3,4,5,6,7,8]}]}')["inputs"][0]["values"]
    assert np.isnan(odd[1])
    assert not np.signbit(odd[1])


@pytest.mark.parametrize(
    "odd", [True, "1", [1, 2, 3], [1], {"a": 1}, 10**400, [[1]], [], [True, 2]]
)
@pytest.mark.parametrize("usual", [1.5, [1, 2]])
@pytest.mark.parametrize("at", [0, 17, 39])
def test_series_of_other_values_are_lists_up_to_them(odd: object, usual: object, at: int) -> None:
    values = [usual] * 40
    values[at] = odd
    found = read(json.dumps({"inputs": [{"values": values}]}))["inputs"][0]["values"]
    assert isinstance(found, list)
    assert without_objects(found)[:at] == values[:at]
    assert without_objects(found[at]) == without_objects(odd)


def test_first_unknown_names_are_kept_without_values() -> None:
    text = json.dumps({f"z{index}": [index, "a"] for index in range(300)} | {"model": "m"})
    found = read(text)
    assert found.pop("model") == "m"
    assert [*found] == [f"z{index}" for index in range(MOST_UNKNOWN + 1)]
    assert set(map(str, found.values())) == {"None"}


def test_objects_with_any_names_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {
        "a.b": [*range(40)],
        "é": ["clear", None, True, 2.5] * 20,
        "nested": [1, [2, 3], 4],
        "object": {"d": [1, 2, 3, 4, 5, 6, 7]},
        "value": "text",
    }
    found = read(json.dumps({"inputs": [{"by_name": given}]}))["inputs"][0]["by_name"]
    assert without_objects(list(found.values())) == without_objects(list(given.values()))
    assert [*found] == [*given]
    monkeypatch.setattr(merge, "_MOST_ITEMS", 30)
    many = {f"z{index}": index for index in range(300)}
    found = read(json.dumps({"inputs": [{"by_name": many}]}))["inputs"][0]["by_name"]
    assert found == {f"z{index}": index for index in range(30)}


def test_last_of_duplicate_names_counts() -> None:
    text = '{"options":{"a":[1,2,3,4,5,6]},"model":"b","options":{"a":[9,8,7,6,5]},"model":"c"}'
    assert read(text) == {"options": {"a": [9, 8, 7, 6, 5]}, "model": "c"}


def test_long_list_of_objects_keeps_its_length() -> None:
    text = json.dumps({"inputs": [{"name": str(index), "a": index} for index in range(500)]})
    found = read(text, most=10)["inputs"]
    assert len(found) == 500
    assert [each["name"] for each in found[:10]] == [*map(str, range(10))]
    assert len({*map(id, found)}) < 30


def test_metadata_are_kept_as_sent() -> None:
    inner = '{ "a":[1,2.50,1e2,1234567890123456789012],"é" :{"b":"\\u0041,]}"}, "c":[[],{}] }'
    for text in (
        '{"metadata":%s,"model":"m"}',
        '{"model":"m", "metadata" : %s}',
        '{"metadata":{"x":[1,2,3,4]},"model":"m","metadata":%s }',
        '{"metadata":0,"model":"m","\\u006detadata":%s }',
    ):
        assert read(text % inner) == {"model": "m", "metadata": inner.encode()}
    assert read('{"model":"mmmmmmmmmmmmm","metadata":[1,2,3,4,5]}')["metadata"] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize(
    "inner", ['{"a":[1,2,3,[%s,4],5,6]}', '{"a":%s}', '{"b":1,"c":2,"d":3,"e":{"a":%s,"b":1}}']
)
def test_metadata_with_nonfinite_numbers_are_refused(number: str, inner: str) -> None:
    text = '{"model":"m","metadata":%s,"inputs":[1]}' % inner.replace("%s", number)  # noqa: UP031 - braces
    with pytest.raises(InvalidInputError, match="NaN and Infinity") as error:
        # Values within one piece are refused as in small requests.
        metadata.echoed(read(text)["metadata"])
    assert error.value.param == "metadata"
    text = '{"inputs":[{"values":[1,2,%s,4,5,6,7,8]}],"metadata":{"a":1}}' % number  # noqa: UP031 - likewise
    found = read(text)
    assert not np.isfinite(found["inputs"][0]["values"]).all()
    assert metadata.echoed(found["metadata"]) in (b'{"a":1}', b'{"a": 1}')


@example("\\")
@example('\\\\"')
@given(st.text('\\",a', max_size=60))
def test_escaped_quotes_do_not_end_a_string(text: str) -> None:
    request = {"inputs": [{"times": [text, 1, text + "x", [text]]}]}
    assert read(orjson.dumps(request)) == request
