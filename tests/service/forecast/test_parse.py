from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic_core import from_json

from foretell.service.errors import InvalidInputError, ServiceError, UnreadableError
from foretell.service.forecast import parse as parsing
from foretell.service.forecast.job import decode
from foretell.service.forecast.parse import parse, parsing_bytes, reading_work
from foretell.service.forecast.requests import Envelope
from foretell.service.http.body import LARGE
from foretell.service.validation import UnknownFields
from tests.service.client import Client
from tests.service.test_hostile import FORECASTS, changed

NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers(-(2**80), 2**80).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)


@pytest.fixture(autouse=True, params=["with simdjson", "without"], scope="module")
def _readers(request: pytest.FixtureRequest) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "without":
            patch.setattr(parsing, "_simd", None)
        elif parsing._simd is None:
            pytest.skip("simdjson has no wheel for this Python")
        yield


def nested(depth: int) -> bytes:
    return b'{"inputs":[1],"%s":{"a":' + b"[" * depth + b"]" * depth + b"}}"


def slowly(body: bytes) -> tuple[Envelope, UnknownFields]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "read_json", lambda body, *_: from_json(body, allow_inf_nan=True))
        return parse(body)


def outcome(client: Client, body: bytes, read: Any) -> Any:
    """Outcome of a request: its windows, or the error and its place."""
    try:
        envelope, ignored = read(body)
        model = client.repository.registry.find(envelope.model)
        job = decode(envelope, ignored, model, client.settings)
    except ServiceError as error:
        return error.type, error.param
    entries = [
        (entry.type, entry.param) if isinstance(entry, ServiceError) else entry
        for entry in job.entries
    ]
    calendar = None if job.calendar is None else job.calendar.tobytes()
    metadata = None if job.metadata is None else json.loads(job.metadata)
    return job.options, entries, job.history.tobytes(), calendar, metadata, job.warnings


@given(st.data())
def test_fast_parser_equals_the_slow_one(client: Client, data: st.DataObject) -> None:
    body = json.dumps(changed(data.draw(st.sampled_from(FORECASTS)), data)).encode()
    assert outcome(client, body, parse) == outcome(client, body, slowly)


EIGHT, ROWS = list(range(8)), [[float(step), -step] for step in range(8)]


@pytest.mark.parametrize(
    ("model", "series"),
    [
        *(
            ("repeat", [*EIGHT[1:], last])
            for last in (2**53 + 1, 2**64 - 1, 10**30, 1e39, -(10**39))
        ),
        *(("repeat", [*EIGHT[1:], last]) for last in (None, True, "1", [1], [[]], float("nan"))),
        *(
            ("repeat", series)
            for series in (EIGHT, [[each] for each in EIGHT], EIGHT[1:], [], [[]])
        ),
        *(("repeat", series) for series in ("12345678", ROWS)),
        *(("multi", series) for series in (ROWS, EIGHT, [1.5, *EIGHT], [2**60, *EIGHT])),
        *(("multi", [*ROWS[1:], last]) for last in ([1], [1, 2, 3], [3, 1e300])),
        ("multi", [[*row, 0] for row in ROWS]),
    ],
)
@pytest.mark.parametrize("missing", ["error", "interpolate"])
@pytest.mark.parametrize("name", ["a", "[,]", "Z\u00fcrich", 'a "quote"'])
def test_fast_parser_reads_odd_series_like_the_slow_one(
    client: Client, model: str, series: Any, missing: str, name: str
) -> None:
    inputs = [{"name": name, "series": series}, {"series": ROWS if model == "multi" else EIGHT}]
    body = json.dumps({"model": model, "inputs": inputs, "options": {"missing": missing}}).encode()
    assert outcome(client, body, parse) == outcome(client, body, slowly)


@given(st.lists(NUMBERS, min_size=8, max_size=12))
@example(["1e400"] * 8)
@example(
    ["-0", "-0.0", "0e5", "1E2", "1e-400", "5e-324", "340282346638528859811704183484516925440"]
)
@example([str(2**64), str(-(2**63) - 1), str(2**53 + 1), str(10**400), "3.4028236e38", "1", "0"])
def test_fast_parser_reads_numbers_like_the_slow_one(client: Client, numbers: list[str]) -> None:
    series = ",".join([*numbers, "1"])
    body = b'{"model":"repeat","inputs":[{"series":[%s]}]}' % series.encode()
    assert outcome(client, body, parse) == outcome(client, body, slowly)


SIZE = 300_000
# Bytes that orjson reserves for each byte it reads; most are never written.
RESERVED = 13


def peak(client: Client, body: bytes) -> int:
    tracemalloc.start()
    try:
        outcome(client, body, parse)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "value", [b"0", b"0.5", b"0.123456789", b"[0]", b'"ab"', b'{"a":0}', b"{}", b"[]", b"null"]
)
def test_counted_memory_covers_the_real_one(client: Client, value: bytes) -> None:
    values = b",".join([value] * (SIZE // (len(value) + 1) + 1))
    body = b'{"model":"repeat","inputs":[{"series":[%s]}]}' % values
    counted = parsing_bytes(body)
    assert peak(client, body) <= counted + RESERVED * len(body)
    assert counted <= 60 * len(body)


@pytest.mark.parametrize("text", ["x", "\\u00e9", "é", "😀"])
def test_counted_memory_covers_texts(client: Client, text: str) -> None:
    body = ('{"metadata": {"a": "%s"}, "inputs": [{"series": [1]}]}' % (text * SIZE)).encode()
    assert peak(client, body) <= parsing_bytes(body) + RESERVED * len(body)


@pytest.mark.parametrize(
    ("mark", "cost"),
    [(b",", 64), (b"[", 88), (b"{", 64), (b":", 104), (b'"', 24), (b"\xff", 8), (b"]", 0)],
)
def test_delimiters_anywhere_in_a_body_are_counted(mark: bytes, cost: int) -> None:
    blank = b" " * 3_000_000
    assert parsing_bytes(blank) == 5 * len(blank)
    for at in (0, 1_500_000, 2_999_999):
        marked = blank[:at] + mark + blank[at + 1 :]
        assert parsing_bytes(memoryview(marked)) == parsing_bytes(blank) + cost
    assert parsing_bytes(mark * 1000) == 1000 * (cost + 5)


def test_brackets_count_as_work() -> None:
    numbers, lists = b"[" + b"1," * 60_000 + b"1]", b"[" + b"[]," * 40_000 + b"[]]"
    assert len(numbers) <= reading_work(numbers, len(numbers)) < LARGE
    assert len(lists) < LARGE <= reading_work(lists, len(lists))
    objects = lists.replace(b"[]", b"{}")
    assert reading_work(objects, len(objects)) == reading_work(lists, len(lists))
    # Bytes after the JSON do not count.
    assert reading_work(numbers + lists, len(numbers)) == reading_work(numbers, len(numbers))


@pytest.mark.parametrize("value", ["[1]", "1", "-1", '"a"', "true", "false", "null", "NaN"])
def test_body_other_than_an_object_is_refused(value: str) -> None:
    for blanks in (0, 70_000):
        with pytest.raises(InvalidInputError, match="expected an object"):
            parse(value.encode() + b" " * blanks)


def test_last_of_duplicate_keys_counts() -> None:
    body = b'{"model":"a","inputs":[1],"model":"b","metadata":{"k":1,"k":2}}'
    envelope, _ = parse(body)
    assert (envelope.model, envelope.metadata) == ("b", b'{"k":1,"k":2}')
    assert parse(body[: body.index(b',"metadata"')] + b"}")[0].model == "b"


@pytest.mark.parametrize("number", [2**70, -(2**70), 2**63, 1.0, 0.1, 10**30])
def test_metadata_is_read_digit_by_digit(number: float) -> None:
    body = json.dumps({"inputs": [1], "metadata": {"nested": [number]}}).encode()
    metadata = parse(body)[0].metadata
    assert metadata == json.dumps({"nested": [number]}).encode()


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_nonfinite_literals_are_parsed_and_refused_later(literal: str) -> None:
    (entry,) = parse(b'{"inputs":[{"series":[%s]}]}' % literal.encode())[0].inputs
    assert not np.isfinite(entry["series"][0])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        *(
            (body, "the body is not JSON")
            for body in (
                b"",
                b"{",
                b"{}{}",
                b"\xff",
                b"[" * 10_000,
                b'"\\ud800"',
                b"\xef\xbb\xbf{}",
            )
        ),
        *((nested(2000) % name, "the body is not JSON") for name in (b"metadata", b"ignored")),
        # Bodies that do not begin like JSON are not read.
        (bytes(70_000), r"not JSON: it begins with b'[\\x0]*'$"),
        *(
            (blank * 70_000 + b'{"inputs": [1]}', r"not JSON: it begins with b'[ \\ntr]*'$")
            for blank in (b" ", b"\n", b"\t", b"\r")
        ),
    ],
)
def test_bodies_other_than_json_are_refused(body: bytes, message: str) -> None:
    with pytest.raises(UnreadableError, match=message):
        parse(body)


@pytest.mark.parametrize("blank", [b" ", b"\n", b"\t", b"\r"])
def test_blanks_and_nesting_are_accepted(blank: bytes) -> None:
    assert parse(blank * 60_000 + b'{"inputs": [1]}' + b" " * 10_000)[0].inputs == [1]
    assert parse(nested(900) % b"ignored")[0].inputs == [1]
    assert parse(nested(100) % b"metadata")[0].metadata is not None
