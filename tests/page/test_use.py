"""The view Use it: programs that send a request, answers as files."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.page.browser import Module, Watch
from tests.page.conftest import KEY, PREFIX
from tests.page.person import choose, view
from tests.page.test_csv import Modules
from tests.support.process import Server

pytestmark = pytest.mark.browser
NAMES = ["curl", "Python, httpx", "Python, pandas", "Python, tritonclient"]
ROWS = [[20 + i % 5, i % 3] for i in range(48)]


def request(model: str, **options: Any) -> dict[str, Any]:
    times = [f"2024-03-{1 + i // 24:02}T{i % 24:02}:00:00" for i in range(48)]
    history = {
        "name": "it's",
        "channels": ["temperature", "wind_speed"],
        "series": ROWS,
        "timestamps": times,
    }
    return {"model": f"{model}@1", "inputs": [history], "options": {"horizon": 12} | options}


def samples(module: Modules, server: Server, body: Any, **card: Any) -> Any:
    known = {
        "channels": ["temperature", "wind_speed"],
        "targets": ["temperature", "wind_speed"],
        "context": 48,
        "horizon": 12,
        "frequency": "h",
        "needs_timestamps": False,
    }
    made = module("samples.js").call("samples", body, server.url, False, known | card)
    assert [one["name"] for one in made] == NAMES
    return {one["name"]: one for one in made}


def run(code: str, program: str) -> str:
    done = subprocess.run(
        "bash" if program == "curl" else sys.executable,
        input=code,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=os.environ | {"FORETELL_KEY": KEY},
    )
    assert not done.returncode, done.stderr
    return done.stdout


def test_curl_sends_a_long_request(module: Modules, server: Server) -> None:
    body = request("patchtst")
    body["inputs"][0]["series"] = ROWS * 500
    body["inputs"][0].pop("timestamps")
    output = run(samples(module, server, body)["curl"]["code"], "curl")
    assert "mean_forecast" in output


def test_missing_values_are_literals_of_the_language(module: Modules, server: Server) -> None:
    body = request("patchtst", missing="ffill", quantiles=[0.1, 0.9])
    body["inputs"][0]["series"] = [*ROWS[:-1], [None, 1]]
    body["inputs"][0]["name"] = "null and 'true'"
    made = samples(module, server, body)
    assert "forecast" in run(made["curl"]["code"], "curl")
    assert run(made["Python, httpx"]["code"], "python").startswith("[[")
    assert "code" not in made["Python, tritonclient"]
    assert "does not fill missing values" in made["Python, tritonclient"]["note"]


def test_pandas_program_sends_the_time_zone(module: Modules, server: Server) -> None:
    body = request("autoformer")
    body["inputs"][0]["time_zone"] = "Europe/Berlin"
    made = samples(module, server, body, needs_timestamps=True)
    assert "2024-03-03 00:00:00+01:00" in run(made["Python, pandas"]["code"], "python")


def test_note_names_what_the_protocol_lacks(module: Modules, server: Server) -> None:
    calendar = samples(module, server, request("autoformer"), needs_timestamps=True)
    assert "calendar" in calendar["Python, tritonclient"]["note"]
    longer = samples(module, server, request("patchtst", horizon=20))["Python, tritonclient"]
    assert "12 steps" in longer["note"]
    assert "code" in longer


def test_answer_as_csv(module: Modules) -> None:
    forecast = {
        "mean_forecast": [[1.5, 2], [3, 4]],
        "quantiles": {"0.1": [[1, 1], [1, 1]], "0.9": [[5, 5], [5, 5]]},
        "timestamps": ["2024-03-01T00:00:00", "2024-03-01T01:00:00"],
    }
    answer = {"outputs": [{"content": [forecast]}]}
    code = "(module, [answer, targets]) => module.csvOf(answer, targets, {})"
    table: Module = module("downloads.js")
    assert table.evaluate(code, [answer, ["a", 'b "c"']]).splitlines() == [
        'time,a,a_q0.1,a_q0.9,"b ""c""","b ""c""_q0.1","b ""c""_q0.9"',
        "2024-03-01T00:00:00,1.5,1,5,2,1,5",
        "2024-03-01T01:00:00,3,1,5,4,1,5",
    ]


def test_copied_programs_return_the_forecast(page: Page, watch: Watch, guarded: Server) -> None:
    watch.allow(401)
    page.goto(f"{guarded.url}{PREFIX}/")
    page.get_by_label("Key", exact=True).fill(KEY)
    page.get_by_role("button", name="Use key").click()
    [output] = choose(page, "patchtst")["outputs"]
    expected = output["content"][0]["mean_forecast"]
    view(page, "Use it")
    programs = page.get_by_role("group", name="Program").get_by_role("button")
    expect(programs).to_have_text(NAMES)
    for program in programs.all():
        program.click()
        page.get_by_role("button", name="Copy", exact=True).click()
        expect(page.get_by_role("status")).to_have_text("Copied.")
        code = page.evaluate("navigator.clipboard.readText()")
        assert KEY not in code
        assert PREFIX in code
        printed = run(code, program.inner_text())
        assert f"{expected[0][0]:.3g}" in printed, printed
