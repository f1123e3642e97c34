"""The view Did it come true, after a replay through a server with a ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import numpy as np
import pandas as pd
import pytest
from playwright.sync_api import Page, Route, expect

from foretell.client import Client, InvalidInputError
from foretell.demo.replay import replay
from tests.page.browser import Look, Module, Watch, faults
from tests.page.models import CHANNELS, CONTEXT, write_models
from tests.page.person import view, with_parts
from tests.support.process import Server
from tests.support.waiting import until

pytestmark = pytest.mark.browser
Modules = Callable[[str], Module]

TITLE = "Did it come true"
# Forecasts of 10 days, from Tuesday 5 March 2024 on.
HOURS = 240
START = "2024-03-03"


def weather(noise: float) -> pd.DataFrame:
    """Rows of the page's models, with daily cycles."""
    steps = np.arange(CONTEXT + HOURS)[:, None]
    drawn = np.random.default_rng(0).normal(0, noise, (len(steps), len(CHANNELS)))
    times = pd.date_range(START, periods=len(steps), freq="h")
    cycles = 10 + 3 * np.sin(steps * 2 * np.pi / 24) + drawn
    return pd.DataFrame(cycles, columns=[*CHANNELS], index=times)


@pytest.fixture(scope="module")
def remembering(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with a ledger; `patchtst` has forecasts of two series."""
    folder = tmp_path_factory.mktemp("remembering")
    with Server(
        write_models(folder / "repository"),
        folder / "log",
        threads=1,
        ledger=f"sqlite:///{folder / 'ledger.db'}",
    ) as server:
        tables = {"calm": weather(0.1), "wild": weather(5.0)}
        with Client(server.url) as client:
            assert [*replay(client, tables, ["patchtst"], HOURS)] == [*range(1, HOURS + 1)]
        # The last forecasts have steps without actual values.
        until(lambda: count(server) == 2 * len(CHANNELS) * (12 * HOURS - sum(range(12))))
        yield server


def count(server: Server) -> int:
    """Forecast values that the server has compared with actual values."""
    answer = httpx.get(f"{server.url}/models/patchtst/accuracy").json()
    return sum(row["count"] for row in answer["rows"])


@pytest.mark.parametrize("look", [Look(1280), Look(390), Look(390, "dark")])
def test_replayed_forecasts_are_shown(page: Page, remembering: Server) -> None:
    page.goto(remembering.url)
    page.get_by_role("combobox", name="Model").select_option("patchtst")
    view(page, TITLE)
    chart = page.get_by_role("img", name="temperature: ")
    expect(chart).to_have_accessible_name(with_parts("forecasts: actual", "version 1"))
    expect(page.get_by_text("of the actual values are inside the 80% intervals")).to_be_visible()
    expect(page.get_by_role("img", name="by step ahead")).to_have_accessible_name(
        with_parts("version 1", "at step 1", "last season")
    )
    expect(page.get_by_role("img", name="by week")).to_have_accessible_name(
        with_parts("2 weeks: version 1", "in its last week")
    )
    assert not faults(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]


def test_series_channel_and_days_are_chosen(page: Page, remembering: Server) -> None:
    page.goto(f"{remembering.url}/#/accuracy")
    page.get_by_role("combobox", name="Model").select_option("patchtst")
    table = page.get_by_role("region", name="Series by error")
    # The small errors of `calm` are still larger than those of its last season.
    expect(table.get_by_role("row").nth(1)).to_contain_text("calm")
    link = table.get_by_role("button", name="wild")
    link.focus()
    page.keyboard.press("Enter")
    heading = page.get_by_role("heading", name="Forecasts and actual values of wild")
    expect(heading).to_be_focused()
    chosen = page.get_by_role("combobox", name="Series").locator("option:checked")
    expect(chosen).to_have_text("wild")
    expect(link).to_have_attribute("aria-pressed", "true")
    page.get_by_role("combobox", name="Channel").select_option("wind_speed")
    expect(page.get_by_role("heading", name="wind_speed of wild")).to_be_visible()
    page.get_by_label("First day").fill("2024-03-08")
    page.get_by_label("Last day").fill("2024-03-09")
    # 12 forecasts have a step at each hour.
    expect(page.get_by_text(f"{2 * 24 * 12} forecast values compared")).to_be_visible()
    chart = page.get_by_role("img", name="wind_speed: ")
    expect(chart).to_have_accessible_name(with_parts("forecasts: actual", "version 1"))
    charts = page.get_by_role("group", name="Charts: left and right")
    charts.focus()
    page.keyboard.press("ArrowLeft")
    expect(charts.locator("figcaption")).to_contain_text(with_parts("2024-03-", "version 1"))
    page.get_by_label("Last day").fill("2024-03-07")
    expect(page.get_by_text("Choose other days or another series")).to_be_visible()


@pytest.mark.parametrize("look", [Look(1280), Look(390)])
def test_model_without_comparisons_says_what_to_do(page: Page, remembering: Server) -> None:
    page.goto(f"{remembering.url}/#/accuracy")
    page.get_by_role("combobox", name="Model").select_option("forms")
    expect(page.get_by_role("heading", name="Nothing to compare yet")).to_be_visible()
    expect(page.get_by_role("listitem").filter(has_text="POST /actuals")).to_be_visible()
    assert not faults(page)


def test_view_is_hidden_without_a_ledger(page: Page, server: Server) -> None:
    page.goto(f"{server.url}/#/accuracy")
    expect(page.get_by_text("FORETELL_LEDGER")).to_be_visible()
    expect(page.get_by_role("link", name=TITLE)).to_have_count(0)


def row(version: str, mae: float, **groups: Any) -> dict[str, Any]:
    """A row of scores."""
    intervals = {"0.8": {"coverage": mae / 10, "width": 1.0, "count": 10}}
    scores = {"count": 10, "mae": mae, "rmse": mae, "bias": 0.5, "naive_mae": 4.0, "mase": mae / 4}
    return {"version": version, **groups, **scores, "quantiles": {}, "intervals": intervals}


def trajectory(version: str, origin: int, value: float) -> dict[str, Any]:
    """A forecast of three hours in a channel, from an hour of 1 March on."""
    times = [f"2024-03-01T{origin + step:02}:00:00" for step in (1, 2, 3)]
    steps = [[value + step] for step in range(3)]
    bounds = {"0.1": [[value - 1]] * 3, "0.9": [[value + 3]] * 3}
    return {
        "id": "-",
        "version": version,
        "calibration": "stored",
        "origin": f"2024-03-01T{origin:02}:00:00",
        "timestamps": times,
        "channels": ["temperature"],
        "mean": steps,
        "naive": steps,
        "quantiles": bounds,
    }


TWO = {
    "forecasts": [trajectory(*each) for each in (("9", 0, 1.0), ("10", 0, 2.0), ("10", 3, 4.0))],
    "actuals": {
        "timestamps": [f"2024-03-01T0{hour}:00:00" for hour in (1, 2, 4)],
        "values": {"temperature": [1.0, None, 3.0]},
    },
}


def test_versions_are_shown_side_by_side(page: Page, remembering: Server) -> None:
    groups: dict[str, list[dict[str, Any]]] = {
        "total": [{}],
        "step": [{"step": 1}, {"step": 2}],
        "day": [{"day": "2024-03-01"}, {"day": "2024-03-09"}],
        "series": [{"series": "a"}],
    }

    def answer(route: Route) -> None:
        [by] = parse_qs(urlsplit(route.request.url).query)["by"]
        found = [
            row(version, mae, **group)
            for version, mae in (("9", 2.0), ("10", 6.0))
            for group in groups[by]
        ]
        route.fulfill(json={"model": "patchtst", "by": by, "rows": found, "left_out": 0})

    page.route("**/accuracy?*", answer)
    page.route("**/trajectories?*", lambda route: route.fulfill(json=TWO))
    page.goto(f"{remembering.url}/#/accuracy")
    expect(page.get_by_text(with_parts("Version 9:", "50% smaller", "20%"))).to_be_visible()
    expect(page.get_by_text(with_parts("Version 10:", "50% larger", "60%"))).to_be_visible()
    expect(page.get_by_role("img", name="temperature: ")).to_have_accessible_name(
        with_parts("3 forecasts", "version 9 1.00 to 3.00", "version 10 2.00 to 6.00")
    )
    expect(page.get_by_role("img", name="by step")).to_have_accessible_name(
        with_parts("version 9 2.00 at step 1", "version 10 6.00 at step 1", "last season 4.00")
    )
    expect(page.get_by_role("img", name="by week")).to_have_accessible_name(
        with_parts("2 weeks", "version 9 20%", "version 10 60%")
    )
    assert not faults(page)


def test_refused_key_shows_the_usual_message(page: Page, watch: Watch, remembering: Server) -> None:
    watch.allow(401, 403)
    error = {"error": {"message": "the key may not read scores", "type": "forbidden"}}
    page.route("**/accuracy?*", lambda route: route.fulfill(status=403, json=error))
    page.goto(f"{remembering.url}/#/accuracy")
    expect(page.get_by_role("alert")).to_contain_text("the key may not read scores")
    page.route("**/accuracy?*", lambda route: route.fulfill(status=401, json=error))
    page.reload()
    dialog = page.get_by_role("dialog", name="API key")
    expect(dialog).to_be_visible()
    dialog.get_by_role("button", name="Cancel").click()
    expect(page.get_by_role("alert")).to_contain_text("This server requires an API key.")


def test_error_stays_until_the_view_is_left(page: Page, watch: Watch, remembering: Server) -> None:
    watch.allow(403)
    error = {"error": {"message": "the key may not read scores", "type": "forbidden"}}
    held: list[Route] = []
    page.route("**/example", lambda route: held.append(route))
    page.route("**/accuracy?*", lambda route: route.fulfill(status=403, json=error))
    page.goto(f"{remembering.url}/#/accuracy")
    expect(page.get_by_role("alert")).to_contain_text("the key may not read scores")
    assert held
    with page.expect_response("**/example"):
        held[0].continue_()
    # The example is read for another view, which forecasts it.
    page.wait_for_timeout(500)
    expect(page.get_by_role("alert")).to_contain_text("the key may not read scores")
    page.get_by_role("link", name="Forecast").click()
    expect(page.get_by_role("heading", name="Forecast", level=1)).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


def test_picture_joins_forecasts_of_two_versions(module: Modules) -> None:
    versions = [{"name": "9", "place": 0}, {"name": "10", "place": 1}]
    made = module("outcomes.js").call("pictureOf", TWO, versions, "temperature", "h")
    assert len(made["x"]) == 6
    assert {one["label"]: one["values"] for one in made["series"]} == {
        "upper end of 80%": [5, 5, 5, 7, 7, 7],
        "lower end of 80%": [1, 1, 1, 3, 3, 3],
        "actual": [1, None, None, 3, None, None],
        "version 9": [1, 2, 3, None, None, None],
        "version 10": [2, 3, 4, 4, 5, 6],
    }
    assert module("outcomes.js").call("pictureOf", TWO, versions, "wind_speed", "h") is None


def test_weeks_begin_on_mondays_and_weigh_days_by_their_values(module: Modules) -> None:
    def day(name: str, coverage: float | None, count: int) -> dict[str, Any]:
        return {"day": name, "intervals": {"0.8": {"coverage": coverage, "count": count}}}

    days = [day("2024-03-03", 0.5, 2), day("2024-03-04", 1.0, 1), day("2024-03-10", 0.5, 3)]
    days += [day("2024-03-11", None, 0), {"day": "2024-03-12", "intervals": {}}]
    weeks = module("scores.js").call("weeksOf", days, "0.8")
    mondays = [pd.Timestamp(week["monday"], unit="s").strftime("%a %d") for week in weeks]
    assert mondays == ["Mon 26", "Mon 04"]
    assert [(week["share"], week["count"]) for week in weeks] == [(0.5, 2), (0.625, 4)]


def test_scores_are_requested_and_put_into_words(module: Modules) -> None:
    scores = module("scores.js")
    parameters = {"series": "", "channel": "a b", "by": "step", "since": None}
    assert (
        scores.call("pathOf", "m", "accuracy", parameters)
        == "/models/m/accuracy?channel=a+b&by=step"
    )
    assert scores.call("levelOf", ["0.5", "0.95", "0.9"]) == "0.9"
    own = {"series": "a", "namespace": "", "frequency": "h"}
    assert (
        scores.call("pathOf", "m", "trajectories", own)
        == "/models/m/trajectories?series=a&namespace=&frequency=h"
    )
    alike = [own, own | {"namespace": "shop"}, own | {"frequency": "D"}, own | {"series": "b"}]
    titles = [one["title"] for one in scores.call("seriesOf", [*alike, *alike])]
    assert titles == ["a (D)", "a (h)", "b", "shop/a"]
    assert scores.call("levelOf", []) is None
    many = [{"version": name} for name in ("10", "9", "2", "1", "11", "12", "9")]
    names = [one["name"] for one in scores.call("versionsOf", many)]
    assert names == ["2", "9", "10", "11", "12"]
    order = [{"mase": mase} for mase in (None, 0.5, 2)]
    assert [row["mase"] for row in scores.call("worstFirst", order)] == [2, 0.5, None]
    unknown: dict[str, Any] = {"count": 1, "mase": None, "intervals": {}}
    assert scores.call("wordsOf", unknown, None) == "1 forecast value compared with actual values."
    alike = scores.call("wordsOf", unknown | {"mase": 1.001}, None)
    assert alike.endswith("The error is as large as that of repeating the last season.")


def test_replay_needs_a_ledger_and_enough_rows(server: Server, remembering: Server) -> None:
    with Client(server.url) as client, pytest.raises(InvalidInputError, match="FORETELL_LEDGER"):
        next(replay(client, {"calm": weather(0.1)}, ["patchtst"], 6))
    with Client(remembering.url) as client, pytest.raises(InvalidInputError, match="54 are needed"):
        next(replay(client, {"calm": weather(0.1)[:53]}, ["patchtst"], 6))
