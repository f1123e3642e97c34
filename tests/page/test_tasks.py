"""What a person comes for, on a phone in the dark and at a desk in the light.

`make page-pictures` has it done with the models of the demo, and keeps pictures for the docs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import httpx
import pytest
from playwright.sync_api import Page, expect

from tests.page.axe import faults
from tests.page.browser import Look, Watch
from tests.page.conftest import KEY, PREFIX
from tests.page.person import charts, choose, csv_of, example, longer, open_csv, view
from tests.page.pictures import picture
from tests.support.process import Server

pytestmark = pytest.mark.parametrize("look", [Look(390, "dark"), Look(1280, "light")])


def test_forecast_the_example(page: Page, server: Server) -> None:
    page.goto(server.url)
    choose(page, "patchtst")
    series, actual = example(server.url, "patchtst")
    expect(charts(page)).to_have_count(len(series["channels"]))
    picture(page, "forecast", "What is to come" if page.viewport_size["width"] < 600 else "")

    first = series["channels"][0]
    page.get_by_text(f"Numbers of {first}").click()
    rows = page.get_by_role("region", name=f"Numbers of {first}").get_by_role("row")
    expect(rows).to_have_count(1 + len(actual))
    request = {"model": "patchtst", "inputs": [series]}
    [output] = httpx.post(f"{server.url}/forecast", json=request).json()["outputs"]
    expected = output["content"][0]["mean_forecast"]
    cells = rows.nth(1).get_by_role("cell").all_inner_texts()
    assert float(cells[0]) == pytest.approx(expected[0][0], rel=1e-2)
    assert float(cells[-1]) == pytest.approx(actual[0][0], rel=1e-2)
    assert not faults(page)


def test_forecast_an_own_table_with_a_gap_and_a_wrong_cell(page: Page, server: Server) -> None:
    series, _ = example(server.url, "patchtst")
    lines = csv_of(series)
    right, lines[-10][1] = lines[-10][1], "12.x"
    gap = lines.pop(-20)
    page.goto(server.url)
    choose(page, "patchtst")
    open_csv(page, lines)

    wrong = page.get_by_role("region", name="To look at before it is forecast")
    send = page.get_by_role("button", name="Forecast", exact=True)
    expect(wrong).to_contain_text("1 gap")
    expect(wrong).to_contain_text("12.x")
    expect(send).to_be_disabled()
    assert not faults(page)
    picture(page, "own")

    wrong.get_by_role("button", name="Insert the missing rows").click()
    wrong.get_by_role("button", name="12.x").click()
    expect(page.get_by_role("grid", name="Rows")).to_be_focused()
    page.keyboard.press("Enter")
    page.keyboard.type(right)
    page.keyboard.press("Enter")
    wrong.get_by_label("Fill with").select_option("interpolate")
    with page.expect_response("**/forecast") as answered:
        send.click()
    [sent] = answered.value.request.post_data_json["inputs"]
    place = series["timestamps"].index(gap[0])
    expected = [list(row) for row in series["series"]]
    expected[place] = [None] * len(series["channels"])
    assert sent["series"] == expected[-len(sent["series"]) :]
    assert answered.value.status == 200
    expect(charts(page)).to_have_count(len(series["channels"]))


def test_find_the_strongest_lag_of_the_autoformer(page: Page, server: Server) -> None:
    page.goto(server.url)
    choose(page, "autoformer")
    # Two days that are not quite the same, else the lag of none were as strong as that of one.
    series, _ = example(server.url, "autoformer")
    series["series"][-5][0] += 3
    open_csv(page, csv_of(series))
    view(page, "Why")
    said = page.get_by_text("Strongest lag")
    expect(said).to_be_visible()
    picture(page, "why")

    stage = page.get_by_label("Stage").input_value()
    attention = {"stages": [stage], "heads": "mean"}
    request = {"model": "autoformer", "inputs": [series], "options": {"attention": attention}}
    [output] = httpx.post(f"{server.url}/forecast", json=request).json()["outputs"]
    [found] = output["content"][0]["attention"]
    weights = dict(zip(found["lags"], found["lag_weights"], strict=True))
    # What happens at the same time is no lag to speak of.
    weights.pop(0, None)
    [share] = re.findall(r"([\d.]+)% of the weight", said.inner_text())
    assert float(share) == pytest.approx(100 * max(weights.values()), abs=0.1)
    assert f"{max(weights, key=weights.__getitem__)} steps" in said.inner_text()
    expect(page.get_by_role("region", name="Lags by weight")).to_contain_text("1 day")


def test_compare_two_models(page: Page, server: Server) -> None:
    series = longer(example(server.url, "patchtst")[0], rows=240)
    page.goto(server.url)
    choose(page, "patchtst")
    open_csv(page, csv_of(series))
    view(page, "Compare")
    expect(page.get_by_role("checkbox", name="patchtst")).to_be_checked()
    expect(page.get_by_role("checkbox", name="autoformer")).to_be_checked()
    table = page.get_by_role("table", name="MAE by channel")
    expect(table.get_by_role("columnheader")).to_have_count(5 + ("transformer" in page.content()))
    picture(page, "compare", "Backtest")

    first = series["channels"][0]
    cells = table.get_by_role("row", name=first).get_by_role("cell").all_inner_texts()
    shown = [float(re.sub(r"[^\d.]", "", cell)) for cell in cells]
    for place, model in enumerate(("patchtst", "autoformer")):
        request = {"model": model, "inputs": [series]}
        [output] = httpx.post(f"{server.url}/backtest", json=request).json()["outputs"]
        [content] = output["content"]
        assert shown[place] == pytest.approx(content["channels"][0]["mae"], rel=1e-2)
    assert ["best" in cell for cell in cells] == [one == min(shown) for one in shown]


def test_copy_the_request_and_send_it(page: Page, watch: Watch, guarded: Server) -> None:
    watch.allow(401)
    page.goto(f"{guarded.url}{PREFIX}/")
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_role("button", name="Use it").click()
    [output] = choose(page, "patchtst")["outputs"]
    expected = output["content"][0]["mean_forecast"]
    view(page, "Use it")
    programs = page.get_by_role("group", name="Program").get_by_role("button")
    for program in programs.all():
        program.click()
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Copied.")
        code = page.evaluate("navigator.clipboard.readText()")
        assert KEY not in code
        assert PREFIX in code
        printed = run(program.inner_text(), code)
        assert f"{expected[0][0]:.3g}" in printed, printed


def run(program: str, code: str) -> str:
    """What a program prints."""
    command = ["bash", "-c"] if program == "curl" else [sys.executable, "-c"]
    done = subprocess.run(
        [*command, code],
        env={**os.environ, "FORETELL_KEY": KEY},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, f"{program}: {done.stderr}"
    return done.stdout


def tab_to(page: Page, name: str) -> None:
    """Press Tab until what has this name has the keyboard."""
    labels = "[...(document.activeElement.labels ?? [])].map((one) => one.textContent).join()"
    own = "document.activeElement.ariaLabel ?? document.activeElement.textContent"
    for _ in range(80):
        page.keyboard.press("Tab")
        if name in page.evaluate(f"({labels}) || ({own})"):
            return
    raise AssertionError(f"no way to {name} by the keyboard")


def test_forecast_by_the_keyboard_alone(page: Page, server: Server) -> None:
    page.goto(server.url)
    expect(charts(page).first).to_be_visible()
    tab_to(page, "Model")
    with page.expect_response("**/forecast"):
        page.keyboard.press("p")
    expect(page.get_by_role("combobox", name="Model")).to_have_value("patchtst")
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
    tab_to(page, "Charts")
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_text(re.compile(r": \w+ forecast [\d.]+"))).to_be_attached()
