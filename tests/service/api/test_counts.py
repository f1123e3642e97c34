"""Every limit on counts, at every route that has it, of small and of large bodies."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.service.client import Client
from tests.support.bundles import Spec, softmax_stage, write_bundle

MOST_INPUTS = 12
SERIES = [1, 2, 3, 4, 5, 6, 7, 8]


class Limit(NamedTuple):
    """A limit.

    Attributes:
        path: Of the route.
        name: What is counted.
        most: How many there may be.
        param: Where they are.
        body: A request with so many.
    """

    path: str
    name: str
    most: int
    param: str
    body: Callable[[int], dict[str, Any]]

    def __repr__(self) -> str:
        return f"{self.path}: {self.name}"


def names(count: int) -> dict[str, Any]:
    return {f"zz{number}": [number] for number in range(count)}


def of_forecasts(path: str) -> Iterator[Limit]:
    request: dict[str, Any] = {"model": "repeat", "inputs": [{"series": SERIES}]}

    def options(**options: Any) -> dict[str, Any]:
        return {**request, "options": options}

    def inputs(**inputs: Any) -> dict[str, Any]:
        return {**request, "inputs": [{"series": SERIES, **inputs}]}

    yield Limit(
        path,
        "inputs",
        MOST_INPUTS,
        "inputs",
        lambda count: {**request, "inputs": request["inputs"] * count},
    )
    yield Limit(
        path,
        "quantiles",
        99,
        "options.quantiles",
        lambda count: options(quantiles=[(1 + at) / (count + 1) for at in range(count)]),
    )
    yield Limit(
        path,
        "channels",
        16 * 1024,
        "inputs[0].channels",
        lambda count: inputs(channels=["value"] * count),
    )
    yield Limit(path, "unknown names", 64, "zz64", lambda count: request | names(count))
    yield Limit(
        path,
        "unknown names of an input",
        64,
        "inputs[0].zz64",
        lambda count: inputs(**names(count)),
    )
    yield Limit(
        path,
        "unknown names of options",
        64,
        "options.zz64",
        lambda count: options(**names(count)),
    )


def of_attention() -> Iterator[Limit]:
    for name, item in (("layers", 0), ("stages", "encoder.0.self")):

        def body(count: int, name: str = name, item: object = item) -> dict[str, Any]:
            options = {"attention": {name: [item] * count}}
            return {"model": "repeat", "inputs": [{"series": SERIES}], "options": options}

        yield Limit("/forecast", name, 16 * 1024, f"options.attention.{name}", body)


def of_inferences() -> Iterator[Limit]:
    path = "/v2/models/repeat/infer"
    tensor = {"name": "history", "datatype": "FP32", "shape": [1, 8, 1], "data": SERIES}
    for name, most, param, body in (
        ("inputs", 64, "inputs", lambda count: {"inputs": [tensor] * count}),
        (
            "outputs",
            1024,
            "outputs",
            lambda count: {"inputs": [tensor], "outputs": [{"name": "forecast"}] * count},
        ),
        (
            "shape",
            1024,
            "inputs[0].shape",
            lambda count: {"inputs": [tensor | {"shape": [1] * count}]},
        ),
        ("unknown names", 64, "zz64", lambda count: {"inputs": [tensor], **names(count)}),
        (
            "unknown names of a tensor",
            64,
            "inputs[0].zz64",
            lambda count: {"inputs": [tensor | names(count)]},
        ),
        (
            "unknown parameters",
            64,
            "parameters.zz64",
            lambda count: {"inputs": [tensor], "parameters": names(count)},
        ),
        (
            "windows",
            MOST_INPUTS,
            "inputs[0].shape[0]",
            lambda count: {
                "inputs": [tensor | {"shape": [count, 8, 1], "data": SERIES * count}],
            },
        ),
    ):
        yield Limit(path, name, most, param, body)


def of_nixtla(path: str) -> Iterator[Limit]:
    series = {"y": SERIES * 2, "sizes": [16]}
    request: dict[str, Any] = {"series": series, "freq": "h", "h": 1, "model": "repeat"}
    yield Limit(
        path,
        "sizes",
        MOST_INPUTS,
        "series.sizes",
        lambda count: {**request, "series": {"y": SERIES * 2 * count, "sizes": [16] * count}},
    )
    yield Limit(
        path,
        "times",
        MOST_INPUTS,
        "series.start_datetime",
        lambda count: {**request, "series": {**series, "start_datetime": ["2024-01-01"] * count}},
    )
    yield Limit(path, "levels", 49, "level", lambda count: {**request, "level": [50] * count})
    yield Limit(path, "unknown names", 64, "zz64", lambda count: {**request, **names(count)})
    yield Limit(
        path,
        "unknown parameters",
        64,
        "model_parameters.zz64",
        lambda count: {**request, "model_parameters": names(count)},
    )


LIMITS = [
    *of_forecasts("/forecast"),
    *of_forecasts("/v1/timeseries/forecast"),
    *of_forecasts("/backtest"),
    *of_attention(),
    *of_inferences(),
    *of_nixtla("/nixtla/v2/forecast"),
    *of_nixtla("/nixtla/v2/cross_validation"),
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    models: Path = tmp_path_factory.mktemp("models")
    write_bundle(models, Spec(stages=(softmax_stage(),), calibrated=2))
    with Client(models, max_inputs=MOST_INPUTS) as client:
        yield client


def refusal(client: Client, limit: Limit, count: int) -> str:
    """What the answer says of so many; nothing if it is about something else."""
    answer = client.request("POST", limit.path, content=json.dumps(limit.body(count)).encode())
    assert answer.status_code in (200, 422), answer.text
    if answer.status_code == 200:
        return ""
    found = answer.json()
    if limit.path.startswith("/v2") or "detail" in found:
        place, _, message = str(found.get("error", found.get("detail"))).partition(": ")
    else:
        place, message = found["error"]["param"], found["error"]["message"]
    about_count = "at most" in message or "names before it" in message
    return message if place == limit.param and about_count else ""


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_as_many_as_may_be_are_not_too_many_and_one_more_is(client: Client, limit: Limit) -> None:
    assert refusal(client, limit, limit.most) == ""
    message = refusal(client, limit, limit.most + 1)
    assert str(limit.most) in message


@pytest.mark.parametrize("limit", LIMITS, ids=repr)
def test_the_limit_is_that_of_large_bodies_too(client: Client, limit: Limit) -> None:
    count = limit.most + 1
    while len(json.dumps(limit.body(count))) < 300_000:
        count *= 4
    assert str(limit.most) in refusal(client, limit, count)
