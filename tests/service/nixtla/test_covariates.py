"""Exogenous columns of the nixtla client as covariates."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.service.client import Client
from tests.service.forecast.shops import CONTEXT, HORIZON, SHOP, shop
from tests.support.bundles import write_bundle
from tests.support.process import Server

# The client has one target.
STORE = replace(SHOP, name="store", channels=("sales",), stages=(), example=0)
NUMBERS, CATEGORIES = ["price", "open"], ["sky"]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("stores")
    write_bundle(folder, STORE)
    with Client(folder) as client:
        yield client


def entries(rows: int = CONTEXT, ahead: int = HORIZON) -> list[dict[str, Any]]:
    found = [shop(rows + shift, ahead, shift) for shift in range(2)]
    return [{**each, "series": [row[0] for row in each["series"]]} for each in found]


def body(given: list[dict[str, Any]], *, task: str = "forecast") -> dict[str, Any]:
    """The request of the client for inputs in JSON."""
    sizes = [len(each["series"]) for each in given]

    def rows(name: str) -> list[Any]:
        return [
            value
            for each, size in zip(given, sizes, strict=True)
            for value in (each["future_covariates"][name][:size])
        ]

    def fixed(name: str) -> list[Any]:
        return [
            each["static_covariates"][name]
            for each, size in zip(given, sizes, strict=True)
            for _ in range(size)
        ]

    def after(name: str) -> list[Any]:
        parts = zip(given, sizes, strict=True)
        return [value for each, size in parts for value in each["future_covariates"][name][size:]]

    numbers, categories = [*map(rows, NUMBERS)], [*map(rows, CATEGORIES)]
    static = [fixed("size")], [fixed("region")]
    if task == "forecast":
        columns, places = [*numbers, *categories, *static[0], *static[1]], [2, 4]
    else:
        columns, places = [*numbers, *static[0], *categories, *static[1]], [3, 4]
    series: dict[str, Any] = {
        "y": [value for each in given for value in each["series"]],
        "sizes": sizes,
        "X": columns,
        "categorical_exog": places,
    }
    if task == "forecast":
        series["X_future"] = [*map(after, [*NUMBERS, *CATEGORIES])]
    return {"series": series, "model": "store", "h": HORIZON, "freq": "h"}


def post(client: Client, request: Any, task: str = "forecast") -> Any:
    return client.request("POST", f"/nixtla/v2/{task}", json=request)


def test_forecast_equals_that_of_json(client: Client) -> None:
    given = entries()
    answer = post(client, body(given))
    assert answer.status_code == 200, answer.text
    outputs = client.forecast({"model": "store", "inputs": given}).json()["outputs"]
    expected = [each["content"][0]["mean_forecast"] for each in outputs]
    np.testing.assert_array_equal(answer.json()["mean"], np.concatenate(expected))


def test_large_requests_are_read_alike(client: Client) -> None:
    given = [shop(20_000 + shift, HORIZON, shift) for shift in range(2)]
    given = [{**each, "series": [row[0] for row in each["series"]]} for each in given]
    answer = post(client, body(given))
    assert answer.status_code == 200, answer.text
    last = []
    for each in given:
        rows = len(each["series"]) - CONTEXT
        future = {name: values[rows:] for name, values in each["future_covariates"].items()}
        last.append({**each, "series": each["series"][rows:], "future_covariates": future})
    expected = post(client, body(last)).json()["mean"]
    np.testing.assert_array_equal(answer.json()["mean"], expected)


def test_windows_read_the_columns_of_the_rows(client: Client) -> None:
    given = entries(rows=20, ahead=0)
    request = body(given, task="cross_validation") | {"n_windows": 2}
    answer = post(client, request, "cross_validation")
    assert answer.status_code == 200, answer.text
    last = [{**each, "series": each["series"][:-HORIZON]} for each in given]
    outputs = client.forecast({"model": "store", "inputs": last}).json()["outputs"]
    found = np.reshape(answer.json()["mean"], (2, 2, HORIZON))[:, 1]
    for values, output in zip(found, outputs, strict=True):
        np.testing.assert_array_equal(values, output["content"][0]["mean_forecast"])


Change = Callable[[dict[str, Any]], object]
WRONG: list[tuple[Change, str]] = [
    (
        lambda series: series.update(X=None, X_future=None, categorical_exog=None),
        "series.X: required: store reads the columns price, open, sky, region, size; send them",
    ),
    (
        lambda series: series.pop("X_future"),
        "series.X_future: required: store reads the future of price, open, sky; pass X_df with 4 "
        "rows of each series",
    ),
    (
        lambda series: series["X"].pop(),
        "series.categorical_exog: expected numbers of columns",
    ),
    (
        lambda series: (series["X"].pop(0), series.update(categorical_exog=[1, 3])),
        "series.X: expected 5 columns, which have no names, in the order price, open, size, sky, "
        "region; got 4",
    ),
    (
        lambda series: series["X_future"].pop(),
        "series.X_future: expected 3 columns, which have no names, in the order price, open, sky; ",
    ),
    (
        lambda series: series["X"][0].pop(),
        "series.X[0]: expected a list of 17 values, got 16",
    ),
    (lambda series: series.update(X_future=7), "series.X_future: expected a list of columns"),
    (
        lambda series: series.update(categorical_exog=[2]),
        "series.categorical_exog: expected 2 columns of categories (sky, region), got 1; pass",
    ),
    (
        lambda series: series.update(categorical_exog=[1, 1]),
        "series.categorical_exog: expected each column once",
    ),
    (
        lambda series: series["X"][2].__setitem__(9, "fog"),
        "series[1].X of sky[1]: expected a category of the training rows, got 'fog'",
    ),
    (
        lambda series: series["X_future"][0].__setitem__(3, None),
        "series[0].X of price[11]: a value is missing (null)",
    ),
    (
        lambda series: series["X"][3].__setitem__(3, 7),
        "series.X[3][3]: expected one value in all rows of a series, got 2.5 and 7",
    ),
]


@pytest.mark.parametrize(("change", "message"), WRONG)
def test_mistakes_have_their_place(client: Client, change: Change, message: str) -> None:
    request = copy.deepcopy(body(entries()))
    change(request["series"])
    answer = post(client, request)
    assert answer.status_code == 422, answer.text
    (text,) = answer.json().values()
    assert text.startswith(message), text


@pytest.mark.parametrize(("h", "whole"), [(2, 4), (6, 8)])
def test_steps_of_the_whole_horizon_are_needed(client: Client, h: int, whole: int) -> None:
    (text,) = post(client, body(entries(ahead=h)) | {"h": h}).json().values()
    assert text == (
        f"h: store reads the future of price, open, sky for {whole} steps; pass h={whole}, with "
        f"{whole} rows of each series in X_df, and use the first {h} forecasts"
    )
    assert len(post(client, body(entries(ahead=whole)) | {"h": whole}).json()["mean"]) == 2 * whole
    (text,) = post(client, body(entries(ahead=17)) | {"h": 17}).json().values()
    assert text.startswith("h: expected at most 16 steps")
    request = body(entries()) | {"h": 17}
    del request["series"]["X_future"]
    (text,) = post(client, request).json().values()
    assert text.startswith("h: expected at most 16 steps")


def test_windows_have_no_future(client: Client) -> None:
    request = body(entries(rows=20, ahead=0), task="cross_validation")
    request["series"]["X_future"] = [[1.0] * 8] * 3
    answer = post(client, request, "cross_validation")
    assert answer.status_code == 422, answer.text
    assert answer.json()["detail"] == (
        "series.X_future: leave it out: store reads the columns of the rows alone here"
    )


@pytest.mark.filterwarnings("ignore:A future version of pandas", "ignore:IProgress not found")
def test_client_of_pypi(client: Client, tmp_path: Path) -> None:
    nixtla = pytest.importorskip("nixtla", reason="installed without its requirements (Makefile)")
    given = entries()
    frames = []
    for name, entry in zip("ab", given, strict=True):
        rows = len(entry["series"])
        table = pd.DataFrame({**entry["future_covariates"], **entry["static_covariates"]})
        table["open"] = table["open"].astype(float)
        table.insert(0, "unique_id", name)
        table.insert(1, "ds", pd.date_range("2024-01-01", periods=rows + HORIZON, freq="h"))
        table.insert(2, "y", [*entry["series"], *[None] * HORIZON])
        frames.append(table)
    whole = pd.concat(frames)
    write_bundle(tmp_path / "models", STORE)
    with Server(tmp_path / "models", tmp_path / "log", api_keys="key") as server:
        api = nixtla.NixtlaClient(api_key="key", base_url=f"{server.url}/nixtla", max_retries=1)
        found = api.forecast(
            whole[whole["y"].notna()].astype({"y": float}),
            h=HORIZON,
            freq="h",
            model="store",
            X_df=whole[whole["y"].isna()][["unique_id", "ds", *NUMBERS, *CATEGORIES]],
            hist_exog_list=["size", "region"],
            categorical_exog_list=["sky", "region"],
        )
    outputs = client.forecast({"model": "store", "inputs": given}).json()["outputs"]
    expected = [each["content"][0]["mean_forecast"] for each in outputs]
    np.testing.assert_allclose(found["TimeGPT"], np.concatenate(expected), rtol=1e-6)
