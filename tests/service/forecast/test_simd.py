from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.service.forecast.bodies import as_lists

pytest.importorskip("simdjson", reason="simdjson has no wheel for this Python")

from foretell.service.forecast import simd

NUMBERS = st.one_of(st.integers(-(2**63), 2**64 - 1), st.floats(allow_nan=False, width=64))
VALUES = st.recursive(
    st.one_of(NUMBERS.filter(lambda number: abs(number) < 1e308), st.none(), st.booleans())
    | st.text("a[]{}", max_size=3),
    lambda children: (
        st.lists(children, max_size=4)
        | st.dictionaries(st.text("ab\0\U00038235", max_size=2), children)
    ),
    max_leaves=12,
)


def body_of(*inputs: object, **members: object) -> bytes:
    return json.dumps({"inputs": inputs, **members}).encode()


def series_of(series: object) -> Any:
    found = simd.read(body_of({"series": series}))
    return None if found is None else found["inputs"][0]["series"]


@pytest.mark.parametrize(
    ("series", "becomes_array"),
    [
        *((each, True) for each in ([1, 2.5, -3e38], [7], [[1, 2], [3.5, 4], [5, 6]])),
        *((each, True) for each in ([[1], [2]], [[0.1, 1e-320]])),
        *((each, False) for each in ([], [[]], [[], []], [1, None], [True, 1], [1, "2"])),
        *((each, False) for each in (["1", "2"], [[1, 2], [3]], [[1, 2], 3], [[1, 2], None])),
        *((each, False) for each in ({"a": [1]}, "12", None, 5)),
    ],
)
def test_numbers_become_arrays_and_other_series_are_kept(series: Any, becomes_array: bool) -> None:
    found = series_of(series)
    assert as_lists(found) == series
    assert isinstance(found, np.ndarray) == becomes_array
    assert not becomes_array or found.dtype == np.float64


def test_all_members_are_read() -> None:
    request = {
        "model": "m",
        "options": {"quantiles": [0.1, 0.9], "attention": {"layers": [0]}},
        "inputs": [
            {"name": "a", "series": [1, 2], "timestamps": ["x", "y"], "channels": ["c"]},
            {"series": [[1], [2]], "start_timestamp": None},
        ],
    }
    found = simd.read(json.dumps(request).encode())
    assert as_lists(found) == request
    assert found is not None
    assert isinstance(found["inputs"][1]["series"], np.ndarray)


@pytest.mark.parametrize("field", ["past_covariates", "future_covariates"])
def test_covariates_become_arrays_where_they_are_numbers(field: str) -> None:
    given = {
        "price": [1, 2.5],
        "sky": ["clear", "rain"],
        "open": [True, False],
        "gaps": [1, None],
        "rows": [[1], [2]],
        "ragged": [["a"], [1, 2]],
        "one": 5,
        "object": {"a": [1, 2]},
        "none": [],
    }
    found = simd.read(body_of({"series": [1, 2], field: given}, {field: [1]}, {field: None}))
    assert found is not None
    entry, other, empty = found["inputs"]
    assert as_lists(entry[field]) == given
    arrays = {name for name, each in entry[field].items() if isinstance(each, np.ndarray)}
    assert arrays == {"price", "rows"}
    assert (other, empty) == ({field: [1]}, {field: None})
    many = {str(index): [1] for index in range(40)}
    assert simd.read(body_of({"series": [1], field: many})) is None
    texts = {"sky": ["clear"] * 40_000}
    assert simd.read(body_of({"series": [1], field: texts})) is None
    numbers = {"price": [1.5] * 40_000}
    assert as_lists(simd.read(body_of({"series": [1], field: numbers}))) == {
        "inputs": [{"series": [1], field: numbers}]
    }
    twice = b'{"inputs":[{"series":[1],"%s":{"a":[1],"a":[2]}}]}' % field.encode()
    assert simd.read(twice) is None


# Each has the number of values of a table, but rows of unequal length.
@pytest.mark.parametrize(
    "series",
    [
        *([1, [2]], [[1], 2], [[[1], 2], [3, 4]], [[[1, 2], 3], [[], 3]], [[[1]], [[2]]]),
        *([[1, 2], [3], [4, 5, 6]], [[1], [], [2, 3]]),
    ],
)
@pytest.mark.parametrize("name", ["a", "[]", "[,]"])
def test_lists_among_numbers_are_left_to_the_other_parsers(series: object, name: str) -> None:
    assert simd.read(body_of({"name": name, "series": series})) is None
    assert simd.read(body_of({"series": series}, {name: 0, "series": [[1, 2], [3, 4]]})) is None
    # The totals of both tables are right, the lengths of rows are not.
    first, second = [[1, 2], [1, 2, 3], [1]], [[1, 2, 3], [1, 2], [1, 2, 3, 4]]
    assert simd.read(body_of({"series": first}, {"series": second}, x=[1, 2])) is None
    assert simd.read(body_of({"series": second}, {"series": first})) is None


def test_tables_of_many_widths_beside_lists_as_long_as_their_rows() -> None:
    tables: list[Any] = [
        [1, 2, 3],
        [5],
        *([[1] * width] * (2 + width % 2) for width in range(1, 20)),
    ]
    options = {"quantiles": [0.1, 0.5, 0.9], "levels": [0.5], "none": [], "names": ["a", None]}
    found = simd.read(body_of(*({"series": table} for table in tables), options=options))
    assert found is not None
    assert all(isinstance(one["series"], np.ndarray) for one in found["inputs"])
    assert as_lists(found) == {"inputs": [{"series": one} for one in tables], "options": options}


@pytest.mark.parametrize("text", ["[", "]", "[,]", "[[1],[2]]", "1 2", "e", '{"a":[]}'])
def test_texts_with_brackets_and_numbers(text: str) -> None:
    body = json.dumps({"inputs": [{"name": text, "series": [[1, 2], [3, 4]]}]}).encode()
    expected = None if b"\\" in body else json.loads(body)
    assert as_lists(simd.read(body)) == expected


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"5",
        b"{}",
        b'{"inputs":{}}',
        b'{"inputs":[1]}',
        b'{"inputs":[[]]}',
        b'{"inputs":[{"series":[NaN]}]}',
        b'{"inputs":[{"series":[1e400]}]}',
        b'{"inputs":[{"series":[18446744073709551616]}]}',
        b'{"inputs":[{"series":[1],"series":[2]}]}',
        b'{"inputs":[],"model":"a","model":"b"}',
        b'{"inputs":[],"metadata":{"k":1.0}}',
        b'{"inputs":[{"name":"\xff"}]}',
        b'\xef\xbb\xbf{"inputs":[]}',
        b'{"inputs":[{"a\\u0000b":1}]}',
        # If keys ended at the zero, the last key would equal the one before, and hide a list.
        b'{"inputs":[{"series":[1,[2]],"x":[],"x\\u0000":0}]}',
        b'{"inputs":[%s]}' % b",".join([b"{}"] * 5000),
        b'{"inputs":[{"name":"a\\u005b","series":[1]}]}',
        b'{"inputs":[' + b"[" * 2000 + b"]" * 2000 + b"]}",
        b'{"inputs":[{%s}]}' % b",".join(b'"%d":1' % key for key in range(40)),
    ],
)
def test_unusual_bodies_are_left_to_the_other_parsers(body: bytes) -> None:
    assert simd.read(body) is None
    assert simd.read(bytearray(body)) is None
    # The next request is read.
    assert simd.read(b'{"inputs":[]}') == {"inputs": []}


def test_large_bodies() -> None:
    values = np.random.default_rng(0).normal(size=(50_000, 2)).round(6)
    body = body_of({"series": values.tolist()})
    assert len(body) > 2**20
    for _ in range(2):
        found = simd.read(body)
        assert found is not None
        assert np.array_equal(found["inputs"][0]["series"], values)


@pytest.mark.parametrize(
    "value", ["1", "[]", "{}", '""', "[[[[]]]]", '{"a":1}', "null", "[1]", '"[,"']
)
@pytest.mark.parametrize(
    "place",
    [
        '{"inputs":[{"series":[1,2]}],"zz":%s}',
        '{"inputs":[{"series":[1,2],"timestamps":%s}]}',
        '{"inputs":[{"series":[1,2]},{"series":["x",%s]}]}',
    ],
)
def test_bodies_with_few_numbers_are_left_to_the_other_parsers(value: str, place: str) -> None:
    def body(count: int) -> bytes:
        return (place % f"[{','.join([value] * count)}]").encode()

    assert simd.read(body(40_000)) is None
    assert as_lists(simd.read(body(1000))) == json.loads(body(1000))


def test_very_large_bodies_are_left_to_the_other_parsers() -> None:
    assert simd.read(b'{"inputs":[]}' + b" " * 2**22) is None


@settings(max_examples=300)
@given(VALUES, VALUES, st.booleans())
@example([1], {"a\0": 1, "a": 2}, True)
@example([[1, 2], [3, 4]], ["["], True)
@example([1, [2]], "]", False)
@example([2**53 + 1], None, False)
@example([[1], 2], {"x": "[]"}, True)
def test_simd_parser_reads_the_same_values(series: object, other: object, twice: bool) -> None:
    others = [{"name": other}] * twice
    found = simd.read(body_of({"series": series}, *others, options=other))
    if found is None:
        return
    if isinstance(found["inputs"][0]["series"], np.ndarray):
        # Whole numbers beyond 2 to the 53rd are rounded.
        series = np.array(series, np.float64).tolist()
    assert as_lists(found) == {"inputs": [{"series": series}, *others], "options": other}
