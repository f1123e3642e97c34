"""Quantiles by offsets that the bundle stores, and corrected by errors on the request's rows."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foretell.service.arrays import Arrays
from foretell.service.engine.recalibration import stride_of
from foretell.service.errors import DeadlineExceededError
from foretell.service.forecast.job import decode
from foretell.service.forecast.parse import parse
from tests.service.client import Client
from tests.service.forecast.bodies import EIGHT, body, notes_of, table_of
from tests.service.loops import on_loop
from tests.support.bundles import Spec, softmax_stage, write_bundle
from tests.support.waiting import until

ROWS, HORIZON, CONTEXT = 60, 6, 8
LEVELS = [0.1, 0.5, 0.9]
OPTIONS: dict[str, Any] = {"horizon": HORIZON, "quantiles": LEVELS}
HISTORY = {**OPTIONS, "calibration": "history"}


def drift() -> list[float]:
    """A history that rises by about one a step: its last value is always too low a forecast."""
    return np.random.default_rng(0).normal(1, 0.3, ROWS).cumsum().round(3).tolist()


def expected(client: Client, rows: list[float]) -> dict[str, Any]:
    """The quantiles, from the answers to requests that end before each origin."""
    intervals = client.repository.registry.find("calibrated").intervals
    stride = stride_of(HORIZON)
    origins = [*range(len(rows) - HORIZON, CONTEXT - 1, -stride)][::-1]
    history = np.array([rows[origin - CONTEXT : origin] for origin in origins])[:, :, None]
    future = np.array([rows[origin : origin + HORIZON] for origin in origins])[:, :, None]
    one = {"horizon": HORIZON}
    forecast = [
        client.first(body({"series": rows[:origin]}, model="calibrated", **one))["mean_forecast"]
        for origin in origins
    ]
    errors = intervals.errors(history, np.array(forecast)[:, :, None], future)
    last = client.first(body({"series": rows}, model="calibrated", **one))["mean_forecast"]
    found = intervals.corrected(
        np.array(rows[-CONTEXT:])[None, :, None],
        np.array(last)[None, :, None],
        LEVELS,
        [errors],
        stride,
    )
    levels = {str(level): each[0, :, 0] for level, each in zip(LEVELS, found, strict=True)}
    return {"origins": len(origins), "quantiles": levels}


def test_corrected_quantiles_equal_a_separate_backtest(client: Client) -> None:
    rows = drift()
    found = client.first(body({"series": rows}, model="calibrated", **HISTORY))
    stored = client.first(body({"series": rows}, model="calibrated", **OPTIONS))
    wanted = expected(client, rows)
    assert found["calibration"] == {"method": "history", "origins": wanted["origins"]}
    assert found["mean_forecast"] == stored["mean_forecast"]
    assert "calibration" not in stored
    for level, values in wanted["quantiles"].items():
        assert found["quantiles"][level] == pytest.approx(values, rel=1e-4)
    # A series that rises by one a step is above the forecast, and the median follows it.
    assert found["quantiles"]["0.5"][-1] > stored["quantiles"]["0.5"][-1] + 1


def test_corrected_quantiles_of_a_table(client: Client) -> None:
    rows = drift()
    columns = {"unique_id": ["a"] * ROWS + ["b"] * 20, "load": rows + rows[:20]}
    answer = client.send_table(
        pa.table(columns),
        "/forecast?model=calibrated&horizon=6&quantiles=0.1,0.5,0.9&calibration=history",
    )
    table = table_of(answer)
    notes = notes_of(table)
    assert notes["calibration"] == {"method": "history", "origins": {"a": 16, "b": 3}}
    inputs = [{"series": rows}, {"series": rows[:20]}]
    outputs = client.forecast(body(*inputs, model="calibrated", **HISTORY)).json()["outputs"]
    for level in LEVELS:
        whole = [output["content"][0]["quantiles"][str(level)] for output in outputs]
        assert table[f"load_q{level}"].to_pylist() == pytest.approx(np.concatenate(whole), rel=1e-5)


def test_short_series_of_a_table_has_no_corrected_quantiles(client: Client) -> None:
    rows = drift()
    gap = [*rows[:12], np.nan, *rows[13:18]]
    columns = {"unique_id": ["a"] * 18 + ["b"] * ROWS, "load": gap + rows}
    query = "?model=calibrated&horizon=6&quantiles=0.5&calibration=history&missing=interpolate"
    answer = client.send_table(pa.table(columns), f"/forecast{query}")
    table = table_of(answer)
    notes = notes_of(table)
    assert [each["unique_id"] for each in notes["errors"]] == ["a"]
    assert notes["calibration"]["origins"] == {"b": 16}
    assert table["load"].to_pylist() == pytest.approx([rows[-1]] * 6)


def test_short_series_does_not_fail_the_others(client: Client) -> None:
    # 8 to read, 6 that follow, and 2 origins more.
    inputs = [{"series": drift()[:19]}, {"series": drift()[:20]}]
    answer = client.forecast(body(*inputs, model="calibrated", **HISTORY)).json()
    assert answer["status"] == "partial"
    error = answer["outputs"][0]["error"]
    assert (error["code"], error["param"]) == ("422", "inputs[0].series")
    assert error["message"] == (
        "expected at least 20 rows (8 to read and 6 that follow, for each of 3 origins 3 apart), "
        "got 19"
    )
    assert answer["outputs"][1]["content"][0]["calibration"]["origins"] == 3
    refused = client.error(body(inputs[0], model="calibrated", **HISTORY))
    assert refused["param"] == "inputs[0].series"


def test_the_latest_of_a_long_history(client: Client) -> None:
    rows = drift() * 10
    found = client.first(body({"series": rows}, model="calibrated", **HISTORY))
    assert found["calibration"]["origins"] == 96
    cut = rows[-(CONTEXT + 95 * stride_of(HORIZON) + HORIZON) :]
    assert found == client.first(body({"series": cut}, model="calibrated", **HISTORY))


@pytest.mark.parametrize("missing", ["interpolate", "ffill"])
def test_missing_values_make_no_errors(client: Client, missing: str) -> None:
    rows: list[Any] = drift()
    options = {**HISTORY, "missing": missing}
    for row in (10, 20, 21, 58):
        rows[row] = None
    found = client.first(body({"series": rows}, model="calibrated", **options))
    assert found["calibration"]["origins"] == 16
    assert found["filled"] == {"load": 1}
    low, median, high = (found["quantiles"][str(level)] for level in LEVELS)
    assert np.all(np.less(low, median) & np.less(median, high))


def test_corrected_quantiles_with_attention_calendar_and_passes(tmp_path: Path) -> None:
    spec = Spec(
        channels=("load", "wind"),
        with_calendar=True,
        calibrated=2,
        stages=(softmax_stage(),),
    )
    write_bundle(tmp_path, spec)
    rows = np.random.default_rng(1).normal(size=(40, 2)).round(3)
    entry = {"series": rows.tolist(), "start_timestamp": "2024-01-01T00:00:00"}
    with Client(tmp_path) as client:
        options = {**HISTORY, "attention": {"heads": "mean"}}
        found = client.first(body(entry, **options))
        plain = client.first(body(entry, horizon=HORIZON, attention={"heads": "mean"}))
        swapped = {**entry, "series": rows[:, ::-1].tolist(), "channels": ["wind", "load"]}
        others = client.first(body(swapped, **HISTORY))
    assert found["calibration"]["origins"] == 9
    for part in ("mean_forecast", "attention", "rolled_from"):
        assert found[part] == plain[part]
    for level, values in found["quantiles"].items():
        assert np.array(others["quantiles"][level])[:, ::-1].tolist() == values


def test_times_outside_years_1_to_9999_are_refused(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(with_calendar=True, calibrated=1))
    entry = {"series": drift(), "start_timestamp": "0001-01-01T00:00:00Z"}
    with Client(tmp_path) as client:
        options = {"quantiles": [0.5], "calibration": "history"}
        assert client.first(body(entry, **options))["calibration"]["origins"] == 25
        # In New York the first rows are in the previous year.
        entry["time_zone"] = "America/New_York"
        client.first(body(entry, quantiles=[0.5]))
        error = client.error(body(entry, **options))
    assert error["param"] == "inputs[0].series"
    assert "beyond the years 1 to 9999" in error["message"]


@on_loop
async def test_failure_cancels_the_other_run(client: Client) -> None:
    envelope, ignored = parse(json.dumps(body({"series": drift()}, **HISTORY)).encode())
    model = client.repository.registry.find("calibrated")
    job = decode(envelope, ignored, model, client.settings)
    given_up = []

    async def wait(pending: Any) -> Arrays:
        if pending.windows > 1:
            raise DeadlineExceededError("late")
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            given_up.append(pending)
            raise
        raise AssertionError("the run was not cancelled")

    with pytest.raises(DeadlineExceededError):
        await job.run(time.monotonic() + 30, wait)
    await asyncio.sleep(0)
    assert len(given_up) == 1


def test_the_forecast_waits_in_the_same_queue(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="calibrated", calibrated=2))
    # The queue holds ten windows, by bytes with the steps of two passes or by number.
    for limits in ({"max_queue_bytes": 10 * 4 * 16}, {"max_queue": 10, "max_inputs": 10}):
        with Client(tmp_path, **limits) as client:
            found = client.first(body({"series": drift()}, **HISTORY, model="calibrated"))
            assert found["calibration"]["origins"] == 9


@pytest.mark.parametrize("horizon", [2, 4, 9, 12])
def test_quantiles(client: Client, horizon: int) -> None:
    levels = [0.9, 0.1, 0.5]
    request = body({"series": EIGHT}, model="calibrated", horizon=horizon, quantiles=levels)
    forecast = client.first(request)
    assert list(forecast["quantiles"]) == ["0.9", "0.1", "0.5"]
    scale = np.std(EIGHT)
    for level in levels:
        offsets = (level - 0.5) * np.arange(1, horizon + 1) * scale
        expected = np.array(forecast["mean_forecast"]) + offsets
        np.testing.assert_allclose(forecast["quantiles"][str(level)], expected, rtol=1e-3)
    request["inputs"][0]["series"] = [[value] for value in EIGHT]
    nested = client.first(request)["quantiles"]
    assert nested == {
        level: [[value] for value in values] for level, values in forecast["quantiles"].items()
    }


@pytest.mark.parametrize(
    ("model", "options", "param", "message"),
    [
        ("repeat", {"quantiles": [0.5]}, "options.quantiles", "repeat has no quantiles"),
        ("repeat", HISTORY, "options.quantiles", "repeat has no quantiles"),
        *(
            ("calibrated", {"quantiles": levels}, f"options.quantiles{place}", message)
            for levels, place, message in (
                ([0.5, 1], "[1]", "expected less than 1"),
                ([0], "[0]", "expected more than 0"),
                (["0.5"], "[0]", "expected a number"),
                ([0.2, 0.5, 0.2], "[2]", "0.2 is given twice"),
                ([0.0001], "[0]", "between 0.01"),
                ([0.5] * 100, "", "a list of at most 99"),
            )
        ),
        # Quantiles are limited to the calibrated steps.
        ("calibrated", {"quantiles": [0.5], "horizon": 13}, "options.quantiles", "12"),
        (
            "calibrated",
            {"calibration": "history"},
            *("options.calibration", "the request names no levels"),
        ),
        (
            "calibrated",
            {"quantiles": [0.5], "calibration": "recent"},
            *("options.calibration", "'stored', 'history' or 'ledger'"),
        ),
    ],
)
def test_unsupported_quantiles_are_refused(
    client: Client, model: str, options: dict[str, Any], param: str, message: str
) -> None:
    error = client.error(body({"series": EIGHT}, model=model, **options))
    assert error["param"] == param
    assert message in error["message"]
    is_supported = model == "calibrated" and options.get("horizon") != 13
    assert (error["type"] == "not_supported") == (not is_supported)


def test_history_has_room_for_origins(models: Path) -> None:
    two = [{"series": drift()}, {"series": drift()}]
    with Client(models, max_origins=5) as small:
        error = small.error(body(*two, model="calibrated", **HISTORY))
        assert error["param"] == "options.calibration"
        assert "2 inputs leave room for 2 origins of each, and it takes 3" in error["message"]
        found = small.first(body(two[0], model="calibrated", **HISTORY))
        assert found["calibration"]["origins"] == 5
        # The windows of both are counted, each in two passes.
        until(lambda: small.windows("calibrated") == 2 * 6)
