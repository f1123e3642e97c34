"""The view Compare, and tables of backtests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.browser import Module, Watch
from tests.page.models import CHANNELS, CONTEXT
from tests.page.test_csv import CARD, NO_COVARIATES
from tests.support.process import Server

pytestmark = pytest.mark.browser
Modules = Callable[[str], Module]
# A source without times and without covariates.
UNTOUCHED: dict[str, Any] = {
    "timestamps": None,
    "problems": [],
    "header": [],
    "cells": [],
    "comma": False,
    "chosen": {},
    "futures": [{"name": "scenario 1", "cells": {}}],
    "statics": {},
}
START = np.datetime64("2024-03-01T00:00:00")
CARDS = [
    {"context": 48, "max_horizon": 96, "covariates": NO_COVARIATES},
    {"context": 96, "max_horizon": 30, "covariates": NO_COVARIATES},
]
# It reads covariates of whole passes.
AHEAD = {
    "context": 24,
    "horizon": 24,
    "max_horizon": 96,
    "covariates": NO_COVARIATES
    | {"future": [{"name": "price", "type": "number", "categories": []}]},
}


def result(*channels: tuple[str, float, float, float], season: int | None = 24) -> dict[str, Any]:
    """A result by channel: MAE of the model, of the last value and of the last season."""

    def errors(mae: float) -> dict[str, Any]:
        return {"mae": mae, "mse": mae**2}

    return {
        "channels": [
            errors(own)
            | {
                "name": name,
                "last_value": errors(last),
                "seasonal_naive": errors(seasonal) | {"season": season} if season else None,
                "intervals": [{"coverage": own / 10}],
            }
            for name, own, last, seasonal in channels
        ]
    }


ONE = result(("a", 2, 4, 1), ("b", 8, 16, 32))
OTHER = result(("b", 4, 16, 32))


def test_origins_fit_in_the_rows_of_the_longest_context(module: Modules) -> None:
    backtests = module("backtests.js")
    assert backtests.call("commonHorizon", CARDS, None) == 30
    assert backtests.call("commonHorizon", CARDS, 24) == 24
    assert backtests.call("rowsFor", CARDS, 24) == 120
    found = [backtests.call("originsIn", rows, CARDS, 24) for rows in (60, 119, 120, 143, 144)]
    assert found == [0, 0, 1, 1, 2]
    found = [backtests.call("rowsFor", [*CARDS, AHEAD], horizon) for horizon in (1, 24, 30)]
    assert found == [96 + 24, 96 + 24, 96 + 48]
    assert backtests.call("originsIn", 151, [*CARDS, AHEAD], 1) == 32


def test_rows_of_models_with_and_without_covariates_have_the_same_origins(module: Modules) -> None:
    source = {"values": [[row] for row in range(200)]}
    for horizon, rows in ((1, 24), (30, 48)):
        after = module("backtests.js").call("commonRowsAfter", [*CARDS, AHEAD], horizon)
        how = {"horizon": horizon, "origins": 3, "after": after}
        for card, own in ((CARDS[0], horizon), (AHEAD, rows)):
            span = module("backtests.js").call("spanOf", source, card, how)
            last = span["end"] - own
            assert last == 200 - rows
            assert span["first"] == last - 2 * horizon - card["context"]


def test_table_of_errors_marks_the_best(module: Modules) -> None:
    backtests = module("backtests.js")
    table = backtests.call("tableOf", [ONE, OTHER], "mae")
    assert table["baselines"] == ["last value", "last 24 steps"]
    assert table["rows"] == [
        # The last season has the smallest error; the other model does not forecast channel a.
        {"channel": "a", "values": [2, None, 4, 1], "best": 3},
        {"channel": "b", "values": [8, 4, 16, 32], "best": 1},
    ]
    assert backtests.call("tableOf", [ONE], "rmse")["rows"][1]["values"] == [8, 16, 32]
    unseasonal = result(("a", 2, 4, 0), season=None)
    assert backtests.call("tableOf", [unseasonal], "mae")["baselines"] == ["last value"]


def test_best_coverage_is_the_nearest_to_the_level(module: Modules) -> None:
    table = module("backtests.js").call("tableOf", [ONE, result(("b", 7, 1, 1))], "coverage")
    assert table["baselines"] == []
    assert table["rows"][1] == {"channel": "b", "values": [0.8, 0.7], "best": 0}
    # A single value is not marked as the best.
    assert table["rows"][0] == {"channel": "a", "values": [0.2, None], "best": -1}


def test_overall_error_is_a_geometric_mean_over_channels(module: Modules) -> None:
    backtests = module("backtests.js")
    assert backtests.call("overall", ONE, "mae") == pytest.approx(0.5)
    assert backtests.call("overall", ONE, "coverage") is None
    code = "(m, one) => m.overall(one, 'mae', (channel) => channel.seasonal_naive)"
    assert backtests.evaluate(code, ONE) == pytest.approx((1 / 4 * 2) ** 0.5)


def test_model_of_another_frequency_is_a_mismatch(module: Modules) -> None:
    card = CARD | {"channels": ["a"], "context": 2}
    source = UNTOUCHED | {"channels": ["a"], "values": [[1]] * 3}
    backtests, options = module("backtests.js"), {"holdBack": 0, "missing": "error"}
    mismatch = backtests.call("mismatchOf", source | {"frequency": "D"}, card, options)
    assert mismatch == "it reads hourly rows, these are daily"
    assert backtests.call("mismatchOf", source | {"frequency": "60min"}, card, options) is None
    assert backtests.call("mismatchOf", source | {"frequency": None}, card, options) is None


def test_backtest_sends_only_the_rows_of_its_origins(module: Modules) -> None:
    card = CARD | {"name": "m", "version": "3", "channels": ["b"], "quantiles": False}
    values = [[row, -row] for row in range(20)]
    source = UNTOUCHED | {"name": "s", "channels": ["a", "b"], "values": values}
    options = {"horizon": 3, "origins": 2, "missing": "ffill"}
    how = options | {"after": 3}
    body = module("backtests.js").call("backtestOf", source, card, how)
    series = [float(-row) for row in range(10, 20)]
    assert body["inputs"] == [{"name": "s", "channels": ["b"], "series": series}]
    assert (body["model"], body["options"]) == ("m@3", options)
    calibrated = card | {"quantiles": True, "calibration": {"steps": 3}}
    for levels, quantiles in (([0.1, 0.9], [0.1, 0.9]), ([0.2, 0.8], None)):
        narrow = calibrated | {"quantile_levels": levels}
        body = module("backtests.js").call("backtestOf", source, narrow, how)
        assert body["options"].get("quantiles") == quantiles


def test_backtest_names_the_rows_that_an_example_lacks(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/#/compare")
    expect(page.get_by_text(f"a backtest takes at least {CONTEXT + 12}")).to_be_visible()
    expect(page.get_by_text("Open a longer CSV")).to_be_visible()
    # The example of the first model has no pressure.
    page.get_by_text("Models that cannot forecast these rows: 2").click()
    expect(page.get_by_text("forms: no column for pressure")).to_be_visible()
    figure = page.get_by_role("figure").filter(has=page.get_by_role("heading", name=CHANNELS[1]))
    label = re.compile("^wind_speed: forecasts of 12 steps: autoformer .*; patchtst ")
    expect(figure.locator(".chart")).to_have_attribute("aria-label", label)
    figure.get_by_text("Numbers").click()
    numbers = figure.get_by_role("table")
    expect(numbers.get_by_role("columnheader")).to_have_text(
        ["Time", "actual", "autoformer", "patchtst"]
    )
    expect(numbers.get_by_role("row")).to_have_count(13)


def open_rows(
    page: Page, server: Server, missing: int | None = None, *, timed: bool = True
) -> None:
    """Open a CSV on the page; the row `missing` lacks a temperature."""
    steps = np.arange(200)
    rows = np.round(20 + np.sin(steps[:, None] / [4, 7]) + steps[:, None] / 50, 2).tolist()
    times = START + steps * np.timedelta64(1, "h")
    lines = [[str(time), *map(str, row)] for time, row in zip(times, rows, strict=True)]
    if missing is not None:
        lines[missing][1] = ""
    table = [["time", *CHANNELS], *lines]
    page.goto(server.url)
    expect(page.get_by_role("combobox", name="Model")).to_have_value("autoformer")
    page.evaluate(
        "async (text) => (await import('./page/data.js')).openText(text, 'own')",
        "\n".join(",".join(cells[not timed :]) for cells in table),
    )


def test_error_of_a_backtest_names_row_and_channel(
    page: Page, watch: Watch, server: Server
) -> None:
    watch.allow(422)
    # The row is before the context of a forecast.
    open_rows(page, server, missing=100)
    page.get_by_role("link", name="Compare").click()
    message = re.compile("^patchtst: row 101, temperature: a value is missing.*Fix the data$")
    expect(page.get_by_role("alert").filter(has_text="patchtst")).to_have_text(message)
    expect(page.locator(".chart")).to_have_count(len(CHANNELS))


def test_origins_without_times_are_row_numbers(page: Page, server: Server) -> None:
    open_rows(page, server, timed=False)
    page.get_by_role("link", name="Compare").click()
    # The other model reads the calendar. The first of 12 origins is 11 times 12 before the last.
    expect(page.get_by_text("from row 57 to row 189")).to_be_visible()
    page.get_by_label("Origins").fill("2")
    page.get_by_label("Origins").blur()
    expect(page.get_by_text("from row 177 to row 189")).to_be_visible()


def test_late_answer_for_other_origins_is_dropped(page: Page, server: Server) -> None:
    open_rows(page, server)
    held: list[Route] = []
    page.route("**/backtest", lambda route: held.append(route), times=1)
    with page.expect_request("**/backtest"):
        page.get_by_role("link", name="Compare").click()
    page.get_by_label("Origins").fill("2")
    page.get_by_label("Origins").press("Enter")
    errors = page.get_by_role("region", name="Errors by channel")
    expect(errors.get_by_role("columnheader")).to_have_count(5)
    with page.expect_response("**/backtest"):
        held[0].continue_()
    page.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 50))")
    expect(errors.get_by_role("columnheader")).to_have_count(5)
