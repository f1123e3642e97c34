"""Frames with covariates by the client, against a real server."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest

from foretell import Client
from foretell.client import ForetellWarning, InvalidInputError
from tests.service.forecast.shops import CONTEXT, KIOSK, SHOP, forecast_of_shop, kiosk, shop
from tests.service.forecast.test_table_covariates import columns_of, joined
from tests.support.bundles import write_bundle
from tests.support.process import Server

# Forecasts of the small models are far from their training.
pytestmark = pytest.mark.filterwarnings("ignore::foretell.client.ForetellWarning")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("shops")
    for spec in (SHOP, replace(KIOSK, stages=SHOP.stages)):
        write_bundle(folder / "models", spec)
    with Server(folder / "models", folder / "log") as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def frame_of(entry: dict[str, Any], model: str, kind: str) -> Any:
    columns = columns_of(entry, model)
    if kind == "polars":
        return pl.DataFrame(columns)
    frame = pd.DataFrame(columns)
    if kind == "categories":
        texts = [name for name in ("sky", "region", "staff") if name in frame]
        frame = frame.astype(dict.fromkeys(texts, "category"))
    return frame


@pytest.mark.parametrize("kind", ["pandas", "categories", "polars"])
def test_forecast_reads_the_future_from_later_rows(client: Client, kind: str) -> None:
    entry = shop()
    found = client.forecast(frame_of(entry, "shop", kind), model="shop")
    values = np.stack([found["sales"], found["returns"]], axis=1)
    np.testing.assert_allclose(values, forecast_of_shop(entry), rtol=1e-5)


def test_series_with_covariates_are_sent_in_parts(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [shop(rows=CONTEXT + n, shift=n) for n in range(3)]
    columns = joined(*(columns_of(each, "shop", f"s{n}") for n, each in enumerate(entries)))
    columns["sky"][-1] = "fog"
    monkeypatch.setattr("foretell.client.forecasting.Limits", _One)
    answer = client.forecast_with_notes(pd.DataFrame(columns)[:-14], model="shop")
    for part, entry in zip((answer.frame[:4], answer.frame[4:]), entries[:2], strict=True):
        found = part[["sales", "returns"]].to_numpy()
        np.testing.assert_allclose(found, forecast_of_shop(entry), rtol=1e-5)
    with pytest.raises(InvalidInputError, match="expected a category") as raised:
        client.forecast(pd.DataFrame(columns), model="shop")
    assert raised.value.place == "sky[38]"


class _One:
    series, size, values = 1, 10**9, 10**9


@pytest.mark.parametrize("kind", ["pandas", "categories", "polars"])
@pytest.mark.parametrize("model", ["shop", "kiosk"])
def test_explain_gives_the_forecast_of_the_table(client: Client, model: str, kind: str) -> None:
    entry = shop(rows=10) if model == "shop" else kiosk(rows=10)
    frame = frame_of(entry, model, kind)
    found = client.explain(frame, model=model)
    forecast = client.forecast(frame, model=model)
    expected = np.stack([forecast[name] for name in found.targets], axis=1)
    np.testing.assert_array_equal(np.float32(found.values), np.float32(expected))


def test_backtest_warns_that_covariates_came_true(client: Client, server: Server) -> None:
    entry = shop(30, 0)
    with pytest.warns(ForetellWarning, match="those that came true"):
        found = client.backtest(frame_of(entry, "shop", "pandas"), model="shop")
    body = {"model": "shop", "inputs": [entry]}
    expected = httpx.post(f"{server.url}/backtest", json=body).json()["outputs"][0]["content"][0]
    channels = found.series["a"].channels
    # Windows may run in other batches, whose sums are rounded otherwise.
    assert [each.mae for each in channels] == pytest.approx(
        [each["mae"] for each in expected["channels"]], rel=1e-6
    )


Change = Callable[[dict[str, list[Any]]], object]
WRONG: list[tuple[Change, str, str]] = [
    (lambda columns: columns.pop("price"), "price", "expected one column|required, but missing"),
    (lambda columns: columns["price"].__setitem__(9, None), "price[9]", "a value is missing"),
    (lambda columns: columns["sky"].__setitem__(3, "fog"), "sky[3]", "expected a category"),
    (lambda columns: columns["size"].__setitem__(3, 9.0), "size[3]", "2.5 and 9.0"),
    (lambda columns: columns["region"].__setitem__(5, "north"), "region[5]", "'south' and 'north'"),
]


@pytest.mark.parametrize("method", ["forecast", "explain"])
@pytest.mark.parametrize(("change", "place", "message"), WRONG)
def test_mistakes_have_their_place(
    client: Client, method: str, change: Change, place: str, message: str
) -> None:
    columns = copy.deepcopy(columns_of(shop(), "shop"))
    change(columns)
    with pytest.raises(InvalidInputError, match=message) as raised:
        getattr(client, method)(pd.DataFrame(columns), model="shop")
    assert raised.value.place == place


def put(name: str, row: int, value: Any) -> Change:
    return lambda columns: columns[name].__setitem__(row, value)


PLACED: list[tuple[str, Change, str]] = [
    ("shop", put("sky", 3, "fog"), "sky[7]"),
    ("shop", put("price", 9, None), "price[19]"),
    ("shop", put("size", 6, 9.0), "size[13]"),
    ("shop", put("size", 0, None), "size[1]"),
    ("kiosk", put("staff", 2, "lots"), "staff[5]"),
    ("kiosk", put("visits", 5, None), "visits[11]"),
    ("kiosk", put("sale", 1, None), "sale[3]"),
    ("kiosk", put("price", 0, None), "price[1]"),
]


@pytest.mark.parametrize("method", ["forecast_with_notes", "backtest", "explain"])
@pytest.mark.parametrize(("model", "change", "place"), PLACED)
def test_places_are_rows_of_a_frame_whose_series_alternate(
    client: Client, method: str, model: str, change: Change, place: str
) -> None:
    one, two = (
        columns_of(shop(12) if model == "shop" else kiosk(12), model, name) for name in "ab"
    )
    change(two)
    pairs = {
        name: [each for pair in zip(one[name], two[name], strict=True) for each in pair]
        for name in one
    }
    frame = pd.DataFrame(pairs)
    if method == "explain":
        with pytest.raises(InvalidInputError) as raised:
            client.explain(frame, model=model, series="b")
        found = raised.value.place
    else:
        rows = frame if method == "forecast_with_notes" else frame[: 2 * 12]
        (error,) = getattr(client, method)(rows, model=model).notes.errors
        found = error.place
    assert found == place


@pytest.mark.parametrize("name", ["price", "region", "staff"])
def test_explain_suggests_the_column_that_a_misspelt_one_may_be(client: Client, name: str) -> None:
    model = "kiosk" if name == "staff" else "shop"
    columns = columns_of(kiosk() if name == "staff" else shop(), model)
    columns[f"{name}s"] = columns.pop(name)
    with pytest.raises(InvalidInputError, match=f"did you mean '{name}s'") as raised:
        client.explain(pd.DataFrame(columns), model=model)
    assert raised.value.place == name
