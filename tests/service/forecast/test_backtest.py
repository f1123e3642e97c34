"""`POST /backtest` equals single forecasts, compared with the rows that followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foretell.service.forecast import backtest
from foretell.service.forecast import options as reading
from foretell.service.forecast.answers import BacktestResponse
from foretell.service.metrics import BACKTESTED, HELD
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle
from tests.support.waiting import until

ROWS = 40
START = "2024-03-01T00:00:00"


def values(channels: int = 1, rows: int = ROWS) -> np.ndarray:
    return np.random.default_rng(channels).normal(size=(rows, channels)).round(3)


def series(model: str, rows: int = ROWS) -> dict[str, Any]:
    found = values(2 if model == "multi" else 1, rows)
    listed = found.tolist() if model == "multi" else found[:, 0].tolist()
    return {"series": listed, "start_timestamp": START}


def post(client: Client, body: Any, **headers: str) -> Any:
    answer = client.request("POST", "/backtest", json=body, headers=headers)
    if answer.status_code == 200:
        BacktestResponse.model_validate_json(answer.content)
    return answer


def first(client: Client, body: Any) -> dict[str, Any]:
    answer = post(client, body)
    assert answer.status_code == 200, answer.text
    content: dict[str, Any] = answer.json()["outputs"][0]["content"][0]
    return content


def error(client: Client, body: Any) -> dict[str, Any]:
    answer = post(client, body)
    assert answer.status_code == 422, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


def one_by_one(
    client: Client, model: str, entry: dict[str, Any], origins: list[int], **options: Any
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Forecasts `[origins, steps, channels]` of requests that end before each, and quantiles."""
    found, quantiles = [], []
    for origin in origins:
        cut = {**entry, "series": entry["series"][:origin]}
        one = client.first({"model": model, "inputs": [cut], "options": options})
        found.append(one["mean_forecast"])
        quantiles.append(one.get("quantiles", {}))
    shape = (len(origins), options["horizon"], -1)
    levels = {name: [each[name] for each in quantiles] for name in quantiles[0]}
    return np.reshape(found, shape), {
        name: np.reshape(each, shape) for name, each in levels.items()
    }


@pytest.mark.parametrize("stride", [2**53, 2**53 + 1, 2**64])
def test_stride_beyond_the_rows_gives_one_origin(client: Client, stride: int) -> None:
    body = {"model": "repeat", "inputs": [series("repeat")], "options": {"stride": stride}}
    # With metadata it is read by another parser, which keeps integers of any size.
    for more in ({}, {"metadata": {"a": 1}}):
        answer = post(client, body | more)
        if stride > 2**53:
            assert answer.json()["error"]["param"] == "options.stride"
        else:
            assert answer.json()["outputs"][0]["content"][0]["origins"] == 1
            assert answer.json().get("metadata") == more.get("metadata")


@pytest.mark.parametrize(
    ("model", "horizon", "stride"),
    [("repeat", 3, 3), ("multi", 4, 5), ("calendar", 2, 2), ("calibrated", 6, 1)],
)
def test_backtest_equals_single_forecasts(
    client: Client, model: str, horizon: int, stride: int
) -> None:
    entry, options = series(model), {"horizon": horizon}
    sent = entry
    if model == "multi":
        # The answer has the order of columns of the request.
        turned = {"channels": ["wind", "load"], "series": [row[::-1] for row in entry["series"]]}
        sent = entry | turned
    found = first(
        client, {"model": model, "inputs": [sent], "options": {**options, "stride": stride}}
    )
    names = [each["name"] for each in found["channels"]]
    assert names == (["wind", "load"] if model == "multi" else ["load"])
    origins = [*range(ROWS - horizon, 7, -stride)][::-1]
    forecast, _ = one_by_one(client, model, entry, origins, **options)
    rows = values(forecast.shape[2])
    future = np.stack([rows[origin : origin + horizon] for origin in origins])
    last = np.stack([rows[origin - 1 : origin] for origin in origins])
    assert (found["origins"], found["stride"], found["horizon"]) == (
        len(origins),
        stride,
        horizon,
    )
    assert found["first_origin"] == str(np.datetime64(START, "s") + origins[0] * 3600)
    assert found["last_origin"] == str(np.datetime64(START, "s") + origins[-1] * 3600)
    for channel, errors in enumerate(sorted(found["channels"], key=lambda each: each["name"])):
        own, naive = forecast[..., channel] - future[..., channel], last - future
        mae, others = np.abs(own).mean(), np.abs(naive[..., channel]).mean()
        assert errors["mse"] == pytest.approx(np.square(own).mean(), rel=1e-5)
        assert errors["mae"] == pytest.approx(mae, rel=1e-5)
        assert errors["steps"]["mse"] == pytest.approx(np.square(own).mean(axis=0), rel=1e-5)
        assert errors["steps"]["mae"] == pytest.approx(np.abs(own).mean(axis=0), rel=1e-5)
        assert errors["last_value"]["mae"] == pytest.approx(others, rel=1e-5)
        assert errors["last_value"]["relative_mae"] == pytest.approx(mae / others, rel=1e-5)
        # A context of 8 hours is shorter than a day.
        assert errors["seasonal_naive"] is None


def test_quantiles_and_intervals(client: Client) -> None:
    entry, levels = series("calibrated"), [0.9, 0.25, 0.1]
    options = {"horizon": 5, "quantiles": levels}
    body = {"model": "calibrated", "inputs": [entry], "options": {**options, "stride": 2}}
    (result,) = first(client, body)["channels"]
    origins = [*range(ROWS - 5, 7, -2)][::-1]
    _, quantiles = one_by_one(client, "calibrated", entry, origins, **options)
    future = np.stack([values()[origin : origin + 5] for origin in origins])
    below = {name: (future <= each).mean() for name, each in quantiles.items()}
    assert result["below"] == pytest.approx(below)
    assert 0.05 < below["0.1"] < below["0.9"] < 1
    (interval,) = result["intervals"]
    inside = (quantiles["0.1"] <= future) & (future <= quantiles["0.9"])
    width = quantiles["0.9"] - quantiles["0.1"]
    assert interval["level"] == 0.8
    assert interval["coverage"] == pytest.approx(inside.mean())
    assert interval["width"] == pytest.approx(width.mean(), rel=1e-5)
    assert interval["steps"]["coverage"] == pytest.approx(inside.mean(axis=(0, 2)))
    assert interval["steps"]["width"] == pytest.approx(width.mean(axis=(0, 2)), rel=1e-5)


def test_covered_values_are_counted(client: Client) -> None:
    def counted(name: str, level: str) -> float:
        return client.metrics.counts.count(name, "calibrated", "1", level)

    entries = [series("calibrated"), series("calibrated")]
    # Missing values do not count for coverage.
    entries[1]["series"][33:36] = [None] * 3
    options = {"horizon": 4, "stride": 4, "quantiles": [0.025, 0.1, 0.9, 0.975, 0.3, 0.7]}
    body = {"model": "calibrated", "inputs": entries, "options": {**options, "missing": "ffill"}}
    before = {level: counted(BACKTESTED, level) for level in ("0.8", "0.95", "0.4")}
    held = counted(HELD, "0.8")
    answer = [output["content"][0] for output in post(client, body).json()["outputs"]]
    counts = [4 * content["origins"] for content in answer]
    counts[1] -= 3
    for level, earlier in before.items():
        assert counted(BACKTESTED, level) - earlier == (sum(counts) if level != "0.4" else 0)
    shares = [
        interval["coverage"]
        for content in answer
        for interval in content["channels"][0]["intervals"]
        if interval["level"] == 0.8
    ]
    expected = sum(share * values for share, values in zip(shares, counts, strict=True))
    assert counted(HELD, "0.8") - held == pytest.approx(expected)
    # The counter of the test split's coverage is another one, and counts stored offsets only.
    earlier = counted(BACKTESTED, "0.8")
    first(client, {**body, "options": {**body["options"], "calibration": "history"}})
    assert counted(BACKTESTED, "0.8") == earlier


def test_coverage_is_of_targets(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(name="m", channels=("a", "b"), targets=("b",), calibrated=1))
    rows: list[list[float | None]] = [[row % 3, row % 5] for row in range(20)]
    # Missing values matter for targets only.
    rows[17][0] = rows[18][1] = None
    options = {"quantiles": [0.1, 0.9], "missing": "ffill", "horizon": 4, "origins": 1}
    with Client(tmp_path) as client:
        first(client, {"model": "m", "inputs": [{"series": rows}], "options": options})
        assert client.metrics.counts.count(BACKTESTED, "m", "1", "0.8") == 3


@pytest.mark.parametrize(("gap", "most"), [(None, 96), (30, 96), (None, 3)])
def test_quantiles_corrected_by_the_origins_before(
    client: Client, monkeypatch: pytest.MonkeyPatch, gap: int | None, most: int
) -> None:
    """Forecasts of requests at each origin, with all rows before it."""
    for module in (backtest, reading):
        monkeypatch.setattr(module, "MOST_ORIGINS", most)
    entry = series("calibrated")
    entry["series"] = [value + row / 10 for row, value in enumerate(entry["series"])]
    if gap is not None:
        entry["series"][gap] = None
    options = {"horizon": 6, "quantiles": [0.1, 0.9], "calibration": "history"}
    options["missing"] = "interpolate"
    found = first(client, {"model": "calibrated", "inputs": [entry], "options": options})
    assert (found["stride"], found["origins"]) == (3, 9)
    # 10, 13, …, 34: the forecasts of three have to end before an origin.
    latest = [22, 25, 28, 31, 34]
    assert found["calibration"] == {"method": "history", "origins": len(latest)}
    _, quantiles = one_by_one(client, "calibrated", entry, latest, **options)
    rows = np.array(entry["series"], np.float64)
    future = np.stack([rows[origin : origin + 6, None] for origin in latest])
    is_known = ~np.isnan(future)
    (result,) = found["channels"]
    for name, each in quantiles.items():
        assert result["below"][name] == pytest.approx((future <= each)[is_known].mean())
    (interval,) = result["intervals"]
    inside = (quantiles["0.1"] <= future) & (future <= quantiles["0.9"])
    assert interval["coverage"] == pytest.approx(inside[is_known].mean())
    width = quantiles["0.9"] - quantiles["0.1"]
    assert interval["width"] == pytest.approx(width.mean(), rel=1e-5)
    del options["calibration"]
    body = {"model": "calibrated", "inputs": [entry], "options": {**options, "stride": 3}}
    stored = first(client, body)
    assert "calibration" not in stored
    (other,) = stored["channels"]
    assert (other["mae"], other["steps"]) == (result["mae"], result["steps"])
    assert other["intervals"][0]["width"] != pytest.approx(interval["width"], rel=0.01)


@pytest.mark.parametrize(
    ("rows", "changes", "origins", "corrected"),
    [
        # The smallest number of rows for one correction, and the largest number of origins.
        (26, {"origins": 5}, 5, 1),
        (400, {"horizon": 1, "origins": 300}, 192, 189),
    ],
)
def test_number_of_corrected_origins(
    client: Client, rows: int, changes: dict[str, Any], origins: int, corrected: int
) -> None:
    options = {"horizon": 6, "quantiles": [0.5], "calibration": "history"} | changes
    one = {"model": "calibrated", "inputs": [series("calibrated", rows)], "options": options}
    found = first(client, one)
    assert (found["origins"], found["calibration"]["origins"]) == (origins, corrected)


@pytest.mark.parametrize(
    ("rows", "changes", "param", "message"),
    [
        (40, {"quantiles": None}, "options.calibration", "names no levels"),
        (40, {"origins": 4}, "options.origins", "expected at least 5, so that one has 3 to"),
        (25, {}, "inputs[0].series", "expected at least 26 rows"),
    ],
)
def test_quantiles_that_are_not_corrected(
    client: Client, rows: int, changes: dict[str, Any], param: str, message: str
) -> None:
    options = {"horizon": 6, "quantiles": [0.5], "calibration": "history"} | changes
    one = {"model": "calibrated", "inputs": [series("calibrated", rows)], "options": options}
    found = error(client, one)
    assert found["param"] == param
    assert message in found["message"]


def test_a_stride_too_short_to_correct_a_long_horizon(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(horizon=192, calibrated=1))
    options = {"quantiles": [0.5], "calibration": "history"}
    request = {"inputs": [{"series": values(rows=900)[:, 0].tolist()}]}
    with Client(tmp_path) as client:
        first(client, request | {"options": options | {"stride": 2}})
        found = error(client, request | {"options": options | {"stride": 1}})
    assert found["param"] == "options.stride"
    assert found["message"].startswith("expected at least 2, so that one of 192 origins has 3")


@pytest.mark.parametrize(("most", "corrected"), [(96 * 6 * 2 * 3, 3), (1, 1)])
def test_work_of_corrections_is_limited(
    client: Client, monkeypatch: pytest.MonkeyPatch, most: int, corrected: int
) -> None:
    options = {"horizon": 6, "quantiles": [0.1, 0.9], "calibration": "history"}
    entries = [{**series("calibrated"), "name": name} for name in ("one", "other")]
    body = {"model": "calibrated", "inputs": entries, "options": options}
    whole = first(client, body)
    monkeypatch.setattr(backtest, "_MOST_ERRORS", most)
    for output in post(client, body).json()["outputs"]:
        (found,) = output["content"]
        assert found["calibration"]["origins"] == corrected
        assert found["origins"] == whole["origins"] == 9
        assert found["channels"][0]["steps"]["mae"] == whole["channels"][0]["steps"]["mae"]


def test_the_last_season(tmp_path: Path) -> None:
    write_bundle(tmp_path, Spec(frequency="MS", context=12, horizon=15))
    with Client(tmp_path) as client:
        entry = {"series": values(rows=60)[:, 0].tolist()}
        found = first(client, {"inputs": [entry]})
    origins = [15, 30, 45]
    assert (found["origins"], found["first_origin"], found["last_origin"]) == (3, 15, 45)
    rows = values(rows=60)[:, 0]
    errors = [
        abs(rows[origin - 12 + step % 12] - rows[origin + step])
        for origin in origins
        for step in range(15)
    ]
    (result,) = found["channels"]
    assert result["seasonal_naive"]["season"] == 12
    assert result["seasonal_naive"]["mae"] == pytest.approx(np.mean(errors), rel=1e-5)


def test_origins_are_the_latest(models: Path) -> None:
    body = {"model": "repeat@1", "inputs": [series("repeat")], "options": {"horizon": 2}}
    with Client(models) as client:
        whole = first(client, body)
        assert whole["origins"] == 16
        until(lambda: client.windows("repeat") == 16)
        assert 'route="/backtest"' in client.get("/metrics").text
        some = first(client, {**body, "options": {"horizon": 2, "origins": 3}})
        assert (some["origins"], some["last_origin"]) == (3, whole["last_origin"])
        cut = {**body["inputs"][0], "series": body["inputs"][0]["series"][-14:]}
        late = {**cut, "start_timestamp": "2024-03-02T02:00"}
        assert first(client, {**body, "inputs": [late]}) == some


def test_limits_keep_the_latest_origins(models: Path) -> None:
    inputs = [{"series": series("repeat")["series"]}, {"series": series("repeat", 15)["series"]}]
    body = {"model": "repeat", "inputs": inputs, "options": {"stride": 1}}
    with Client(models, max_origins=9) as client:
        answer = post(client, body).json()
        assert [output["content"][0]["origins"] for output in answer["outputs"]] == [4, 4]
        (warning,) = answer["warnings"]
        assert (warning["type"], warning["param"]) == ("origins_left_out", "options.stride")
        assert "no room for 25 earlier origins" in warning["message"]
        limited = post(client, {**body, "options": {"stride": 1, "origins": 2}}).json()
        assert limited["outputs"][0]["content"][0]["origins"] == 2
        assert "warnings" not in limited
        refused = error(client, {**body, "options": {"origins": 5}})
        assert refused["param"] == "options.origins"
        assert "2 inputs leave room for 4 origins of each, got 5" in refused["message"]
        refused = error(client, {**body, "inputs": [{"series": values()[:, 0].tolist()}] * 10})
        assert refused["param"] == "options"
    one = {**body, "inputs": inputs[:1]}
    # 12 rows of a window and its future, in float32.
    for limit, origins in (({"max_queue_bytes": 4 * 12 * 7}, 7), ({"max_answer_values": 24}, 6)):
        with Client(models, **limit) as client:
            assert first(client, one)["origins"] == origins


@pytest.mark.parametrize("missing", ["interpolate", "ffill"])
def test_missing_values_are_filled_as_in_forecasts_and_no_error_counts(
    client: Client, missing: str
) -> None:
    entry = series("repeat")
    for row in (7, 12, 13, 20, 39):
        entry["series"][row] = None
    options = {"horizon": 2, "missing": missing}
    body = {"model": "repeat", "inputs": [entry], "options": {**options, "stride": 1}}
    (result,) = first(client, body)["channels"]
    origins = [*range(8, 39)]
    forecast, _ = one_by_one(client, "repeat", entry, origins, **options)
    rows = np.array(entry["series"], float)
    future = np.stack([rows[origin : origin + 2] for origin in origins])
    error = np.abs(forecast[..., 0] - future)
    assert result["mae"] == pytest.approx(np.nanmean(error), rel=1e-5)
    assert result["steps"]["mae"] == pytest.approx(np.nanmean(error, axis=0), rel=1e-5)
    refused = post(client, {**body, "options": {}}).json()["error"]
    assert refused["param"] == "inputs[0].series[7]"


@pytest.mark.parametrize(
    ("missing", "origin", "origins"),
    # The first origin after a value, and the first origin whose window begins with a value.
    [("interpolate", "2024-03-01T21:00:00", 19), ("ffill", "2024-03-02T04:00:00", 12)],
)
def test_origins_without_known_history_are_left_out(
    client: Client, missing: str, origin: str, origins: int
) -> None:
    entry = series("repeat")
    entry["series"][:20] = [None] * 20
    options = {"missing": missing, "stride": 1, "horizon": 1}
    found = first(client, {"model": "repeat", "inputs": [entry], "options": options})
    assert (found["first_origin"], found["origins"]) == (origin, origins)
    entry["series"][20:] = [None] * 20
    entry["series"][-1] = 1.0
    options["missing"] = "interpolate"
    refused = error(client, {"model": "repeat", "inputs": [entry], "options": options})
    assert refused["message"].endswith("got 40; 32 origins have nothing but gaps in a channel")


def test_unknown_future_has_no_errors(client: Client) -> None:
    entry = {"series": [*values()[:8, 0].tolist(), None]}
    body = {"model": "calibrated", "inputs": [entry]}
    body["options"] = {"horizon": 1, "missing": "ffill", "quantiles": [0.1, 0.9]}
    earlier = client.metrics.counts.count(BACKTESTED, "calibrated", "1", "0.8")
    (result,) = first(client, body)["channels"]
    assert result["intervals"][0]["coverage"] is None
    assert client.metrics.counts.count(BACKTESTED, "calibrated", "1", "0.8") == earlier
    assert (result["mse"], result["mae"], result["last_value"]["relative_mae"]) == (
        None,
        None,
        None,
    )
    assert result["steps"] == {"mse": [None], "mae": [None]}
    # A relative error is null if the baseline has no errors.
    (result,) = first(client, {"model": "repeat", "inputs": [{"series": [2.0] * 20}]})["channels"]
    assert result["last_value"] == {"mse": 0, "mae": 0, "relative_mae": None}


def test_invalid_input_has_its_own_error(client: Client) -> None:
    # The second channel's forecast is twice its value, and so is not finite.
    overflowing = {"series": [[0.0, 0.0]] * 10 + [[0.0, 3e38]] * 10}
    for model, wrong, message in (
        ("repeat", {"series": [0.0] * 11}, "expected at least 12 rows (8 to read and 4 that foll"),
        ("multi", overflowing, "is not finite"),
    ):
        right = {"series": series(model)["series"]}
        answer = post(client, {"model": model, "inputs": [right, wrong]}).json()
        assert answer["status"] == "partial"
        assert answer["outputs"][0]["content"][0]["origins"] == 8
        found = answer["outputs"][1]["error"]
        assert found["param"] == "inputs[1].series"
        assert message in found["message"]
        refused = error(client, {"model": model, "inputs": [wrong]})
        assert refused["param"] == "inputs[0].series"


def test_a_table(client: Client) -> None:
    rows = values(2)
    hours = np.datetime64(START, "us") + np.arange(ROWS) * np.timedelta64(1, "h")
    columns = {"unique_id": ["a"] * ROWS, "ds": hours, "load": rows[:, 0], "wind": rows[:, 1]}
    path = "/backtest?model=multi&horizon=3&stride=2&origins=9"
    answer = client.send_table(pa.table(columns), path)
    assert answer.headers["content-type"] == "application/json"
    (output,) = answer.json()["outputs"]
    options = {"horizon": 3, "stride": 2, "origins": 9}
    entry = {"name": "a", **series("multi")}
    assert output["content"] == [
        first(client, {"model": "multi", "inputs": [entry], "options": options})
    ]
    one = pa.table({"unique_id": ["a"] * ROWS, "ds": hours, "y": values()[:, 0]})
    corrected = client.send_table(
        one, "/backtest?model=calibrated&quantiles=0.1,0.9&calibration=history"
    )
    options = {"quantiles": [0.1, 0.9], "calibration": "history"}
    body = {"inputs": [{"name": "a", **series("calibrated")}], "options": options}
    assert corrected.json()["outputs"][0]["content"] == [
        first(client, {"model": "calibrated", **body})
    ]
    rows[3, 0] = np.nan
    columns["load"] = rows[:, 0]
    refused = client.send_table(pa.table(columns), "/backtest?model=multi")
    assert refused.json()["error"]["param"] == "load[3]"


def test_warnings_of_distant_histories_and_filled_values(client: Client) -> None:
    rows = [1.0] * 20
    distant = [*rows, *[3000.0] * 20]
    body = {"model": "repeat", "inputs": [{"series": rows}, {"series": distant}]}
    answer = post(client, body).json()
    kinds = [(each["type"], each["param"]) for each in answer["warnings"]]
    place = "inputs[1].series"
    assert kinds == [
        ("outside_training_range", place),
        ("forecast_outside_training_range", place),
    ]
    columns = {"unique_id": ["a"] * 40, "load": distant}
    table = client.send_table(pa.table(columns), "/backtest?model=repeat")
    assert {each["param"] for each in table.json()["warnings"]} == {"unique_id=a"}
    # The first row, which no window reads, and what comes after the last origin are not filled.
    gaps = [None, 1.0, None, None, *rows[:14], None, 1.0]
    options = {"missing": "ffill", "horizon": 1, "stride": 1}
    filled = post(client, {"model": "repeat", "inputs": [{"series": gaps}], "options": options})
    (warning,) = filled.json()["warnings"]
    assert (warning["type"], warning["param"]) == ("filled", "options.missing")
    assert warning["message"].startswith("3 missing values")
