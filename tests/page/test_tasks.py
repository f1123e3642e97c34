"""Five tasks of a user, each with one size and colour scheme.

`make page-pictures` runs them with the models of the demo, and keeps pictures for the docs.
"""

from __future__ import annotations

import re

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.page.browser import Look, faults
from tests.page.person import (
    charts,
    choose,
    csv_of,
    example,
    longer,
    open_csv,
    picture,
    sent,
    slide,
    view,
    with_parts,
)
from tests.support.process import Server

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("look", [Look(390, "dark"), Look(1280, "light")])
def test_forecast_the_example(page: Page, server: Server) -> None:
    requests = sent(page)
    page.goto(server.url)
    expect(charts(page).first).to_be_visible()
    choose(page, "patchtst")
    # One forecast of each model's own example.
    assert [body["model"] for body in requests] == ["autoformer@1", "patchtst@1"]
    series, actual = example(server.url, "patchtst")
    expect(charts(page)).to_have_count(len(series["channels"]))
    picture(page, "forecast", "Forecast" if page.viewport_size["width"] < 600 else "")
    first = series["channels"][0]
    hours = len(actual)
    expect(charts(page).first).to_have_attribute(
        "aria-label", with_parts("forecast", f"over {hours} hours; 95% interval", "actual")
    )
    page.get_by_text(f"Numbers of {first}").click()
    table = page.get_by_role("region", name=f"Numbers of {first}")
    rows = table.get_by_role("row")
    expect(rows).to_have_count(1 + hours)
    request = {"model": "patchtst", "inputs": [series]}
    [output] = httpx.post(f"{server.url}/forecast", json=request).json()["outputs"]
    expected = output["content"][0]["mean_forecast"]
    cells = rows.nth(1).get_by_role("cell").all_inner_texts()
    assert float(cells[0]) == pytest.approx(expected[0][0], rel=1e-2)
    assert float(cells[-1]) == pytest.approx(actual[0][0], rel=1e-2)

    slide(page, "Interval", 70)
    slide(page, "Horizon", hours + 2)
    expect(page.get_by_text(f"Steps from {hours + 1} on are forecast from")).to_be_visible()
    expect(charts(page).first).to_have_attribute(
        "aria-label", with_parts(f"over {hours + 2} hours; 70% interval")
    )
    assert requests[-1]["options"] == {"horizon": hours + 2, "quantiles": [0.15, 0.85]}
    expect(rows).to_have_count(3 + hours)
    expect(table.get_by_role("columnheader", name="70% to")).to_be_visible()
    page.get_by_role("button", name=series["channels"][1]).click()
    expect(charts(page)).to_have_count(len(series["channels"]) - 1)
    assert not faults(page)


def test_forecast_a_csv_with_a_gap_and_a_wrong_cell(page: Page, server: Server) -> None:
    series, _ = example(server.url, "patchtst")
    known = longer(series, 2 * len(series["series"]))
    lines = csv_of(known)
    right, lines[-15][1] = lines[-15][1], "12.x"
    gap = lines.pop(-25)
    page.goto(server.url)
    choose(page, "patchtst")
    requests = sent(page)
    open_csv(page, lines)

    wrong = page.get_by_role("region", name="Problems")
    send = page.get_by_role("button", name="Forecast", exact=True)
    expect(wrong).to_contain_text("1 gap")
    expect(wrong).to_contain_text("12.x")
    expect(send).to_be_disabled()
    assert not faults(page)
    picture(page, "own")

    wrong.get_by_role("button", name="Insert the missing rows").click()
    wrong.get_by_role("button", name="12.x").click()
    expect(page.get_by_role("grid", name="Rows")).to_be_focused()
    expect(page.get_by_role("gridcell", name="12.x")).to_have_attribute("aria-invalid", "true")
    page.keyboard.press("Enter")
    page.keyboard.type(right)
    page.keyboard.press("Enter")
    expect(page.get_by_text(with_parts("Cannot forecast: row", "no value."))).to_be_visible()
    wrong.get_by_label("Fill with").select_option("interpolate")
    assert not requests
    # The forecast is compared with the rows held back.
    page.get_by_role("button", name="The last 12").click()
    with page.expect_response("**/forecast") as answered:
        send.click()
    body = answered.value.request.post_data_json
    [history] = body["inputs"]
    place = known["timestamps"].index(gap[0])
    expected = [list(row) for row in known["series"]]
    expected[place] = [None] * len(series["channels"])
    assert history["series"] == expected[:-12][-len(history["series"]) :]
    assert body["options"]["missing"] == "interpolate"
    expect(page.get_by_text("2 missing values", exact=True)).to_be_visible()
    expect(page.get_by_text("of 12 in 95%").first).to_be_visible()
    expect(charts(page)).to_have_count(len(series["channels"]))


@pytest.mark.parametrize("look", [Look(390, "dark")])
def test_find_the_strongest_lag_of_the_autoformer(page: Page, server: Server) -> None:
    page.goto(server.url)
    choose(page, "autoformer")
    # The two days differ a little; otherwise lag 0 would be as strong as a lag of one day.
    series, _ = example(server.url, "autoformer")
    series["series"][-5][0] += 3
    open_csv(page, csv_of(series))
    view(page, "Why")
    summary = page.get_by_text("Strongest lag")
    expect(summary).to_be_visible()
    picture(page, "why")

    stage = page.get_by_label("Stage").input_value()
    attention = {"stages": [stage], "heads": "mean"}
    request = {"model": "autoformer", "inputs": [series], "options": {"attention": attention}}
    [output] = httpx.post(f"{server.url}/forecast", json=request).json()["outputs"]
    [found] = output["content"][0]["attention"]
    weights = dict(zip(found["lags"], found["lag_weights"], strict=True))
    table = page.get_by_role("region", name="Lags by weight")
    expect(table.get_by_role("row")).to_have_count(1 + len(weights))
    expect(page.locator(".lags .bar")).to_have_count(len(weights))
    # The summary leaves lag 0 out.
    weights.pop(0, None)
    [share] = re.findall(r"([\d.]+)% of the weight", summary.inner_text())
    assert float(share) == pytest.approx(100 * max(weights.values()), abs=0.1)
    assert f"{max(weights, key=weights.__getitem__)} steps" in summary.inner_text()
    expect(table).to_contain_text("1 day")
    # The map is visible as well.
    expect(page.locator(".heatmap canvas")).to_be_visible()
    expect(page.get_by_label("Head")).to_have_count(0)
    assert not faults(page)


def test_compare_two_models(page: Page, server: Server) -> None:
    series = longer(example(server.url, "patchtst")[0], rows=240)
    models, options = ("patchtst", "autoformer"), {"quantiles": [0.1, 0.9]}
    requests = sent(page, "/backtest")
    page.goto(server.url)
    choose(page, "patchtst")
    open_csv(page, csv_of(series))
    view(page, "Compare")
    table = page.get_by_role("table", name="MAE by channel")
    columns = [*models, "last value", "last 24 steps"]
    for model in models:
        expect(page.get_by_role("checkbox", name=model)).to_be_checked()
    expect(table.get_by_role("columnheader")).to_have_count(5 + ("transformer" in page.content()))
    picture(page, "compare", "Backtest")

    content = []
    for model in models:
        request = {"model": model, "inputs": [series], "options": options}
        answer = httpx.post(f"{server.url}/backtest", json=request).raise_for_status().json()
        content.append(answer["outputs"][0]["content"][0]["channels"][0])
    expected = [each["mae"] for each in content]
    expected += [content[0][name]["mae"] for name in ("last_value", "seasonal_naive")]
    first = series["channels"][0]
    errors = page.get_by_role("region", name="Errors by channel")

    def cells_by_model() -> dict[str, str]:
        headers = errors.get_by_role("columnheader").all_text_contents()
        names = [header.strip() for header in headers[1:]]
        cells = errors.get_by_role("row", name=first).get_by_role("cell").all_inner_texts()
        return dict(zip(names, cells, strict=True))

    cells = cells_by_model()
    shown = [float(re.sub(r"[^\d.]", "", cells[name])) for name in columns]
    assert shown == pytest.approx(expected, rel=1e-2)
    assert ["best" in cells[name] for name in columns] == [one == min(shown) for one in shown]

    page.get_by_label("Metric").select_option("coverage")
    held = cells_by_model()
    found = [float(held[model].split()[-1].rstrip("%")) / 100 for model in models]
    wanted = [each["intervals"][0]["coverage"] for each in content]
    assert found == pytest.approx(wanted, abs=0.001)
    page.get_by_label("Errors per step of").select_option(first)
    label = page.locator(".chart").last.get_attribute("aria-label")
    assert label is not None
    step = float(label.split("patchtst ")[1].split()[0])
    assert step == pytest.approx(content[0]["steps"]["mae"][0], rel=0.01)
    expect(page.get_by_role("list", name="Legend")).to_contain_text("last season, all steps")
    page.get_by_label("Origins").fill("2")
    page.get_by_label("Origins").blur()
    expect(page.get_by_text("Forecasts from 2 origins, 12 steps apart")).to_be_visible()
    expect(errors.get_by_role("columnheader")).to_have_count(5)
    before = len(requests)
    page.get_by_role("checkbox", name="autoformer").uncheck()
    expect(errors.get_by_role("columnheader")).to_have_count(4)
    # Known results are not requested again.
    assert len(requests) == before >= 4
    # The keyboard moves the cursor.
    page.get_by_role("group", name="Charts").press("ArrowRight")
    expect(page.get_by_role("figure").first).to_contain_text("patchtst ")
    assert not faults(page)


def tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with this name has the focus."""
    labels = "[...(document.activeElement.labels ?? [])].map((one) => one.textContent).join()"
    own = "document.activeElement.ariaLabel ?? document.activeElement.textContent"
    for _ in range(80):
        page.keyboard.press("Tab")
        if name in page.evaluate(f"({labels}) || ({own})"):
            return
    raise AssertionError(f"Tab does not reach {name}")


def shown(page: Page) -> float:
    """Number of hours in the charts."""
    code = """async () => {
      const { group } = await import(new URL("page/plots.js", document.baseURI));
      const [{ scales }] = group.charts;
      return (scales.x.max - scales.x.min) / 3600;
    }"""
    return float(page.evaluate(code))


def test_forecast_by_the_keyboard_alone(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(charts(page).first).to_be_visible()
    for key in ("Tab", "Enter", "Tab"):
        page.keyboard.press(key)
    # The first link skips to the content.
    assert page.evaluate("document.activeElement.closest('main') !== null")
    page.reload()
    expect(charts(page).first).to_be_visible()
    tab_to(page, "Model")
    with page.expect_response("**/forecast"):
        page.keyboard.press("p")
    expect(page.get_by_role("combobox", name="Model")).to_have_value("patchtst")

    tab_to(page, "Charts")
    cursor = page.locator(".readout").first
    page.keyboard.press("ArrowRight")
    expect(cursor).to_contain_text("2024-03-03 11:00: forecast")
    page.keyboard.press("ArrowLeft")
    expect(cursor).to_contain_text("2024-03-03 10:00: forecast")
    expect(page.locator("[aria-live=polite]")).to_contain_text("wind_speed forecast")
    before = shown(page)
    page.keyboard.press("+")
    assert shown(page) == pytest.approx(0.6 * before, rel=0.01)
    page.keyboard.press("0")
    assert shown(page) == pytest.approx(before)
    # New data reset the zoom.
    page.keyboard.press("+")
    open_csv(page, csv_of(longer(example(server.url, "patchtst")[0], 200)))
    page.get_by_role("button", name="Forecast", exact=True).click()
    expect(charts(page).first).to_be_visible()
    assert shown(page) == pytest.approx(before)

    page.get_by_role("combobox", name="Model").focus()
    tab_to(page, "Example")
    with page.expect_response("**/forecast"):
        page.keyboard.press("Enter")
    tab_to(page, "Horizon")
    with page.expect_request(lambda sent: '"horizon":2,' in str(sent.post_data)):
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
    tab_to(page, "Forecast")
    with page.expect_response("**/forecast"):
        page.keyboard.press("Enter")
