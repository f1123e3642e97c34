"""Whatever a client sends: an answer, or an error that says where; never the server's failure."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.bundle.attention import Axis
from tests.service.client import Client
from tests.support.bundles import Spec, softmax_stage, write_bundle

EIGHT = [float(n) for n in range(8)]
HOURS = [f"2024-01-01T{hour:02}:00:00Z" for hour in range(8)]
# Every field of the interface, in requests that are accepted as they stand.
VALID: list[dict[str, Any]] = [
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
HOSTILE: list[Any] = [
    *(None, True, -1, 0, 2**63, -(10**400), 1.5, 1e39, float("nan"), float("inf")),
    *("", "x", "\x00", "\u202e\U0001f600", "x" * 10_000, "../../etc/passwd", "multi@../1", "h" * 9),
    *("Europe/Berlin", "America/New_York", "ffill", 0.5, [0.5], [1, 0]),
    *("0001-01-01", "9999-12-31T23:59:59.999999+23:59", "2024-02-30", "15min", "999999Y"),
    *([], [None], [[]], [[[1]]], ["1"], [float("-inf")] * 8, [[1], 2], list(range(5000))),
    *({}, {"": {}}, {"model": "multi"}, {"layers": "all"}),
]


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


def check(client: Client, content: bytes) -> int:
    answer = client.send(content)
    assert answer.status_code in (200, 400, 404, 422), (content[:500], answer.text)
    parsed = json.loads(answer.content, parse_constant=pytest.fail)
    if answer.status_code == 200:
        assert parsed["status"] in ("completed", "partial")
    else:
        error = parsed["error"]
        assert error["code"] == str(answer.status_code)
        assert error["message"]
        assert len(answer.content) < 2000, "an error must not send the request back"
    return answer.status_code


@pytest.mark.parametrize("request_body", VALID)
def test_the_requests_below_are_valid(client: Client, request_body: dict[str, Any]) -> None:
    answer = client.forecast(request_body)
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")


def changed(valid: Any, data: st.DataObject) -> Any:
    """A JSON value of which one or two values are gone or something else."""
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


def changed_request(data: st.DataObject) -> Any:
    """A request that was valid."""
    return changed(data.draw(st.sampled_from(VALID)), data)


@given(st.data())
def test_any_value_anywhere(client: Client, data: st.DataObject) -> None:
    check(client, json.dumps(changed_request(data)).encode())


@given(
    st.sampled_from([json.dumps(body).encode() for body in VALID]),
    st.integers(0, 2000),
    st.binary(max_size=6),
    st.integers(0, 40),
)
def test_any_damage_to_the_bytes(
    client: Client, content: bytes, at: int, put: bytes, cut: int
) -> None:
    at %= len(content)
    check(client, content[:at] + put + content[at + cut :])


@given(st.text(st.characters(exclude_categories=()), max_size=40))
def test_any_model_name_is_only_a_name(client: Client, name: str) -> None:
    served = {*client.repository.registry.defaults, "repeat@1", "repeat@10"}
    content = json.dumps({"model": name, "inputs": [{"series": EIGHT}]}).encode()
    if name not in served and "@" not in name:
        assert check(client, content) == (400 if has_surrogate(name) else 404)


def has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


@pytest.mark.parametrize(
    "name",
    [
        "../repeat",
        "repeat/1",
        "repeat/../multi",
        "..",
        ".",
        "/etc/passwd",
        "repeat\\1",
        "repeat%2f1",
    ],
)
def test_names_never_become_paths(client: Client, name: str) -> None:
    for reference in (name, f"{name}@1", f"repeat@{name}"):
        answer = client.forecast({"model": reference, "inputs": [{"series": EIGHT}]})
        assert answer.status_code == 404
        assert answer.json()["error"]["param"] == "model"


def test_10_mb_over_the_limit(client: Client) -> None:
    size = client.settings.max_body_bytes + 10_000_000
    answer = client.send(b'{"model":"' + b"x" * size + b'"}')
    assert (answer.status_code, answer.json()["error"]["type"]) == (413, "too_large")


def test_attention_at_the_end_of_the_year_9999(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The last patch of an end-padded model names no time after its history."""
    patches = Axis(of="patches", length=3, start=-8, stride=4, width=8, end=0)
    stage = softmax_stage()
    beyond = stage.model_copy(update={"query": patches, "key": patches})
    folder = tmp_path_factory.mktemp("beyond")
    write_bundle(folder, Spec(stages=(stage,), changes={"attention": (beyond,)}))
    entry = {"series": EIGHT, "start_timestamp": "9999-12-31T12:00:00"}
    with Client(folder) as client:
        forecast = client.first({"inputs": [entry], "options": {"attention": True}})
    assert forecast["timestamps"][-1] == "9999-12-31T23:00:00"
    assert forecast["attention"][0]["key"][-1] == {
        "start": "9999-12-31T19:00:00",
        "end": "9999-12-31T19:00:00",
    }
