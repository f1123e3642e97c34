"""The view Forecast: late answers, errors at their places, and the table of rows."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

from tests.page.browser import Module, Watch
from tests.page.models import CONTEXT
from tests.page.person import charts, open_csv, slide, view
from tests.support.process import Server

pytestmark = pytest.mark.browser
TIMES = np.datetime64("2024-03-01T00:00") + np.arange(200) * np.timedelta64(1, "h")


def lines(rows: int = CONTEXT) -> list[list[str]]:
    """A CSV for the model `patchtst`."""
    table = [[str(TIMES[i]), str(15 + i % 24), str(i % 5)] for i in range(rows)]
    return [["time", "temperature", "wind_speed"], *table]


def paste(page: Page, table: list[list[str]]) -> None:
    """Paste rows into the page."""
    given = page.get_by_label("Rows below a line of column names")
    if not given.is_visible():
        page.get_by_text("Paste rows").click()
    given.fill("\n".join(",".join(line) for line in table))
    page.get_by_role("button", name="Read rows").click()


def choose(page: Page, server: Server, model: str = "patchtst") -> None:
    heading = page.get_by_role("heading", level=2, name="Forecast")
    page.goto(server.url)
    expect(heading).to_be_visible()
    with page.expect_response("**/forecast"):
        page.get_by_role("combobox", name="Model").select_option(model)
    expect(heading).to_be_visible()


def test_modules_are_preloaded(page: Page, server: Server) -> None:
    choose(page, server)
    loaded, named = page.evaluate("""() => [
      performance.getEntriesByType("resource").map(({ name }) => name),
      [...document.querySelectorAll("[rel=modulepreload], script[src]")].map(
        (one) => one.href || one.src,
      ),
    ]""")
    assert {url for url in loaded if url.endswith("js")} == set(named)


def test_late_answer_for_earlier_data_is_dropped(page: Page, server: Server) -> None:
    choose(page, server)
    held: list[Route] = []
    page.route("**/forecast", lambda route: held.append(route))
    page.get_by_role("button", name="Forecast", exact=True).click()
    open_csv(page, lines())
    expect(page.get_by_text("All 2 channels found by name.")).to_be_visible()
    with page.expect_response("**/forecast"):
        held[0].continue_()
    page.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 50))")
    expect(page.get_by_role("heading", level=2, name="Forecast")).to_be_hidden()


def test_last_of_several_chosen_models_wins(page: Page, server: Server, watch: Watch) -> None:
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


def test_error_is_kept_when_an_earlier_request_succeeds(
    page: Page, server: Server, watch: Watch
) -> None:
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
    plots = page.get_by_role("region", name="Forecast")
    expect(plots).to_have_attribute("aria-busy", "true")
    with page.expect_response("**/forecast"):
        held[0].continue_()
    expect(plots).to_have_attribute("aria-busy", "false")
    expect(alert).to_be_visible()
    page.unroute("**/forecast")
    with page.expect_response("**/forecast"):
        slide(page, "Horizon", 6)
    expect(alert).to_be_hidden()


def test_errors_of_the_api_appear_at_their_field(page: Page, server: Server, watch: Watch) -> None:
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

    controls = page.get_by_role("region", name="Options")
    refuse("options.horizon")
    expect(controls.get_by_text("no options.horizon")).to_be_visible()
    refuse("inputs[0].series[2][1]")
    problems = page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("no inputs[0].series[2][1]")
    problems.get_by_role("button", name="Row 3").click()
    wrong = page.locator("[aria-invalid=true][role=gridcell]")
    expect(wrong).to_have_attribute("title", "no inputs[0].series[2][1]")
    assert wrong.get_attribute("id") == "cell-2-2"
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(problems).to_be_hidden()


def test_request_with_an_old_key_is_repeated_without_a_prompt(page: Page, server: Server) -> None:
    code = """async (api) => {
      const [sent, prompts] = [[], []];
      api.setKeyPrompt(async (used) => prompts.push(used) < 0);
      api.key.value = "former";
      window.fetch = async (_, { headers }) => {
        api.key.value = "newer";
        sent.push(headers.Authorization);
        return new Response("", { status: sent.length === 1 ? 401 : 200 });
      };
      await api.get("/models");
      return [sent, prompts];
    }"""
    choose(page, server)
    sent = ["Bearer former", "Bearer newer"]
    assert Module(page, "api.js").evaluate(code) == [sent, []]


def test_forecast_of_another_series_is_hidden(page: Page, server: Server) -> None:
    choose(page, server)
    rows = [[name, *line[:2], cell] for name, cell in ("a1", "bx") for line in lines(99)[1:]]
    paste(page, [["id", "time", "temperature", "wind_speed"], *rows])
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(charts(page)).to_have_count(2)
    page.get_by_label("Series (2)").select_option("b")
    expect(page.get_by_text("Cannot forecast: row")).to_be_visible()
    expect(charts(page)).to_have_count(0)


def test_table_renders_only_visible_rows(page: Page, server: Server) -> None:
    choose(page, server)
    paste(page, lines(200))
    grid = page.get_by_role("grid", name="Rows")
    expect(grid).to_have_attribute("aria-rowcount", "201")
    expect(grid.get_by_role("gridcell", name="2024-03-09T07:00")).to_be_visible()
    assert grid.get_by_role("row").count() < 40
    grid.focus()
    page.keyboard.press("Control+Home")
    expect(grid.get_by_role("gridcell", name="2024-03-01T00:00")).to_be_visible()

    # An edit is kept when its cell is scrolled out of the document.
    page.keyboard.press("Enter")
    page.get_by_role("textbox", name="Row 1, time").fill("2024-02-29")
    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")
    expect(grid.get_by_role("gridcell", name="2024-03-09T07:00")).to_be_visible()
    grid.focus()
    page.keyboard.press("Enter")
    first = page.get_by_role("textbox", name="Row 1, time")
    expect(first).to_have_value("2024-02-29")
    # Closing the edit does not take the focus back.
    rows = page.get_by_label("Hold back the last rows")
    rows.click()
    expect(rows).to_be_focused()

    # The active cell moves to the last row of a shorter table.
    grid.focus()
    page.keyboard.press("Control+End")
    paste(page, lines(99))
    expect(grid).to_have_attribute("aria-rowcount", "100")
    grid.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Row 99, wind_speed")).to_be_focused()


def test_scroll_event_after_the_view_is_closed_is_ignored(page: Page, server: Server) -> None:
    choose(page, server)
    open_csv(page, lines(200))
    grid = page.get_by_role("grid", name="Rows").element_handle()
    view(page, "Use it")
    # The browser sends it in the next frame; `Watch` fails the test if there is an error.
    assert grid.evaluate("grid => !grid.isConnected && grid.dispatchEvent(new Event('scroll'))")
