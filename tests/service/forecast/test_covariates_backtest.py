"""Backtests with covariates: those that came true, in the rows of the request."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from tests.service.client import Client
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    KIOSK,
    SHOP,
    forecast_of_shop,
    kiosk,
    models,
    server,
    shop,
    values,
)
from tests.service.forecast.test_backtest import error, first, post

__all__ = ["models", "server"]

SERVED = (SHOP, KIOSK)
ROWS = 30


def cut(entry: dict[str, Any], origin: int, ahead: int) -> dict[str, Any]:
    """An input as it would have been before a row, with the covariates of later rows."""
    future = {name: each[: origin + ahead] for name, each in entry["future_covariates"].items()}
    return {**entry, "series": entry["series"][:origin], "future_covariates": future}


@pytest.mark.parametrize(("horizon", "stride"), [(4, 4), (2, 3), (6, 5), (16, 1)])
def test_origins_read_the_covariates_of_the_rows(server: Client, horizon: int, stride: int) -> None:
    entry = shop(rows=ROWS, ahead=0)
    options = {"horizon": horizon, "stride": stride}
    found = first(server, {"model": "shop", "inputs": [entry], "options": options})
    ahead = -(-horizon // HORIZON) * HORIZON
    # The model reads its whole horizon.
    origins = range(ROWS - ahead, CONTEXT - 1, -stride)
    assert found["origins"] == len(origins)
    assert (found["first_origin"], found["last_origin"]) == (origins[-1], origins[0])
    errors = [
        forecast_of_shop(cut(entry, origin, ahead), horizon)
        - np.array(entry["series"])[origin : origin + horizon]
        for origin in origins
    ]
    mae = np.abs(errors).mean(axis=(0, 1))
    np.testing.assert_allclose([each["mae"] for each in found["channels"]], mae, rtol=1e-4)


def test_answer_says_that_covariates_came_true(server: Client) -> None:
    for entry, model in ((shop(ROWS, 0), "shop"), (kiosk(ROWS), "kiosk")):
        if model == "kiosk":
            entry["future_covariates"]["price"] = [1.0] * ROWS
        answer = post(server, {"model": model, "inputs": [entry]})
        assert answer.status_code == 200, answer.text
        assert "actual_covariates" in [each["type"] for each in answer.json()["warnings"]]


def test_covariates_after_the_rows_are_refused(server: Client) -> None:
    found = error(server, {"model": "shop", "inputs": [shop(ROWS, HORIZON)]})
    assert found["param"] == "inputs[0].future_covariates.price"
    assert found["message"] == (
        "expected 30 values, those that came true in the rows of series, got 34"
    )
    entry = shop(ROWS, 0)
    entry["past_covariates"] = {"price": [1.0] * ROWS}
    found = error(server, {"model": "shop", "inputs": [entry]})
    assert found["param"] == "inputs[0].future_covariates.price"
    assert "those of the rows in inputs[0].past_covariates.price, too; leave it" in found["message"]


def test_too_few_rows_for_the_whole_horizon(server: Client) -> None:
    body = {"model": "shop", "inputs": [shop(rows=11, ahead=0)], "options": {"horizon": 2}}
    found = error(server, body)
    assert found["param"] == "inputs[0].series"
    assert found["message"] == ("expected at least 12 rows (8 to read and 4 that follow), got 11")


def test_gaps_are_counted_with_those_of_the_series(server: Client) -> None:
    entry, whole = shop(ROWS, 0), shop(ROWS, 0)
    entry["future_covariates"]["sky"][9:12] = [None] * 3
    whole["future_covariates"]["sky"][9:12] = [whole["future_covariates"]["sky"][8]] * 3
    options = {"missing": "ffill"}
    answer = post(server, {"model": "shop", "inputs": [entry], "options": options}).json()
    expected = post(server, {"model": "shop", "inputs": [whole]}).json()
    assert answer["outputs"][0]["content"] == expected["outputs"][0]["content"]
    warned = {each["type"]: each["message"] for each in answer["warnings"]}
    assert warned["filled"].startswith("3 missing values")


@pytest.mark.parametrize("place", ["series", "past_covariates", "future_covariates"])
def test_gaps_that_no_window_reads_are_not_counted(server: Client, place: str) -> None:
    """Windows have rows 2 to 13, 18 to 29 and 34 to 45, the last 4 of them as their future."""
    entry = kiosk(46)
    entry["future_covariates"] = {"price": [1.0] * 46}
    name = {"past_covariates": "staff", "future_covariates": "price"}.get(place)
    column = entry[place] if name is None else entry[place][name]
    for row in (3, 14, 15, 30):
        column[row] = None
    request = {"model": "kiosk", "inputs": [entry], "options": {"missing": "ffill", "stride": 16}}
    answer = post(server, request)
    assert answer.status_code == 200, answer.text
    (warned,) = [each for each in answer.json()["warnings"] if each["type"] == "filled"]
    assert warned["message"].startswith("1 missing value")


def test_origins_without_known_covariates_are_left_out(server: Client) -> None:
    entry = shop(ROWS, 0)
    entry["future_covariates"]["price"][:3] = [None] * 3
    options = {"missing": "ffill", "stride": 1}
    found = first(server, {"model": "shop", "inputs": [entry], "options": options})
    assert found["first_origin"] == CONTEXT + 3


@pytest.mark.parametrize("missing", ["interpolate", "ffill"])
@pytest.mark.parametrize("model", ["shop", "kiosk"])
def test_origins_fill_gaps_as_requests_do(server: Client, model: str, missing: str) -> None:
    """Nothing is filled from rows that a request at the origin lacks."""
    entry = shop(ROWS, 0) if model == "shop" else kiosk(ROWS)
    future, past = entry["future_covariates"], entry.get("past_covariates", {})
    future["price"] = values("price", ROWS)
    future["price"][14:22] = [None] * 8
    if model == "shop":
        future["sky"][:16] = [None] * 16
        future["open"][18:23] = [None] * 5
    else:
        past["staff"][:12] = [None] * 12
        past["sale"][:3] = past["sale"][13:16] = [None] * 3
        past["visits"][18:20] = [None] * 2
    body = {"model": model, "inputs": [entry], "options": {"stride": 1, "missing": missing}}
    found = first(server, body)
    assert found["origins"] == ROWS - HORIZON + 1 - 13
    errors = []
    for origin in range(13, ROWS - HORIZON + 1):
        own = cut(entry, origin, HORIZON)
        if past:
            own["past_covariates"] = {name: each[:origin] for name, each in past.items()}
        request = {"model": model, "inputs": [own], "options": {"missing": missing}}
        forecast = server.first(request)["mean_forecast"]
        errors.append(np.array(forecast) - entry["series"][origin : origin + HORIZON])
    mae = np.abs(errors).mean(axis=(0, 1))
    np.testing.assert_allclose(
        [each["mae"] for each in found["channels"]], np.atleast_1d(mae), rtol=1e-4
    )


def test_gap_of_a_category_counts_once(server: Client) -> None:
    entry = kiosk(ROWS)
    entry["future_covariates"]["price"] = [1.0] * ROWS
    entry["past_covariates"]["staff"][9:12] = [None] * 3
    body = {"model": "kiosk", "inputs": [entry], "options": {"missing": "ffill"}}
    warned = {each["type"]: each["message"] for each in post(server, body).json()["warnings"]}
    assert warned["filled"].startswith("3 missing values")


def test_quantiles_are_corrected_by_origins_with_covariates(server: Client) -> None:
    entry = shop(rows=60, ahead=HORIZON)
    options = {"quantiles": [0.1, 0.9], "calibration": "history"}
    body = {"model": "shop", "inputs": [entry], "options": options}
    found = server.first(body)
    assert found["calibration"]["origins"] > 20
    # The errors of earlier origins depend on their covariates, the forecast does not.
    other = copy.deepcopy(body)
    for step in range(12, 40):
        other["inputs"][0]["future_covariates"]["price"][step] *= 3  # type: ignore[index]
    changed = server.first(other)
    assert changed["mean_forecast"] == found["mean_forecast"]
    assert changed["quantiles"] != found["quantiles"]


def test_backtest_of_past_covariates_by_name(server: Client) -> None:
    entry = kiosk(ROWS)
    entry["future_covariates"]["price"] = [2.0] * ROWS
    body = {"model": "kiosk", "inputs": [entry], "options": {"stride": 1}}
    found = first(server, body)
    past = entry["past_covariates"]
    staff = np.array(past["staff"])
    columns = [past["visits"], entry["series"], staff == "few", staff == "many", past["sale"]]
    wide = {**entry, "series": np.transpose(np.float64(columns)).tolist()}
    del wide["past_covariates"]
    assert found == first(server, {**body, "inputs": [wide]})
