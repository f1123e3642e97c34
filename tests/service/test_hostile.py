"""Any request gets an answer, or an error with its place; the server never fails."""

from __future__ import annotations

import contextlib
import copy
import gzip
import json
from collections.abc import Iterator
from datetime import datetime
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foretell.service.errors import ServiceError
from foretell.service.forecast.arrow import read_table, write_table
from foretell.service.forecast.columns import read_groups, read_times, read_values
from foretell.timeaxis.frequency import Frequency
from tests.service.client import Client
from tests.service.inference.bodies import HEADER, HISTORY, binary, infer, request, tensor

EIGHT = [float(n) for n in range(8)]
HOURS = [f"2024-01-01T{hour:02}:00:00Z" for hour in range(8)]
INFER = "/v2/models/multi/infer"
# Every field of the interface, in valid requests.
FORECASTS: list[dict[str, Any]] = [
    {
        "model": "calendar@1",
        "inputs": [
            {
                "name": "a",
                "type": "univariate_time_series",
                "series": EIGHT,
                "frequency": "hour",
                "frequency_multiple": 1,
                "start_timestamp": HOURS[0],
                "timestamps": HOURS,
            }
        ],
        "options": {"horizon": 2, "quantiles": [], "missing": "error", "attention": True},
        "metadata": {"any": ["thing", 1]},
    },
    {
        "model": "multi",
        "inputs": [
            {
                "type": "multivariate_time_series",
                "series": [[value, 1] for value in EIGHT],
                "channels": ["wind", "load"],
            },
            {"series": [[1, value] for value in EIGHT], "start_timestamp": "2024-01-01"},
        ],
        "options": {"attention": {"layers": [0, 1], "heads": "mean", "stages": ["encoder.0.self"]}},
    },
    {
        "model": "calibrated",
        "inputs": [
            {"series": [*EIGHT, None, 9.0], "start_timestamp": HOURS[0], "time_zone": "Asia/Tokyo"},
            {"series": EIGHT, "timestamps": [hour[:-1] for hour in HOURS], "time_zone": "UTC"},
        ],
        "options": {
            "horizon": 10,
            "quantiles": [0.1, 0.9],
            "missing": "interpolate",
            "attention": {"heads": [1]},
        },
    },
]
NIXTLA: dict[str, Any] = {
    "series": {"y": EIGHT * 2, "sizes": [8, 8], "start_datetime": HOURS[:2]},
    "model": "calibrated",
    "freq": "h",
    "h": 2,
    "level": [80],
    "model_parameters": {"missing": "ffill"},
}
OUTPUTS = [
    {"name": "forecast", "parameters": {"binary_data": True}},
    {"name": "encoder.1.self.lags"},
]
STREAM = write_table(
    pa.table(
        {
            "unique_id": pa.array(["a", "a", "b"]).dictionary_encode(),
            "ds": pa.array([datetime(2024, 1, 1, hour) for hour in range(3)], pa.timestamp("us")),
            "load": [1.0, None, 3.0],
            "note": pa.array(["x", "yy", "z"], pa.string_view()),
        }
    )
)


class Valid(NamedTuple):
    """A valid request: JSON, and the tensors that follow it."""

    path: str
    head: Any
    tail: bytes = b""

    def written(self, head: Any = None) -> tuple[bytes, dict[str, str]]:
        """Its body and headers, with other JSON if there is any."""
        text = json.dumps(self.head if head is None else head).encode()
        headers = {HEADER: str(len(text))} if self.path == INFER else {}
        return text + self.tail, headers


VALID = [
    *(Valid("/forecast", body) for body in FORECASTS),
    Valid("/nixtla/v2/forecast", NIXTLA),
    Valid(
        INFER,
        request(
            tensor(HISTORY.astype(int), datatype="INT64", parameters={}),
            id="7",
            parameters={"binary_data_output": True, "timeout": 10_000_000, "priority": 1},
            outputs=OUTPUTS,
        ),
    ),
    Valid(INFER, request(binary(), outputs=OUTPUTS[:1]), HISTORY.tobytes()),
    Valid(
        INFER,
        request(binary(HISTORY.astype(np.float16), datatype="FP16")),
        HISTORY.astype(np.float16).tobytes(),
    ),
]
HOSTILE: list[Any] = [
    *(None, True, -1, 0, 2**63, -(10**400), 1.5, 1e39, float("nan"), float("inf")),
    *("", "x", "\x00", "\u202e\U0001f600", "x" * 10_000, "../../etc/passwd", "multi@../1", "h" * 9),
    *("Europe/Berlin", "America/New_York", "ffill", 0.5, [0.5], [1, 0]),
    *("0001-01-01", "9999-12-31T23:59:59.999999+23:59", "2024-02-30", "15min", "999999Y"),
    *([], [None], [[]], [[[1]]], ["1"], [float("-inf")] * 8, [[1], 2], list(range(5000))),
    *({}, {"": {}}, {"model": "multi"}, {"layers": "all"}),
]
TEXTS = st.text(st.characters(exclude_categories=()), max_size=40)


def places(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value inside a JSON value."""
    children: list[tuple[Any, Any]] = []
    if isinstance(node, dict):
        children = list(node.items())
    elif isinstance(node, list):
        children = list(enumerate(node))
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def changed(valid: Any, data: st.DataObject) -> Any:
    """A JSON value with one or two values removed or replaced."""
    found = copy.deepcopy(valid)
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.sampled_from(list(places(found))))
        node: Any = found
        for key in place[:-1]:
            node = node[key]
        if data.draw(st.booleans()):
            node[place[-1]] = copy.deepcopy(data.draw(st.sampled_from(HOSTILE)))
        else:
            del node[place[-1]]
        if not found:
            break
    return found


def has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def check(client: Client, path: str, body: bytes, headers: dict[str, str]) -> int:
    """Check that the answer fits its status; returns the status."""
    answer = client.request("POST", path, content=body, headers=headers)
    assert answer.status_code in (200, 400, 404, 413, 422), (body[:500], headers, answer.text)
    length = int(answer.headers.get(HEADER, len(answer.content)))
    found = json.loads(answer.content[:length], parse_constant=pytest.fail)
    if answer.status_code != 200:
        assert len(answer.content) < 2000, "an error must not send the request back"
        if path == "/forecast":
            assert found["error"]["code"] == str(answer.status_code)
            assert found["error"]["message"]
        else:
            (message,) = found.values()
            assert 0 < len(message) < 1000
    elif path == INFER:
        sizes = [one.get("parameters", {}).get("binary_data_size", 0) for one in found["outputs"]]
        assert length + sum(sizes) == len(answer.content)
    elif path == "/forecast":
        assert found["status"] in ("completed", "partial")
    return answer.status_code


@pytest.mark.parametrize("valid", VALID)
def test_base_requests_are_valid(client: Client, valid: Valid) -> None:
    assert check(client, valid.path, *valid.written()) == 200


@given(st.sampled_from(VALID), st.data())
def test_any_value_gets_an_answer_or_a_clear_error(
    client: Client, valid: Valid, data: st.DataObject
) -> None:
    check(client, valid.path, *valid.written(changed(valid.head, data)))


@given(
    st.sampled_from(VALID),
    st.integers(0, 2000),
    st.binary(max_size=6),
    st.integers(0, 40),
    st.integers(-3, 3),
    st.booleans(),
)
def test_damaged_bytes_get_a_clear_error(
    client: Client, valid: Valid, at: int, put: bytes, cut: int, shift: int, compressed: bool
) -> None:
    whole, headers = valid.written()
    at %= len(whole)
    body = whole[:at] + put + whole[at + cut :]
    if HEADER in headers:
        headers[HEADER] = str(int(headers[HEADER]) + shift)
    if compressed:
        # Half of the time the compressed bytes are damaged, else the bytes before compression.
        body = gzip.compress(body) if shift % 2 else gzip.compress(whole)[: -1 - at % 40] + put
        headers["Content-Encoding"] = "gzip"
    check(client, valid.path, body, headers)


@given(
    st.sampled_from([INFER, "/forecast"]),
    st.binary(max_size=300),
    st.sampled_from(["0", "", "1", "64", "300", "-1", "x", "1e1"]),
)
def test_any_bytes_get_a_clear_error(client: Client, path: str, body: bytes, length: str) -> None:
    check(client, path, body, {HEADER: length})


@settings(max_examples=1000)
@given(
    st.dictionaries(st.integers(0, len(STREAM) - 1), st.integers(0, 255), max_size=4),
    st.one_of(st.just(len(STREAM)), st.integers(0, len(STREAM))),
)
def test_damaged_table_is_read_or_refused(changes: dict[int, int], length: int) -> None:
    body = bytearray(STREAM)
    for at, value in changes.items():
        body[at] = value
    with contextlib.suppress(ServiceError):
        table = read_table(body[:length], 100)
        read_groups(table, 1024)
        read_times(table, Frequency.parse("h"))
        list(read_values(table, ("load",)))


@given(TEXTS)
def test_any_text_is_echoed(client: Client, text: str) -> None:
    answer = infer(client, request(id=text))
    assert answer.status_code == (400 if has_surrogate(text) else 200)
    assert has_surrogate(text) or answer.json()["id"] == text


@given(TEXTS)
@example("../repeat")
@example("repeat/1")
@example("repeat/../multi")
@example("..")
@example("/etc/passwd")
@example("repeat\\1")
@example("repeat%2f1")
@example("a\x00b")
def test_any_other_model_name_is_not_found(client: Client, name: str) -> None:
    served = {*client.repository.registry.defaults, "1", "10", "latest"}
    if name in served or "@" in name:
        return
    for reference in (name, f"{name}@1", f"repeat@{name}"):
        content = json.dumps({"model": reference, "inputs": [{"series": EIGHT}]}).encode()
        assert check(client, "/forecast", content, {}) == (400 if has_surrogate(name) else 404)


@pytest.mark.parametrize("model", ["calendar", "multi"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("start", ["0001-01-01", "9999-12-31T16:00", "9999-12-31T12:00"])
def test_times_at_the_ends_of_the_calendar_get_a_clear_error(
    client: Client, model: str, zone: str | None, start: str
) -> None:
    """Attention and labels may reach times outside the calendar."""
    series = EIGHT if model == "calendar" else [[value, 2.0 - value] for value in EIGHT]
    for moment in (start, f"{start}Z"):
        entry = {"series": series, "time_zone": zone, "start_timestamp": moment}
        for options in ({"attention": True}, {"attention": True, "horizon": 1}, {"horizon": 9}):
            body = {"model": model, "inputs": [entry], "options": options}
            answer = client.forecast(body)
            if answer.status_code != 200:
                error = answer.json()["error"]
                assert (error["code"], error["param"]) == ("422", "inputs[0].start_timestamp")
