"""Errors of requests have status and place in every format."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.routes import ARROW
from tests.service.client import Client

SIXTEEN = [float(n) for n in range(16)]
EIGHT, PAIRS = SIXTEEN[:8], [[value, 2.0 - value] for value in SIXTEEN[:8]]
START = datetime(2024, 1, 1)
HOURS = [START + timedelta(hours=hour) for hour in range(16)]


class Ask(NamedTuple):
    """A request for a forecast of one series, with one mistake."""

    values: list[Any] = SIXTEEN
    model: str = "repeat"
    times: list[datetime] | None = None
    frequency: str | None = None
    horizon: Any = None
    quantiles: list[float] | None = None
    missing: str | None = None

    @property
    def options(self) -> dict[str, Any]:
        given = {"horizon": self.horizon, "quantiles": self.quantiles, "missing": self.missing}
        return {name: value for name, value in given.items() if value is not None}


Sent = tuple[str, bytes, str]


def as_json(path: str, ask: Ask) -> Sent:
    entry: dict[str, Any] = {"series": ask.values}
    if ask.times is not None:
        entry["timestamps"] = [moment.isoformat() for moment in ask.times]
    if ask.frequency is not None:
        entry["frequency"] = ask.frequency
    body = {"model": ask.model, "inputs": [entry], "options": ask.options}
    return path, json.dumps(body).encode(), "application/json"


def as_table(path: str, ask: Ask) -> Sent:
    columns: dict[str, Any] = {"unique_id": ["x"] * len(ask.values), "load": ask.values}
    if ask.times is not None:
        columns["ds"] = pa.array(ask.times, pa.timestamp("us"))
    options = {**ask.options, "quantiles": ask.quantiles and ",".join(map(str, ask.quantiles))}
    query = "".join(f"&{name}={value}" for name, value in options.items() if value is not None)
    return f"{path}?model={ask.model}{query}", write_table(pa.table(columns)), ARROW


def as_nixtla(path: str, ask: Ask) -> Sent:
    body: dict[str, Any] = {
        "series": {"y": ask.values, "sizes": [len(ask.values)]},
        "model": ask.model,
        "freq": ask.frequency or "h",
        "h": 1 if ask.horizon is None else ask.horizon,
    }
    if ask.quantiles is not None:
        body["level"] = [80]
    if ask.missing is not None:
        body["model_parameters"] = {"missing": ask.missing}
    return path, json.dumps(body).encode(), "application/json"


def as_tensors(path: str, ask: Ask) -> Sent:
    rows = ask.values[-8:]
    given = {"name": "history", "shape": [1, len(rows), 1], "datatype": "FP32", "data": rows}
    return path.format(ask.model), json.dumps({"inputs": [given]}).encode(), "application/json"


class Codec(NamedTuple):
    """A way to write a request.

    Attributes:
        path: Path of the endpoint.
        write: Makes path, body and media type.
        places: Place of each part; parts that the format lacks are missing.
    """

    path: str
    write: Callable[[str, Ask], Sent]
    places: dict[str, str]

    def __repr__(self) -> str:
        return f"{self.write.__name__[3:]} {self.path}"


IN_JSON = {
    "model": "model",
    "value": "inputs[0].series[{}]",
    "odd value": "inputs[0].series[{}]",
    "large value": "inputs[0].series[{}]",
    "infinite value": "inputs[0].series[{}]",
    "rows": "inputs[0].series",
    "time": "inputs[0].timestamps[{}]",
    "frequency": "inputs[0].frequency",
    "horizon": "options.horizon",
    "most horizon": "options.horizon",
    "quantiles": "options.quantiles",
    "missing": "options.missing",
}
IN_TABLES = {
    "model": "model",
    "value": "load[{}]",
    "large value": "load[{}]",
    "infinite value": "load[{}]",
    "rows": "unique_id[0]",
    "time": "ds[{}]",
    "horizon": "query.horizon",
    "most horizon": "options.horizon",
    "quantiles": "options.quantiles",
    "missing": "query.missing",
}
IN_NIXTLA = {
    "model": "model",
    "value": "series[0].y[{}]",
    "odd value": "series[0].y[{}]",
    "large value": "series[0].y[{}]",
    "infinite value": "series[0].y[{}]",
    "rows": "series[0].y",
    "frequency": "freq",
    "horizon": "h",
    "most horizon": "h",
    "quantiles": "level, as quantiles",
    "missing": "model_parameters.missing",
}
IN_TENSORS = {
    "model": "model",
    "value": "inputs[0].data[7]",
    "odd value": "inputs[0].data[7]",
    "large value": "inputs[0].data[7]",
    "infinite value": "inputs[0]",
    "rows": "inputs[0].shape",
}
CODECS = [
    *(Codec(path, as_json, IN_JSON) for path in ("/forecast", "/v1/timeseries/forecast")),
    Codec("/backtest", as_json, IN_JSON),
    Codec("/forecast", as_table, IN_TABLES),
    Codec("/backtest", as_table, IN_TABLES),
    Codec("/nixtla/v2/forecast", as_nixtla, IN_NIXTLA),
    Codec("/nixtla/v2/cross_validation", as_nixtla, IN_NIXTLA),
    Codec("/v2/models/{}/infer", as_tensors, IN_TENSORS),
]
WRONG: list[tuple[Ask, int, str, str]] = [
    (
        Ask(model="Repeat"),
        *(404, "model", r"no model 'Repeat'; served.*: calendar, .*; did you mean 'repeat'\?"),
    ),
    (Ask([*SIXTEEN[:15], None]), 422, "value 15", "missing|null"),
    (Ask([*SIXTEEN[:15], 1e39]), 422, "large value 15", "got 1e.39"),
    (Ask([*SIXTEEN[:15], float("-inf")]), 422, "infinite value 15", "finite number"),
    (Ask([*SIXTEEN[:15], "8"]), 422, "odd value 15", "got the string '8'"),
    (Ask([*SIXTEEN[:15], True]), 422, "odd value 15", "got true"),
    (Ask([*SIXTEEN[:15], {}]), 422, "odd value 15", "got an object"),
    (Ask([*SIXTEEN[:15], 10**500]), 422, "odd value 15", "got a number of over 70 digits"),
    (Ask(SIXTEEN[:7]), 422, "rows", "8"),
    (Ask(times=[*HOURS[:3], HOURS[4], *HOURS[4:]]), 422, "time 3", "missing before it"),
    (Ask(times=[*HOURS[:15], HOURS[14]]), 422, "time 15", "it repeats the one before it"),
    (Ask(times=HOURS[::-1]), 422, "time 1", "it goes back in time"),
    (Ask(frequency="D"), 422, "frequency", "expected the"),
    (Ask(frequency="fortnight"), 422, "frequency", "expected a frequency such as"),
    (Ask(horizon=0), 422, "horizon", "at least 1"),
    (Ask(horizon=17), 422, "most horizon", "at most 16 steps"),
    (Ask(quantiles=[0.1, 0.9]), 422, "quantiles", "repeat has no quantiles"),
    (Ask(missing="guess"), 422, "missing", "got"),
]


def cases() -> Iterator[Any]:
    for codec in CODECS:
        for ask, status, place, message in WRONG:
            part, _, row = place.rpartition(" ") if place[-1].isdigit() else (place, "", "")
            if part in codec.places:
                param = codec.places[part].format(row)
                yield pytest.param(codec, ask, status, param, message, id=f"{codec}: {place}")


@pytest.mark.parametrize(("codec", "ask", "status", "param", "message"), list(cases()))
def test_every_codec_refuses_mistakes(
    client: Client, codec: Codec, ask: Ask, status: int, param: str, message: str
) -> None:
    path, body, media = codec.write(codec.path, ask)
    answer = client.request("POST", path, content=body, headers={"Content-Type": media})
    assert answer.status_code == status, answer.text
    (error,) = answer.json().values()
    if isinstance(error, dict):
        assert error["code"] == str(status)
        place, text = error["param"], error["message"]
    else:
        place, _, text = error.partition(": ")
    assert place == param
    assert re.search(message, text), text
    assert "should" not in text
    assert len(answer.content) < 1000


@pytest.mark.parametrize("codec", CODECS, ids=repr)
def test_every_codec_accepts_a_valid_request(client: Client, codec: Codec) -> None:
    path, body, media = codec.write(codec.path, Ask())
    answer = client.request("POST", path, content=body, headers={"Content-Type": media})
    assert answer.status_code == 200, answer.text


def series(*values: Any) -> bytes:
    text = ",".join(json.dumps(value) for value in values)
    return b'{"model":"repeat","inputs":[{"series":[%s]}]}' % text.encode()


BODIES: list[tuple[bytes, int, str | None]] = [
    *((body, 400, None) for body in (b"series=1,2,3", b"", b'{"model":"repeat"', b"{}{}")),
    *((body, 400, None) for body in (b'{"model":"\xff\xfe"}', b'{"model":"\\ud800"}')),
    (b"[" * 100_000 + b"]" * 100_000, 400, None),
    (b'{"metadata":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_001, 400, None),
    *((body, 422, None) for body in (b"[1,2]", b"null", b'"forecast"')),
    (b'{"model":"repeat"}', 422, "inputs"),
    *(
        (b'{"model":"repeat","inputs":%s}' % each, 422, "inputs")
        for each in (b"[]", b"{}", b"null")
    ),
    (b'{"model":"repeat","inputs":[5]}', 422, "inputs[0]"),
    (b'{"model":"repeat","inputs":[{}]}', 422, "inputs[0].series"),
    (b'{"model":"repeat","inputs":[{"series":"1"}]}', 422, "inputs[0].series"),
    (series(), 422, "inputs[0].series"),
    (series(*EIGHT[1:], float("nan")), 422, "inputs[0].series[7]"),
    (series(*EIGHT[1:], "@").replace(b'"@"', b"1e400"), 422, "inputs[0].series[7]"),
    (series(*([[1, 2]] * 8)), 422, "inputs[0].series[0]"),
    (series(*([[1]] * 7), [1, 2]), 422, "inputs[0].series[7]"),
    (series(*([[[1]]] * 8)), 422, "inputs[0].series[0][0]"),
    (b'{"model":5,"inputs":[{"series":[1]}]}', 422, "model"),
    (b'{"inputs":[{"series":[1]}]}', 422, "model"),
    (b'{"model":"repeat@7","inputs":[{"series":[1]}]}', 404, "model"),
]


@pytest.mark.parametrize(("content", "status", "param"), BODIES)
def test_bodies_other_than_requests_are_refused(
    client: Client, content: bytes, status: int, param: str | None
) -> None:
    answer = client.send(content)
    assert answer.status_code == status, answer.text
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == (str(status), param)
    assert error["message"]
    assert "should" not in error["message"]
    assert len(answer.content) < 1000


MISFITS: list[tuple[dict[str, Any], str]] = [
    *(({"options": {"horizon": value}}, "options.horizon") for value in (-1, 10**30, "4", 4.0)),
    ({"options": {"horizon": True}}, "options.horizon"),
    ({"options": [1]}, "options"),
    ({"options": {"quantiles": ["x"]}}, "options.quantiles[0]"),
    ({"options": {"attention": True}}, "options.attention"),
    ({"options": {"attention": "yes"}}, "options.attention"),
    ({"options": {"attention": {"layers": [1.5]}}}, "options.attention.layers[0]"),
    ({"metadata": [1]}, "metadata"),
    ({"metadata": {"a": float("nan")}}, "metadata"),
    *(
        ({"inputs": [{"series": EIGHT, name: value}]}, f"inputs[0].{place or name}")
        for name, value, place in [
            ("name", 5, ""),
            *(("type", each, "") for each in ("time_series", "multivariate_time_series")),
            ("channels", ["load", "load"], "channels[1]"),
            ("channels", ["wind"], "channels[0]"),
            *(("channels", each, "") for each in ([], "load")),
            ("channels", [5], "channels[0]"),
            *(("frequency", each, "") for each in ("15min", "", 1)),
            *(("frequency_multiple", each, "") for each in (2, 0, "1")),
            *(("start_timestamp", each, "") for each in ("yesterday", "", 1700000000)),
            *(("start_timestamp", each, "") for each in ("2024-13-01", "2023-02-29T00:00:00")),
            *(("start_timestamp", f"{year}-12-31T20:00:00", "") for year in (9999, 99999)),
            *(("timestamps", each, "") for each in (["2024-01-01"], "2024-01-01")),
            ("timestamps", [0] * 8, "timestamps[0]"),
            ("time_zone", "Mars", ""),
        ]
    ),
    ({"model": "calendar"}, "inputs[0].start_timestamp"),
    (
        {"inputs": [{"series": [[n] for n in EIGHT], "type": "univariate_time_series"}]},
        "inputs[0].type",
    ),
]


@pytest.mark.parametrize(("changes", "param"), MISFITS)
def test_fields_of_wrong_types_are_refused(
    client: Client, changes: dict[str, Any], param: str
) -> None:
    body = {"model": "repeat", "inputs": [{"series": EIGHT}]} | changes
    answer = client.send(json.dumps(body).encode())
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["param"] == param
    assert "nput should" not in answer.json()["error"]["message"]


def test_channels_that_are_missing_are_named(client: Client) -> None:
    entry = {"series": PAIRS, "channels": ["load"]}
    error = client.error({"model": "multi", "inputs": [entry]})
    assert error["param"] == "inputs[0].channels"
    assert "missing: wind" in error["message"]


@pytest.mark.parametrize(
    ("names", "answered"),
    [
        (("series-1", None), ["series-1", "series-1-1"]),
        (
            ("series-1", None, "series-1-1", "series-4", None),
            ["series-1", "series-1-1-1", "series-1-1", "series-4", "series-4-4"],
        ),
        (("twin", "twin"), ["twin", "inputs[1].name"]),
    ],
)
def test_series_without_names_have_free_ones(
    client: Client, names: tuple[str | None, ...], answered: list[str]
) -> None:
    inputs = [{"series": EIGHT} | ({"name": name} if name else {}) for name in names]
    outputs = client.forecast({"model": "repeat", "inputs": inputs}).json()["outputs"]
    found = [
        one["content"][0]["name"] if one["content"] else one["error"]["param"] for one in outputs
    ]
    assert found == answered


@pytest.mark.parametrize("options", [{"horizon": 17}, {"quantiles": [0.5]}, {"attention": True}])
def test_unsupported_options_have_a_type_of_their_own(
    client: Client, options: dict[str, Any]
) -> None:
    error = client.error({"model": "repeat", "inputs": [{"series": EIGHT}], "options": options})
    assert (error["code"], error["type"]) == ("422", "not_supported")


LIMITS = [
    ({"max_inputs": 1}, "repeat", {}, "inputs", "at most 1 inputs, got 2"),
    (
        {"max_attention_values": 200},
        *("multi", {"attention": True}, "options.attention"),
        "would hold 236 attention weights and may hold 200 (max_attention_values)",
    ),
    (
        {"max_answer_values": 23},
        *("calibrated", {"quantiles": [0.5], "horizon": 6}, "options"),
        "would hold 24 values and may hold 23 (max_answer_values)",
    ),
    (
        {"max_horizon_multiple": 2},
        *("repeat", {"horizon": 9}, "options.horizon"),
        "at most 8 steps, 2 times (max_horizon_multiple) the 4 that repeat",
    ),
]


@pytest.mark.parametrize(("settings", "model", "options", "param", "message"), LIMITS)
def test_limits_of_the_settings_are_named(
    models: Path,
    settings: dict[str, Any],
    model: str,
    options: dict[str, Any],
    param: str,
    message: str,
) -> None:
    entry = {"series": PAIRS if model == "multi" else EIGHT}
    body = {"model": model, "inputs": [entry] * 2, "options": options}
    with Client(models, **settings) as client:
        error = client.error(body)
        ((name, most),) = settings.items()
        assert (error["param"], message in error["message"]) == (param, True)
    # A slightly higher limit accepts the request.
    more = {"max_answer_values": 24, "max_attention_values": 236}.get(name, most + 1)
    with Client(models, **{name: more}) as client:
        assert client.forecast(body).status_code == 200


@pytest.mark.parametrize("path", ["/forecast", "/v2/models/repeat/infer", "/v2/repository/index"])
def test_first_of_several_headers_counts(client: Client, path: str) -> None:
    named = [("Content-Encoding", "identity"), ("Content-Encoding", "br")]
    answers = [
        client.request("POST", path, content=b"{}", headers=headers).text
        for headers in (named, named[::-1])
    ]
    assert ["got 'br'" in answer for answer in answers] == [False, True]
