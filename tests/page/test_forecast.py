"""The view that forecasts, as a person uses it: what `test_csv.py` does not see."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, Request, Route, expect

from tests.page.browser import Module, Watch
from tests.page.conftest import KEY
from tests.page.models import CONTEXT
from tests.page.person import view
from tests.page.test_csv import Modules
from tests.support.process import Server

OPEN = "Open a CSV"
TIMES = np.datetime64("2024-03-01T00:00") + np.arange(200) * np.timedelta64(1, "h")


def write(path: Path, rows: int = CONTEXT, cells: dict[int, str] | None = None) -> str:
    """A CSV for the model `patchtst`, with some cells of `temperature` of one's own."""
    lines = [f"{TIMES[i]},{(cells or {}).get(i, 15 + i % 24)},{i % 5}" for i in range(rows)]
    path.write_text("\n".join(["time,temperature,wind_speed", *lines]) + "\n")
    return str(path)


def sent(page: Page) -> list[dict[str, Any]]:
    """The forecasts that a page asks for, from now on."""
    asked: list[dict[str, Any]] = []

    def note(request: Request) -> None:
        if request.url.endswith("/forecast"):
            asked.append(json.loads(request.post_data or ""))

    page.on("request", note)
    return asked


def choose(page: Page, server: Server, model: str = "patchtst") -> None:
    heading = page.get_by_role("heading", name="What is to come")
    page.goto(server.url)
    expect(heading).to_be_visible()
    with page.expect_response("**/forecast"):
        page.get_by_role("combobox", name="Model").select_option(model)
    expect(heading).to_be_visible()


def charts(page: Page) -> Locator:
    return page.get_by_role("group", name="Charts:").get_by_role("img")


def slide(page: Page, name: str, value: int) -> None:
    page.get_by_role("slider", name=name).fill(str(value))


def saying(*parts: str) -> re.Pattern[str]:
    """A text with these, in this order."""
    return re.compile(".*".join(map(re.escape, parts)))


def test_the_example_is_forecast_at_once_and_follows_the_sliders(
    page: Page, server: Server
) -> None:
    asked = sent(page)
    choose(page, server)
    # Each model's own, and once.
    assert [body["model"] for body in asked] == ["autoformer@1", "patchtst@1"]
    expect(charts(page).first).to_have_attribute(
        "aria-label", saying("forecast", "over 12 hours; 95% interval", "actual")
    )
    slide(page, "Interval", 70)
    slide(page, "Horizon", 14)
    expect(page.get_by_text("Steps from 13 on are forecast from forecasts.")).to_be_visible()
    expect(charts(page).first).to_have_attribute(
        "aria-label", saying("over 14 hours; 70% interval")
    )
    assert asked[-1]["options"] == {"horizon": 14, "quantiles": [0.15, 0.85]}
    page.get_by_role("button", name="wind_speed").click()
    expect(charts(page)).to_have_count(1)
    page.get_by_text("Numbers of temperature").click()
    table = page.get_by_role("table", name="temperature")
    expect(table.get_by_role("row")).to_have_count(15)
    expect(table.get_by_role("columnheader", name="70% to")).to_be_visible()


def test_modules_are_asked_for_at_once(page: Page, server: Server) -> None:
    choose(page, server)
    loaded, named = page.evaluate("""() => [
      performance.getEntriesByType("resource").map(({ name }) => name),
      [...document.querySelectorAll("[rel=modulepreload], script[src]")].map(
        (one) => one.href || one.src,
      ),
    ]""")
    assert {url for url in loaded if url.endswith("js")} == set(named)


def test_wrong_cells_are_mended_before_anything_is_sent(
    page: Page, server: Server, tmp_path: Path
) -> None:
    choose(page, server)
    asked = sent(page)
    page.get_by_label(OPEN).set_input_files(write(tmp_path / "own.csv", cells={30: "n/x", 40: ""}))
    forecast = page.get_by_role("button", name="Forecast", exact=True)
    expect(forecast).to_be_disabled()
    expect(page.get_by_text("Not yet: row 31, temperature: “n/x” is no number.")).to_be_visible()

    page.get_by_role("button", name="row 31, temperature").click()
    grid = page.get_by_role("grid", name="Rows")
    expect(grid).to_be_focused()
    expect(page.get_by_role("gridcell", name="n/x")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Row 31, temperature").fill("16.5")
    page.keyboard.press("Enter")
    expect(page.get_by_text("Not yet: row 41, temperature: no value.")).to_be_visible()
    page.get_by_label("Fill with").select_option("interpolate")
    expect(forecast).to_be_enabled()
    assert not asked

    forecast.click()
    expect(page.get_by_text("1 missing value", exact=True)).to_be_visible()
    expect(charts(page)).to_have_count(2)
    [body] = asked
    [history] = body["inputs"]
    assert (history["series"][30], history["series"][40]) == ([16.5, 0], [None, 0])
    assert body["options"]["missing"] == "interpolate"


def test_rows_that_are_held_back_are_compared(page: Page, server: Server, tmp_path: Path) -> None:
    choose(page, server)
    page.get_by_label(OPEN).set_input_files(write(tmp_path / "own.csv", rows=CONTEXT + 20))
    page.get_by_role("button", name="The last 12").click()
    asked = sent(page)
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(page.get_by_text("of 12 in 95%").first).to_be_visible()
    times = asked[0]["inputs"][0]["timestamps"]
    assert times[0] == f"{TIMES[8]}:00"
    assert len(times) == CONTEXT


def test_an_answer_that_comes_too_late_is_dropped(
    page: Page, server: Server, tmp_path: Path
) -> None:
    choose(page, server)
    held: list[Route] = []
    page.route("**/forecast", lambda route: held.append(route))
    page.get_by_role("button", name="Forecast", exact=True).click()
    page.get_by_label(OPEN).set_input_files(write(tmp_path / "own.csv"))
    expect(page.get_by_text("All 2 channels found by name.")).to_be_visible()
    with page.expect_response("**/forecast"):
        held[0].continue_()
    page.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 50))")
    expect(page.get_by_role("heading", name="What is to come")).to_be_hidden()


def test_of_models_that_are_chosen_the_last_one_counts(
    page: Page, server: Server, watch: Watch
) -> None:
    choose(page, server)
    held: list[Route] = []
    page.route("**/models/autoformer", lambda route: held.append(route))
    model = page.get_by_role("combobox", name="Model")
    card = page.get_by_role("region", name="Model card")
    with page.expect_request("**/models/autoformer"):
        model.select_option("autoformer")
    model.select_option("forms")
    expect(card).to_contain_text("of 3 channels")
    with page.expect_response("**/models/autoformer"):
        held[0].continue_()
    page.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 50))")
    expect(model).to_have_value("forms")

    watch.allow(503)
    page.route("**/models/patchtst", lambda route: route.fulfill(status=503))
    model.select_option("patchtst")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(model).to_have_value("forms")


def test_an_error_outlives_what_was_asked_before(page: Page, server: Server, watch: Watch) -> None:
    choose(page, server)
    held: list[Route] = []
    page.route("**/forecast", lambda route: held.append(route))
    with page.expect_request("**/forecast"):
        slide(page, "Horizon", 5)
    watch.allow(503)
    page.route("**/models/autoformer", lambda route: route.fulfill(status=503))
    page.get_by_role("combobox", name="Model").select_option("autoformer")
    alert = page.get_by_role("alert")
    expect(alert).to_be_visible()
    plots = page.get_by_role("region", name="What is to come")
    expect(plots).to_have_attribute("aria-busy", "true")
    with page.expect_response("**/forecast"):
        held[0].continue_()
    expect(plots).to_have_attribute("aria-busy", "false")
    expect(alert).to_be_visible()
    page.unroute("**/forecast")
    with page.expect_response("**/forecast"):
        slide(page, "Horizon", 6)
    expect(alert).to_be_hidden()


def test_errors_of_the_api_are_said_at_their_place(
    page: Page, server: Server, watch: Watch
) -> None:
    choose(page, server)
    watch.allow(422)

    def refuse(param: str) -> None:
        error = {"code": "422", "message": f"no {param}", "param": param, "type": "invalid_input"}
        page.route(
            "**/forecast",
            lambda route: route.fulfill(status=422, json={"error": error}),
            times=1,
        )
        page.get_by_role("button", name="Forecast", exact=True).click()

    controls = page.get_by_role("region", name="Forecast")
    refuse("options.horizon")
    expect(controls.get_by_text("no options.horizon")).to_be_visible()
    refuse("inputs[0].series[2][1]")
    problems = page.get_by_role("region", name="To look at before it is forecast")
    expect(problems).to_contain_text("no inputs[0].series[2][1]")
    problems.get_by_role("button", name="Row 3").click()
    wrong = page.locator("[aria-invalid=true][role=gridcell]")
    expect(wrong).to_have_attribute("title", "no inputs[0].series[2][1]")
    assert wrong.get_attribute("id") == "cell-2-2"
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(problems).to_be_hidden()


def shown(page: Page) -> float:
    """How many hours the charts show."""
    code = """async () => {
      const { group } = await import(new URL("page/plots.js", document.baseURI));
      const [{ scales }] = group.charts;
      return (scales.x.max - scales.x.min) / 3600;
    }"""
    return float(page.evaluate(code))


def test_keys_move_the_cursor_and_zoom(page: Page, server: Server, tmp_path: Path) -> None:
    choose(page, server)
    group = page.get_by_role("group", name="Charts:")
    group.focus()
    page.keyboard.press("ArrowRight")
    last = page.locator(".readout").first
    expect(last).to_contain_text("2024-03-03 11:00: forecast")
    page.keyboard.press("ArrowLeft")
    expect(last).to_contain_text("2024-03-03 10:00: forecast")
    heard = page.locator("[aria-live=polite]")
    expect(heard).to_contain_text("wind_speed forecast")

    before = shown(page)
    page.keyboard.press("+")
    assert shown(page) == pytest.approx(0.6 * before, rel=0.01)
    page.keyboard.press("0")
    assert shown(page) == pytest.approx(before)

    # What is opened next is elsewhere in time.
    page.keyboard.press("+")
    page.get_by_label(OPEN).set_input_files(write(tmp_path / "own.csv", rows=200))
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(charts(page).first).to_be_visible()
    assert shown(page) == pytest.approx(before)


def test_a_key_is_asked_for_once_and_can_be_forgotten(
    page: Page, guarded: Server, watch: Watch
) -> None:
    watch.allow(401)
    page.goto(guarded.url)
    dialog = page.get_by_role("dialog", name="API key")
    dialog.get_by_label("Key").fill("wrong")
    dialog.get_by_role("button", name="Use it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("refused")
    dialog.get_by_label("Key").fill(KEY)
    page.keyboard.press("Enter")
    expect(charts(page).first).to_be_visible()
    page.reload()
    expect(charts(page).first).to_be_visible()
    page.get_by_role("button", name="Key is set").click()
    dialog.get_by_role("button", name="Forget it").click()
    assert page.evaluate("sessionStorage.getItem('foretell.key')") == ""
    page.get_by_role("button", name="Key", exact=True).click()
    expect(dialog.get_by_label("Key")).to_have_value("")
    page.reload()
    expect(dialog).to_be_visible()


def test_what_a_former_key_was_refused_asks_for_none(page: Page, server: Server) -> None:
    code = """async (api) => {
      const [sent, asked] = [[], []];
      api.askBy(async (used) => asked.push(used) < 0);
      api.key.value = "former";
      window.fetch = async (_, { headers }) => {
        api.key.value = "newer";
        sent.push(headers.Authorization);
        return new Response("", { status: sent.length === 1 ? 401 : 200 });
      };
      await api.get("/models");
      return [sent, asked];
    }"""
    choose(page, server)
    sent = ["Bearer former", "Bearer newer"]
    assert Module(page, "api.js").evaluate(code) == [sent, []]


def test_a_forecast_of_another_series_is_not_shown(page: Page, server: Server) -> None:
    choose(page, server)
    rows = [f"{name},{TIMES[i]},{i},{cell}" for name, cell in ("a1", "bx") for i in range(99)]
    page.get_by_text("Paste rows").click()
    text = "\n".join(["id,time,temperature,wind_speed", *rows])
    page.get_by_label("Rows with a line of names").fill(text)
    page.get_by_role("button", name="Read them").click()
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(charts(page)).to_have_count(2)
    page.get_by_label("Series, of 2").select_option("b")
    expect(page.get_by_text("Not yet: row")).to_be_visible()
    expect(charts(page)).to_have_count(0)


def test_many_rows_are_not_in_the_document(page: Page, server: Server, tmp_path: Path) -> None:
    choose(page, server)
    page.get_by_text("Paste rows").click()
    text = Path(write(tmp_path / "own.csv", rows=200)).read_text()
    page.get_by_label("Rows with a line of names").fill(text)
    page.get_by_role("button", name="Read them").click()
    grid = page.get_by_role("grid", name="Rows")
    expect(grid).to_have_attribute("aria-rowcount", "201")
    expect(grid.get_by_role("gridcell", name="2024-03-09T07:00")).to_be_visible()
    assert grid.get_by_role("row").count() < 40
    grid.focus()
    page.keyboard.press("Control+Home")
    expect(grid.get_by_role("gridcell", name="2024-03-01T00:00")).to_be_visible()

    # What is being written is kept where its cell leaves the document, and so is the view.
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Row 1, time").fill("2024-02-29")
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    expect(grid.get_by_role("gridcell", name="2024-03-09T07:00")).to_be_visible()
    grid.focus()
    page.keyboard.press("Enter")
    first = page.get_by_role("textbox", name="Row 1, time")
    expect(first).to_have_value("2024-02-29")
    # It does not take the keyboard back from where it has been taken to.
    rows = page.get_by_label("Hold back the last rows")
    rows.click()
    expect(rows).to_be_focused()

    # Of fewer rows there is a last one.
    grid.focus()
    page.keyboard.press("Control+End")
    page.get_by_label("Rows with a line of names").fill("\n".join(text.split("\n")[:100]))
    page.get_by_role("button", name="Read them").click()
    expect(grid).to_have_attribute("aria-rowcount", "100")
    grid.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Row 99, wind_speed")).to_be_focused()


def test_rows_that_are_left_while_they_scroll(page: Page, server: Server, tmp_path: Path) -> None:
    choose(page, server)
    page.get_by_label(OPEN).set_input_files(write(tmp_path / "own.csv", rows=200))
    grid = page.get_by_role("grid", name="Rows").element_handle()
    view(page, "Use it")
    # As the browser does, in the frame after: `Watch` fails the test of an error.
    assert grid.evaluate("grid => !grid.isConnected && grid.dispatchEvent(new Event('scroll'))")


def test_what_charts_draw(module: Modules) -> None:
    card = {"channels": ["a", "b"], "targets": ["b"], "context": 2, "frequency": "h"}
    history = {
        "channels": ["a", "b"],
        "values": [[0, 1], [0, 2], [0, 3]],
        "timestamps": ["2024-03-01T00:00", "2024-03-01T01:00", "2024-03-01T02:00"],
        "actual": [[5], [9]],
    }
    forecast = {
        "mean_forecast": [[4], [6]],
        "quantiles": {
            "0.025": [[3], [3]],
            "0.1": [[4], [5]],
            "0.9": [[5], [7]],
            "0.975": [[8], [8]],
        },
    }
    answer = {"outputs": [{"content": [forecast]}]}
    panels = module("panels.js")
    asked = {"source": history, "card": card, "options": {}}
    made = panels.call("panelsOf", answer, asked)
    [panel] = made["panels"]
    assert [x - made["x"][0] for x in made["x"]] == [0, 3600, 7200, 10800, 14400]
    without = asked | {"source": history | {"timestamps": None}}
    assert panels.call("panelsOf", answer, without)["x"] == [1, 2, 3, 4, 5]
    assert panels.call("errorOf", panel) == {
        "mae": 2,
        "steps": 2,
        "held": [{"share": 0.95, "held": 1}, {"share": 0.8, "held": 1}],
    }
    drawn = panels.call("drawn", made, panel)
    # Lines of the forecast begin where the history ends.
    assert {one["label"]: one["values"] for one in drawn["series"]} == {
        "upper end of 95%": [None, None, 3, 8, 8],
        "lower end of 95%": [None, None, 3, 3, 3],
        "upper end of 80%": [None, None, 3, 5, 7],
        "lower end of 80%": [None, None, 3, 4, 5],
        "history": [1, 2, 3, None, None],
        "forecast": [None, None, 3, 4, 6],
        "actual": [None, None, None, 5, 9],
    }
    assert [band[:2] for band in drawn["bands"]] == [[0, 1], [2, 3]]
