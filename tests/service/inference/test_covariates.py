"""Covariates as named tensors of codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.service.client import Client
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    SHOP,
    codes,
    forecast_of_shop,
    models,
    server,
    shop,
)
from tests.service.inference.bodies import binary, infer, joined, request, tensor

__all__ = ["models", "server"]

SERVED = (SHOP,)
NAMES = ("history", "history_covariates", "future_covariates", "static_covariates")


def arrays(*entries: dict[str, Any]) -> dict[str, np.ndarray[Any, Any]]:
    """The tensors of inputs in JSON, float32."""
    names = ("price", "open", "sky")
    future = [
        np.transpose([codes(name, each["future_covariates"][name]) for name in names])
        for each in entries
    ]
    static = [
        [codes(name, [each["static_covariates"][name]])[0] for name in ("region", "size")]
        for each in entries
    ]
    found = (
        [each["series"] for each in entries],
        [each[:CONTEXT] for each in future],
        [each[CONTEXT:] for each in future],
        static,
    )
    return {name: np.array(part, np.float32) for name, part in zip(NAMES, found, strict=True)}


@pytest.mark.parametrize("is_binary", [False, True])
def test_forecast_reads_tensors_of_codes(server: Client, is_binary: bool) -> None:
    entries = [shop(shift=0), shop(shift=3)]
    entries[1]["static_covariates"]["region"] = "west"
    given = arrays(*entries)
    if is_binary:
        sent = [binary(values, name=name) for name, values in given.items()]
        answer = infer(server, *joined(request(*sent), *given.values()), model="shop")
    else:
        sent = [tensor(values, name=name) for name, values in given.items()]
        answer = infer(server, request(*reversed(sent)), model="shop")
    assert answer.status_code == 200, answer.text
    (output,) = answer.json()["outputs"]
    found = np.reshape(output["data"], output["shape"])
    for one, entry in zip(found, entries, strict=True):
        np.testing.assert_allclose(one, forecast_of_shop(entry), rtol=1e-5)


def test_metadata_lists_their_tensors(server: Client) -> None:
    shapes = [[8, 2], [8, 3], [4, 3], [2]]
    found = server.get("/v2/models/shop").json()["inputs"]
    assert found == [
        {"name": name, "datatype": "FP32", "shape": [-1, *shape]}
        for name, shape in zip(NAMES, shapes, strict=True)
    ]
    found = server.get("/v2/models/shop/config").json()["input"]
    assert [each["dims"] for each in found] == shapes


def dropped(name: str) -> Any:
    return lambda given: given.pop(name)


def renamed(name: str, wrong: str) -> Any:
    return lambda given: given.update({wrong: given.pop(name)})


def short(name: str) -> Any:
    return lambda given: given.update({name: given[name][:, 1:]})


def at(name: str, place: tuple[int, ...], value: float) -> Any:
    return lambda given: given[name].__setitem__(place, value)


FUTURE = "future_covariates"
WRONG = [
    (dropped(FUTURE), "inputs: future_covariates: required, but missing"),
    (renamed(FUTURE, "futur_covariates"), "inputs[3].name: expected one of history, "),
    (short(FUTURE), "inputs[2].shape: expected [batch, 4, 3], got [1, 3, 3]"),
    (short("history_covariates"), "inputs[1].shape: expected [batch, 8, 3], got [1, 7, 3]"),
    (
        at(FUTURE, (0, 2, 2), 3),
        "inputs[2]: expected a code of 'sky', 0 (clear), 1 (rain), 2 (snow), got 3.0 at [0, 2, 2]",
    ),
    (at(FUTURE, (0, 2, 2), 0.5), "inputs[2]: expected a code of 'sky'"),
    (
        at("history_covariates", (0, 7, 1), 2),
        "inputs[1]: expected a code of 'open', 0 (false), 1 (true), got 2.0 at [0, 7, 1]",
    ),
    (
        at("static_covariates", (0, 0), 3),
        "inputs[3]: expected a code of 'region', 0 (north), 1 (south), 2 (any other), "
        "got 3.0 at [0, 0]",
    ),
    (at("static_covariates", (0, 1), np.nan), "inputs[3]: expected finite numbers"),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_mistakes_have_their_place(server: Client, change: Any, message: str) -> None:
    given = arrays(shop())
    change(given)
    sent = [binary(values, name=name) for name, values in given.items()]
    answer = infer(server, *joined(request(*sent), *given.values()), model="shop")
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"].startswith(message)


def test_body_without_json_has_no_place_for_covariates(server: Client) -> None:
    body = bytes(4 * CONTEXT * 2 * HORIZON)
    headers = {"Inference-Header-Content-Length": "0"}
    answer = infer(server, body, headers, model="shop")
    assert answer.status_code == 422
    assert ", ".join(NAMES) in answer.json()["error"]
