from __future__ import annotations

import json
from typing import Any

import pytest

from tests.service.client import Client
from tests.service.forecast.test_timeseries import EIGHT, PAIRS, body


def series(*values: Any) -> bytes:
    text = ",".join(json.dumps(value) for value in values)
    return b'{"model":"repeat","inputs":[{"series":[%s]}]}' % text.encode()


HOSTILE: list[tuple[str, bytes, int, str | None]] = [
    ("not JSON", b"series=1,2,3", 400, None),
    ("empty", b"", 400, None),
    ("cut short", b'{"model":"repeat"', 400, None),
    ("two documents", b"{}{}", 400, None),
    ("invalid UTF-8", b'{"model":"\xff\xfe"}', 400, None),
    ("a lone surrogate", b'{"model":"\\ud800"}', 400, None),
    ("a null byte", b'{"model":"a\\u0000b","inputs":[{"series":[1]}]}', 404, "model"),
    ("nested 100,000 deep", b"[" * 100_000 + b"]" * 100_000, 400, None),
    ("deep metadata", b'{"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, 400, None),
    ("a list", b"[1,2]", 422, None),
    ("null", b"null", 422, None),
    ("a string", b'"forecast"', 422, None),
    ("no inputs", b'{"model":"repeat"}', 422, "inputs"),
    ("inputs empty", b'{"model":"repeat","inputs":[]}', 422, "inputs"),
    ("inputs an object", b'{"model":"repeat","inputs":{}}', 422, "inputs"),
    ("inputs null", b'{"model":"repeat","inputs":null}', 422, "inputs"),
    ("an input a number", b'{"model":"repeat","inputs":[5]}', 422, "inputs[0]"),
    ("no series", b'{"model":"repeat","inputs":[{}]}', 422, "inputs[0].series"),
    ("series empty", series(), 422, "inputs[0].series"),
    ("series a string", b'{"model":"repeat","inputs":[{"series":"1"}]}', 422, "inputs[0].series"),
    ("too short", series(*EIGHT[1:]), 422, "inputs[0].series"),
    ("NaN", series(*EIGHT[1:], float("nan")), 422, "inputs[0].series[7]"),
    ("Infinity", series(float("inf"), *EIGHT), 422, "inputs[0].series[0]"),
    ("-Infinity", series(float("-inf"), *EIGHT), 422, "inputs[0].series[0]"),
    ("1e400", series(*EIGHT[1:], "@").replace(b'"@"', b"1e400"), 422, "inputs[0].series[7]"),
    ("over float32", series(*EIGHT[1:], 1e39), 422, "inputs[0].series[7]"),
    ("a huge integer", series(*EIGHT[1:], 10**500), 422, "inputs[0].series[7]"),
    ("a string among numbers", series(*EIGHT[1:], "8"), 422, "inputs[0].series[7]"),
    ("a boolean among numbers", series(*EIGHT[1:], True), 422, "inputs[0].series[7]"),
    ("a missing value", series(*EIGHT[1:], None), 422, "inputs[0].series[7]"),
    ("an object among numbers", series(*EIGHT[1:], {}), 422, "inputs[0].series[7]"),
    ("rows for one channel", series(*([[1, 2]] * 8)), 422, "inputs[0].series[0]"),
    ("ragged", series(*([[1]] * 7), [1, 2]), 422, "inputs[0].series[7]"),
    ("rows nested deeper", series(*([[[1]]] * 8)), 422, "inputs[0].series[0][0]"),
    ("model a number", b'{"model":5,"inputs":[{"series":[1]}]}', 422, "model"),
    ("no model among several", b'{"inputs":[{"series":[1]}]}', 422, "model"),
    ("unknown model", b'{"model":"nope","inputs":[{"series":[1]}]}', 404, "model"),
    ("unknown version", b'{"model":"repeat@7","inputs":[{"series":[1]}]}', 404, "model"),
    ("a path", b'{"model":"../../etc/passwd","inputs":[{"series":[1]}]}', 404, "model"),
    ("a path within", b'{"model":"repeat/../multi","inputs":[{"series":[1]}]}', 404, "model"),
    ("a path as version", b'{"model":"repeat@../1","inputs":[{"series":[1]}]}', 404, "model"),
]


@pytest.mark.parametrize(
    ("content", "status", "param"),
    [case[1:] for case in HOSTILE],
    ids=[case[0] for case in HOSTILE],
)
def test_hostile_bodies(client: Client, content: bytes, status: int, param: str | None) -> None:
    answer = client.send(content)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (str(status), param)
    assert error["message"]
    assert "should" not in error["message"]
    assert len(answer.content) < 1000


MISFITS: list[tuple[str, dict[str, Any], str]] = [
    ("horizon", {"options": {"horizon": 0}}, "options.horizon"),
    ("horizon", {"options": {"horizon": -1}}, "options.horizon"),
    ("horizon", {"options": {"horizon": 17}}, "options.horizon"),
    ("horizon", {"options": {"horizon": 10**30}}, "options.horizon"),
    ("horizon", {"options": {"horizon": "4"}}, "options.horizon"),
    ("horizon", {"options": {"horizon": 4.0}}, "options.horizon"),
    ("horizon", {"options": {"horizon": True}}, "options.horizon"),
    ("options", {"options": [1]}, "options"),
    ("quantiles", {"options": {"quantiles": [0.1]}}, "options.quantiles"),
    ("quantiles", {"options": {"quantiles": ["x"]}}, "options.quantiles[0]"),
    ("missing", {"options": {"missing": "guess"}}, "options.missing"),
    ("attention", {"options": {"attention": True}}, "options.attention"),
    ("attention", {"options": {"attention": "yes"}}, "options.attention"),
    ("attention", {"options": {"attention": {"layers": [1.5]}}}, "options.attention.layers[0]"),
    ("metadata", {"metadata": [1]}, "metadata"),
    ("metadata", {"metadata": {"a": float("nan")}}, "metadata"),
]

INPUT_MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"name": 5}, "name"),
    ({"type": "time_series"}, "type"),
    ({"type": "multivariate_time_series"}, "type"),
    ({"channels": ["load", "load"]}, "channels[1]"),
    ({"channels": ["wind"]}, "channels[0]"),
    ({"channels": []}, "channels"),
    ({"channels": "load"}, "channels"),
    ({"channels": [5]}, "channels[0]"),
    ({"frequency": "D"}, "frequency"),
    ({"frequency": "15min"}, "frequency"),
    ({"frequency": "fortnight"}, "frequency"),
    ({"frequency": ""}, "frequency"),
    ({"frequency": 1}, "frequency"),
    ({"frequency_multiple": 2}, "frequency_multiple"),
    ({"frequency": "H", "frequency_multiple": 0}, "frequency_multiple"),
    ({"frequency_multiple": "1"}, "frequency_multiple"),
    ({"start_timestamp": "yesterday"}, "start_timestamp"),
    ({"start_timestamp": ""}, "start_timestamp"),
    ({"start_timestamp": 1700000000}, "start_timestamp"),
    ({"start_timestamp": "2024-13-01"}, "start_timestamp"),
    ({"start_timestamp": "2023-02-29T00:00:00"}, "start_timestamp"),
    ({"start_timestamp": "9999-12-31T20:00:00"}, "start_timestamp"),
    ({"start_timestamp": "99999-01-01T00:00:00"}, "start_timestamp"),
    ({"timestamps": ["2024-01-01"]}, "timestamps"),
    ({"timestamps": [0] * 8}, "timestamps[0]"),
    ({"timestamps": "2024-01-01"}, "timestamps"),
]


@pytest.mark.parametrize(("changes", "param"), [case[1:] for case in MISFITS])
def test_requests_that_do_not_fit(client: Client, changes: dict[str, Any], param: str) -> None:
    answer = client.send(json.dumps(body() | changes).encode())
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == param
    assert "nput should" not in answer.json()["error"]["message"]


@pytest.mark.parametrize(("changes", "param"), INPUT_MISFITS)
def test_inputs_that_do_not_fit(client: Client, changes: dict[str, Any], param: str) -> None:
    error = client.error(body({"series": EIGHT, **changes}))
    assert error["code"] == "422"
    assert error["param"] == f"inputs[0].{param}"


def test_more_that_does_not_fit(client: Client) -> None:
    assert client.error(body(model="calendar"))["param"] == "inputs[0].start_timestamp"
    univariate = {"series": [[n] for n in EIGHT], "type": "univariate_time_series"}
    assert client.error(body(univariate))["param"] == "inputs[0].type"
    partial_names = {"series": PAIRS, "channels": ["load"]}
    error = client.error(body(partial_names, model="multi"))
    assert (error["param"], "missing: wind" in error["message"]) == ("inputs[0].channels", True)
    twins = body(*[{"series": EIGHT, "name": "twin"}] * 2)
    assert client.forecast(twins).json()["outputs"][1]["error"]["param"] == "inputs[1].name"
    # Those that nobody has named have free names.
    for named, answered in (
        (("series-1", None), ["series-1", "series-1-1"]),
        (
            ("series-1", None, "series-1-1", "series-4", None),
            ["series-1", "series-1-1-1", "series-1-1", "series-4", "series-4-4"],
        ),
    ):
        others = body(*[{"series": EIGHT} | ({"name": name} if name else {}) for name in named])
        outputs = client.forecast(others).json()["outputs"]
        assert [one["content"][0]["name"] for one in outputs] == answered


@pytest.mark.parametrize("model", ["calendar", "multi"])
@pytest.mark.parametrize("zone", [None, "Asia/Tokyo", "America/New_York"])
@pytest.mark.parametrize("start", ["0001-01-01", "9999-12-31T16:00", "9999-12-31T12:00"])
def test_the_ends_of_time(client: Client, model: str, zone: str | None, start: str) -> None:
    """An answer or an error with its place, whatever times its attention and labels reach to."""
    series = EIGHT if model == "calendar" else PAIRS
    for times in ({"start_timestamp": start}, {"start_timestamp": f"{start}Z"}):
        entry = {"series": series, "time_zone": zone, **times}
        for options in ({"attention": True}, {"attention": True, "horizon": 1}, {"horizon": 9}):
            answer = client.forecast(body(entry, model=model, **options))
            if answer.status_code != 200:
                error = answer.json()["error"]
                assert (error["code"], error["param"]) == ("422", "inputs[0].start_timestamp")


def test_not_supported_is_told_apart(client: Client) -> None:
    for options in ({"horizon": 17}, {"quantiles": [0.5]}, {"attention": True}):
        error = client.error(body(**options))
        assert (error["code"], error["type"]) == ("422", "not_supported")


def test_more_inputs_than_the_limit(models: Any) -> None:
    with Client(models, max_inputs=2) as client:
        client.first(body({"series": EIGHT}, {"series": EIGHT}))
        error = client.error(body(*[{"series": EIGHT}] * 3))
        assert error["param"] == "inputs"
        assert "at most 2 inputs, got 3" in error["message"]


@pytest.mark.parametrize("path", ["/forecast", "/v2/models/repeat/infer", "/v2/repository/index"])
def test_of_several_headers_the_first_counts(client: Client, path: str) -> None:
    named = [("Content-Encoding", "identity"), ("Content-Encoding", "br")]
    answers = [
        client.request("POST", path, content=b"{}", headers=headers).text
        for headers in (named, named[::-1])
    ]
    assert ["got 'br'" in answer for answer in answers] == [False, True]
