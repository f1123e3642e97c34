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
        path: Path of the route.
        name: Name of the items.
        most: Largest number of items.
        param: Place of the items.
        body: A request with this number of items.
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


REQUEST: dict[str, Any] = {"model": "repeat", "inputs": [{"series": SERIES}]}
TENSOR = {"name": "history", "datatype": "FP32", "shape": [1, 8, 1], "data": SERIES}
VALUES = {"y": SERIES * 2, "sizes": [16]}
NIXTLA: dict[str, Any] = {"series": VALUES, "freq": "h", "h": 1, "model": "repeat"}


def of_input(**more: Any) -> dict[str, Any]:
    return {**REQUEST, "inputs": [{"series": SERIES, **more}]}


def of_options(**options: Any) -> dict[str, Any]:
    return {**REQUEST, "options": options}


def of_tensors(**more: Any) -> dict[str, Any]:
    return {"inputs": [TENSOR], **more}


def levels(count: int) -> list[float]:
    return [(1 + at) / (count + 1) for at in range(count)]


Limits = list[tuple[str, int, str, Callable[[int], dict[str, Any]]]]
FORECASTS: Limits = [
    (
        "inputs",
        MOST_INPUTS,
        "inputs",
        lambda count: {**REQUEST, "inputs": REQUEST["inputs"] * count},
    ),
    ("quantiles", 99, "options.quantiles", lambda count: of_options(quantiles=levels(count))),
    ("channels", 16384, "inputs[0].channels", lambda count: of_input(channels=["value"] * count)),
    ("unknown names", 64, "zz64", lambda count: REQUEST | names(count)),
    ("unknown names of an input", 64, "inputs[0].zz64", lambda count: of_input(**names(count))),
    ("unknown names of options", 64, "options.zz64", lambda count: of_options(**names(count))),
]
ATTENTION: Limits = [
    (
        *("layers", 16384, "options.attention.layers"),
        lambda count: of_options(attention={"layers": [0] * count}),
    ),
    (
        *("stages", 16384, "options.attention.stages"),
        lambda count: of_options(attention={"stages": ["encoder.0.self"] * count}),
    ),
]
INFERENCES: Limits = [
    ("inputs", 64, "inputs", lambda count: {"inputs": [TENSOR] * count}),
    ("outputs", 1024, "outputs", lambda count: of_tensors(outputs=[{"name": "forecast"}] * count)),
    (
        *("shape", 1024, "inputs[0].shape"),
        lambda count: {"inputs": [TENSOR | {"shape": [1] * count}]},
    ),
    ("unknown names", 64, "zz64", lambda count: of_tensors(**names(count))),
    (
        *("unknown names of a tensor", 64, "inputs[0].zz64"),
        lambda count: {"inputs": [TENSOR | names(count)]},
    ),
    (
        *("unknown parameters", 64, "parameters.zz64"),
        lambda count: of_tensors(parameters=names(count)),
    ),
    (
        *("windows", MOST_INPUTS, "inputs[0].shape[0]"),
        lambda count: {"inputs": [TENSOR | {"shape": [count, 8, 1], "data": SERIES * count}]},
    ),
]
OF_NIXTLA: Limits = [
    (
        *("sizes", MOST_INPUTS, "series.sizes"),
        lambda count: {**NIXTLA, "series": {"y": SERIES * 2 * count, "sizes": [16] * count}},
    ),
    (
        *("times", MOST_INPUTS, "series.start_datetime"),
        lambda count: {**NIXTLA, "series": {**VALUES, "start_datetime": ["2024-01-01"] * count}},
    ),
    ("levels", 49, "level", lambda count: {**NIXTLA, "level": [50] * count}),
    ("unknown names", 64, "zz64", lambda count: {**NIXTLA, **names(count)}),
    (
        *("unknown parameters", 64, "model_parameters.zz64"),
        lambda count: {**NIXTLA, "model_parameters": names(count)},
    ),
]
LIMITS = [
    Limit(path, *limit)
    for path, limits in {
        "/forecast": [*FORECASTS, *ATTENTION],
        "/v1/timeseries/forecast": FORECASTS,
        "/backtest": FORECASTS,
        "/v2/models/repeat/infer": INFERENCES,
        "/nixtla/v2/forecast": OF_NIXTLA,
        "/nixtla/v2/cross_validation": OF_NIXTLA,
    }.items()
    for limit in limits
]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    models: Path = tmp_path_factory.mktemp("models")
    write_bundle(models, Spec(stages=(softmax_stage(),), calibrated=2))
    with Client(models, max_inputs=MOST_INPUTS) as client:
        yield client


def refusal(client: Client, limit: Limit, count: int) -> str:
    """Message about the number of items; empty if the answer has another error, or none."""
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
def test_limit_is_accepted_and_one_more_is_refused(client: Client, limit: Limit) -> None:
    assert refusal(client, limit, limit.most) == ""
    count = limit.most + 1
    assert str(limit.most) in refusal(client, limit, count)
    # Large bodies are read in another way.
    while len(json.dumps(limit.body(count))) < 300_000:
        count *= 4
    assert str(limit.most) in refusal(client, limit, count)
