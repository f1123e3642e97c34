"""A challenger forecasts the champion's requests once more, and is promoted if it is better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.bundle import serving
from tests.support import command
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until

CONTEXT, HORIZON, ORIGINS = 8, 4, 21 * 24
START = np.datetime64("2024-01-01T00:00")
# Version 2 repeats the last value. Version 1 adds features of the clock, which mean nothing here:
# they make errors 5% larger where the series moves little, and by nothing where it moves much.
CASES = {"better": (1.65, "2"), "equal": (300.0, "1")}


def series_at(truth: NDArray[np.float64], origin: int, count: int) -> dict[str, Any]:
    start = START + np.timedelta64(1, "h") * origin
    values = truth[origin : origin + count].tolist()
    return {"name": "a", "series": values, "start_timestamp": str(start)}


@pytest.mark.parametrize("case", CASES)
def test_challenger_is_promoted_by_what_came_true(tmp_path: Path, case: str) -> None:
    size, serves = CASES[case]
    models = tmp_path / "models"
    write_bundle(models, Spec(name="walk", version="1", with_calendar=True))
    write_bundle(models, Spec(name="walk", version="2"))
    command.done("promote", "walk@1", "--repository", models)
    command.done("challenge", "walk@2", "--share", "1", "--repository", models)
    truth = size * np.random.default_rng(0).normal(size=ORIGINS + CONTEXT + HORIZON).cumsum()
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with (
        Server(models, tmp_path / "log", ledger=ledger) as server,
        httpx.Client(base_url=server.url, timeout=60) as client,
    ):

        def post(path: str, series: dict[str, Any]) -> dict[str, Any]:
            answer = client.post(path, json={"model": "walk", "inputs": [series]})
            answer.raise_for_status()
            found: dict[str, Any] = answer.json()
            return found

        def forecasts_of_both() -> bool:
            lines = client.get("/metrics").text.splitlines()
            kept = [line for line in lines if line.startswith("foretell_ledger_forecasts_total{")]
            return sum(float(line.split()[-1]) for line in kept) >= 2 * ORIGINS

        for origin in range(ORIGINS):
            answer = post("/forecast", series_at(truth, origin, CONTEXT))
            assert answer["model_version"] == "1"
        until(forecasts_of_both)
        post("/actuals", series_at(truth, 0, len(truth)))
        options = ("--if-better", "--repository", models, "--url", server.url)
        if serves == "2":
            command.done("promote", "walk@2", *options)
        else:
            message = command.refused("promote", "walk@2", *options)
            assert "walk@2 is not promoted" in message
    assert serving.read(models, "walk").pin == serves
