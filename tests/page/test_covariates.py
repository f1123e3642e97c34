"""Covariates on the page: columns, fields, scenarios and importance."""

from __future__ import annotations

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, Response, expect

from tests.page.browser import Look, Watch, faults
from tests.page.models import CHANNELS, SHOP
from tests.page.person import charts, choose, example, open_csv, slide, view, with_parts
from tests.page.test_csv import Modules
from tests.page.test_use import run
from tests.support.process import Server

pytestmark = pytest.mark.browser
ROWS, STEPS = SHOP.context, SHOP.horizon
HEADER = ["time", "sales", "visits", "staff", "sale", "price", "open", "sky"]
FUTURE = HEADER[5:]


def lines(url: str, steps: int = STEPS) -> list[list[str]]:
    """A CSV of the example of `shop`, and of some steps of its future."""
    entry, _ = example(url, "shop")
    future = entry["future_covariates"]
    table = [HEADER]
    for row in range(ROWS + steps):
        past = [""] * 4
        if row < ROWS:
            values = dict(zip(entry["channels"], entry["series"][row], strict=True))
            staff = "few" if values["staff=few"] else "many"
            past = [values["sales"], values["visits"], staff, bool(values["sale"])]
        time = np.datetime64("2024-03-01T00:00") + np.timedelta64(row, "h")
        cells = [time, *past, *(future[name][row] for name in FUTURE)]
        table.append([str(cell) for cell in cells])
    return table


def days(rows: list[list[str]], number: int) -> list[list[str]]:
    """Rows of a day, repeated on later days."""
    day = np.timedelta64(1, "D")
    return [
        [str(np.datetime64(time) + later * day), *cells]
        for later in range(number)
        for time, *cells in rows
    ]


def go_to(grid: Locator, row: int, name: str) -> None:
    """Move to a cell by the keyboard; rows count from 0."""
    grid.focus()
    grid.press("Control+Home")
    for key, times in (("ArrowDown", row), ("ArrowRight", HEADER.index(name))):
        for _ in range(times):
            grid.press(key)


def paste(grid: Locator, text: str) -> None:
    """Paste cells of a spreadsheet."""
    code = """(grid, text) => {
      const clipboardData = new DataTransfer();
      clipboardData.setData("text", text);
      grid.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true }));
    }"""
    grid.evaluate(code, text)


@pytest.mark.parametrize("look", [Look(390, "dark"), Look(1280, "light")])
def test_two_futures_and_importance(page: Page, server: Server) -> None:
    page.goto(server.url)
    choose(page, "shop")
    page.get_by_label("region").select_option("north")
    page.get_by_role("button", name="Duplicate the future").click()
    grid = page.get_by_role("grid", name="Rows")
    expect(grid).to_have_attribute("aria-rowcount", str(1 + ROWS + STEPS))

    # A number, a checkbox and a category of the second scenario; then cells of a spreadsheet.
    go_to(grid, ROWS + 1, "price")
    page.keyboard.press("Enter")
    page.keyboard.type("51")
    page.keyboard.press("Enter")
    page.keyboard.press("ArrowRight")
    is_open = page.get_by_role("checkbox", name=f"Row {ROWS + 2}, open")
    expect(is_open).not_to_be_checked()
    page.keyboard.press("Space")
    expect(is_open).to_be_checked()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("F2")
    sky = page.get_by_label(f"Row {ROWS + 2}, sky")
    expect(sky.get_by_role("option")).to_have_text([with_parts("none"), "clear", "rain", "snow"])
    sky.select_option("snow")
    page.keyboard.press("Enter")
    go_to(grid, ROWS + 4, "price")
    with page.expect_response(lambda one: '"rain","clear"]}' in str(one.request.post_data)) as sale:
        paste(grid, "20\ttrue\train\n21\tfalse\tclear\n")
    grid.press("End")
    expect(page.locator(".changed").last).to_have_text("clear")
    assert not faults(page)

    [entry] = sale.value.request.post_data_json["inputs"]
    base = example(server.url, "shop")[0]["future_covariates"]
    assert entry["future_covariates"] == base
    assert entry["static_covariates"] == {"region": "north", "size": 2.5, "outdoors": False}
    assert entry["past_covariates"]["sale"] == [step % 5 == 0 for step in range(ROWS)]
    assert entry["channels"] == ["sales", "visits"]
    prices, opened, skies = (base[name][ROWS:] for name in FUTURE)
    prices[1], prices[4:] = 51, [20, 21]
    opened[1], opened[4:] = True, [True, False]
    skies[1], skies[4:] = "snow", ["rain", "clear"]
    changed = dict(zip(FUTURE, (prices, opened, skies), strict=True))
    assert entry["scenarios"] == [
        {"name": "scenario 1"},
        {"name": "scenario 2", "future_covariates": changed},
    ]
    [output] = sale.value.json()["outputs"]
    total = np.sum(output["content"][0]["scenarios"][1]["difference"])
    expect(page.get_by_role("list", name="Legend")).to_contain_text("forecast, scenario 2")
    words = f"Difference of scenario 2: +{total:.1f} in sum, +{total / STEPS:.2f} on average"
    expect(page.get_by_text(words)).to_be_visible()
    expect(charts(page)).to_have_attribute("aria-label", with_parts("difference of scenario 2"))
    page.get_by_text("Numbers of sales").click()
    numbers = page.get_by_role("region", name="Numbers of sales")
    expect(numbers.get_by_role("columnheader", name="scenario 2")).to_be_visible()

    with page.expect_response("**/forecast") as answered:
        page.get_by_label("Importance of each input").check()
    [output] = answered.value.json()["outputs"]
    found = sorted(output["content"][0]["importance"], key=lambda one: -one["change"][0])
    bars = page.get_by_role("region", name="Importance of each input").get_by_role("row")
    expect(bars).to_have_count(1 + len(found))
    expect(bars.nth(1)).to_contain_text(
        with_parts(found[0]["name"], f"{found[0]['change'][0]:.3g}")
    )
    expect(page.get_by_text("not what causes what")).to_be_visible()
    assert not faults(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= page.viewport_size["width"]

    page.get_by_role("button", name="Remove scenario 2").click()
    expect(page.get_by_role("list", name="Legend")).not_to_contain_text("scenario")


def test_future_of_a_csv_is_filled_in(page: Page, server: Server) -> None:
    page.goto(server.url)
    choose(page, "shop")
    table = lines(server.url, steps=STEPS - 2)
    table[ROWS + 1][7] = "hail"
    open_csv(page, table)
    expect(page.get_by_text("All 7 columns found by name.")).to_be_visible()
    problems = page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("6 missing values")
    expect(problems).to_contain_text("“hail” is not one of clear, rain, snow")
    send = page.get_by_role("button", name="Forecast", exact=True)
    expect(send).to_be_disabled()
    problems.get_by_role("button", name="hail").click()
    page.keyboard.press("Enter")
    page.get_by_label(f"Row {ROWS + 1}, sky").select_option("rain")
    page.keyboard.press("Enter")
    # Times go on after the last row.
    expect(page.get_by_role("gridcell", name="2024-03-02T05:00")).to_have_count(1)
    expect(page.get_by_text("Cannot forecast: no value for region.")).to_be_visible()
    page.get_by_label("region").select_option("other")
    page.get_by_label("size").fill("3")
    page.get_by_label("outdoors").check()
    problems.get_by_label("Fill with").select_option("ffill")
    with page.expect_response("**/forecast") as answered:
        send.click()
    [entry] = answered.value.request.post_data_json["inputs"]
    assert answered.value.ok
    assert entry["static_covariates"] == {"region": "other", "size": 3, "outdoors": True}
    assert len(entry["series"]) == ROWS
    assert entry["future_covariates"]["sky"][ROWS:] == [
        "rain",
        "clear",
        "clear",
        "clear",
        None,
        None,
    ]
    expect(charts(page)).to_have_count(1)


def test_errors_of_covariates_appear_at_their_cell_or_field(
    page: Page, server: Server, watch: Watch
) -> None:
    watch.allow(422)
    page.goto(server.url)
    choose(page, "shop")
    # A change of the table sends a request by itself.
    with page.expect_response("**/forecast"):
        page.get_by_role("button", name="Duplicate the future").click()
    page.get_by_role("button", name="Scenario 1").click()

    def refuse(param: str) -> None:
        error = {"code": "422", "message": f"no {param}", "param": param, "type": "invalid_input"}
        refused = {"status": 422, "json": {"error": error}}
        page.route("**/forecast", lambda route: route.fulfill(**refused), times=1)
        page.get_by_role("button", name="Forecast", exact=True).click()

    wrong = page.locator("[aria-invalid=true][role=gridcell]")
    problems = page.get_by_role("region", name="Problems")
    for param, row, column in (
        (f"inputs[0].future_covariates.sky[{ROWS + 1}]", ROWS + 2, "sky"),
        ("inputs[0].scenarios[1].future_covariates.price[2]", ROWS + 3, "price"),
        ("inputs[0].past_covariates.staff[0]", 1, "staff"),
    ):
        refuse(param)
        expect(problems).to_contain_text(f"no {param}")
        problems.get_by_role("button", name=f"Row {row}", exact=True).click()
        expect(wrong).to_have_attribute("title", f"no {param}")
        assert wrong.get_attribute("id") == f"cell-{row - 1}-{HEADER.index(column)}"
    refuse("inputs[0].scenarios[1].future_covariates.price[2]")
    expect(page.get_by_role("button", name="Scenario 1")).to_have_attribute("aria-pressed", "true")
    expect(wrong).to_have_count(0)
    refuse("inputs[0].static_covariates.region")
    field = page.get_by_label("region")
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(page.get_by_role("alert")).to_have_text("no inputs[0].static_covariates.region")
    refuse("options.importance")
    expect(page.get_by_role("region", name="Options")).to_contain_text("no options.importance")


def test_programs_and_backtests_have_covariates(page: Page, server: Server) -> None:
    page.goto(server.url)
    answer = choose(page, "shop")
    expected = answer["outputs"][0]["content"][0]["mean_forecast"]
    view(page, "Use it")
    for program in ("curl", "Python, pandas"):
        page.get_by_role("button", name=program).click()
        code = page.get_by_role("region", name=program).inner_text()
        assert f"{expected[0][0]:.4g}" in run(code, program), program
    page.get_by_role("button", name="Python, tritonclient").click()
    expect(page.get_by_text("This program sends no covariates")).to_be_visible()

    # A backtest reads the covariates of the rows alone.
    view(page, "Forecast")
    header, *rows = lines(server.url, 0)
    open_csv(page, [header, *days(rows, 2)])
    page.get_by_label("region").select_option("north")
    page.get_by_label("size").fill("3")
    page.get_by_label("Fill with").select_option("ffill")
    with page.expect_response("**/backtest") as answered:
        view(page, "Compare")
    assert answered.value.ok
    [entry] = answered.value.request.post_data_json["inputs"]
    assert {len(values) for values in entry["future_covariates"].values()} == {2 * ROWS}


def test_removal_of_wrong_numbers_keeps_covariates_that_are_partly_numbers(
    page: Page, server: Server
) -> None:
    page.goto(server.url)
    choose(page, "shop")
    table = lines(server.url)
    at = HEADER.index("open")
    opens = [row[at] == "True" for row in table[1:]]
    # Most cells are 0 or 1, and some are words.
    for number, row in enumerate(table[1:]):
        row[at] = str(opens[number]) if number % 4 == 1 else str(int(opens[number]))
    table[3][HEADER.index("sales")] = "x"
    open_csv(page, table)
    problems = page.get_by_role("region", name="Problems")
    expect(problems).to_contain_text("1 cell that is not a number")
    problems.get_by_role("button", name="Treat as missing").click()
    expect(problems).to_contain_text("1 missing value")
    page.get_by_label("region").select_option("north")
    page.get_by_label("size").fill("3")
    page.get_by_label("outdoors").check()
    problems.get_by_label("Fill with").select_option("ffill")
    with page.expect_response("**/forecast") as answered:
        page.get_by_role("button", name="Forecast", exact=True).click()
    [entry] = answered.value.request.post_data_json["inputs"]
    assert entry["future_covariates"]["open"] == opens
    assert entry["series"][2][0] is None


def test_backtests_of_models_with_and_without_covariates_have_the_same_origins(
    page: Page, server: Server
) -> None:
    page.goto(server.url)
    choose(page, "shop")
    header, *rows = lines(server.url)
    table = days(rows[:ROWS], 3)
    for row in table:
        row += ["1.5", "2"]
    # The rows after the history have future covariates alone.
    table += [[*row, "", ""] for row in days(rows, 3)[-STEPS:]]
    open_csv(page, [[*header, *CHANNELS], *table])
    page.get_by_label("region").select_option("north")
    page.get_by_label("size").fill("3")
    slide(page, "Horizon", 4)
    answers: list[Response] = []
    page.on("response", lambda answer: answers.append(answer))
    view(page, "Compare")
    errors = page.get_by_role("region", name="Errors by channel")
    expect(errors.get_by_role("columnheader", name="patchtst")).to_be_visible()
    expect(errors.get_by_role("columnheader", name="autoformer")).to_be_visible()
    # There are 72 rows: patchtst reads 48, and shop reads covariates of 6 after the last origin.
    expect(page.get_by_text("Forecasts from 5 origins")).to_be_visible()
    backtests = [answer for answer in answers if answer.url.endswith("/backtest")]
    assert len(backtests) == 3
    for answer in backtests:
        [content] = answer.json()["outputs"][0]["content"]
        ends = content["first_origin"], content["last_origin"]
        assert (content["origins"], *ends) == (5, "2024-03-03T02:00:00", "2024-03-03T18:00:00")


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("number", "1,5", "undefined"),
        ("number", "2.5", 2.5),
        ("boolean", "True", True),
        ("boolean", "0", False),
        ("boolean", "", None),
        ("boolean", "maybe", "undefined"),
        ("category", "none", "none"),
        ("category", "sun", "undefined"),
        ("category", "NA", None),
    ],
)
def test_text_is_a_value_of_its_type(module: Modules, kind: str, text: str, value: object) -> None:
    code = """(module, given) => {
      const found = module.valueOf(...given);
      return found === undefined ? "undefined" : found;
    }"""
    categories = ["none", "rain"] if kind == "category" else []
    covariate = {"type": kind, "categories": categories, "other": False}
    assert module("covariates.js").evaluate(code, [covariate, text]) == value


def test_bars_are_sorted_and_those_without_a_change_come_last(module: Modules) -> None:
    changes = {"a": [1.0, 4.0], "b": [None, None], "c": [2.0, 1.0]}
    importance = [
        {"name": name, "kind": "channel", "change": change, "relative": change}
        for name, change in changes.items()
    ]
    bars = module("importance.js").call("barsOf", importance, 0)
    assert [(bar["name"], bar["share"]) for bar in bars] == [("c", 1), ("a", 0.5), ("b", 0)]
    single = [one | {"change": one["change"][1], "relative": None} for one in importance]
    assert module("importance.js").call("barsOf", single, 0)[0]["change"] == 4
