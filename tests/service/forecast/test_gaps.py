"""Missing values: filled in, or left out (`options.missing: "mask"`)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.bundle.scaler import Scaler
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.series import fill
from foretell.service.forecast.warnings import outside
from foretell.timeaxis.gaps import Missing
from tests.service.client import Client
from tests.service.conftest import MULTIVARIATE, UNIVARIATE
from tests.service.forecast.bodies import EIGHT, body, notes_of
from tests.service.forecast.test_backtest import error as refused_backtest
from tests.service.forecast.test_backtest import first as backtest
from tests.service.forecast.test_backtest import one_by_one
from tests.service.forecast.test_tables import error as refused_table
from tests.service.forecast.test_tables import forecast as forecast_table
from tests.support.bundles import Spec, write_bundle

NAN, CONTEXT, NEEDED = np.nan, 8, 3


def test_gaps_that_cannot_be_filled_are_refused() -> None:
    def place(row: int, column: int) -> str:
        return f"s[{row}][{column}]"

    values = np.array([NAN, NAN, NAN, 4, 5, 6])[:, None]
    with pytest.raises(InvalidInputError, match="no value of 'load' comes before it") as error:
        fill(values, "ffill", 5, ["load"], place)
    assert error.value.param == "s[1][0]"
    values = np.array([[1, 1], [2, 2], [3, NAN], [4, NAN]])
    for method in ("interpolate", "ffill"):
        with pytest.raises(InvalidInputError, match="'b' has no value in the last 2 rows") as error:
            fill(values, method, 2, ["a", "b"], place)
        assert error.value.param == "s[2][1]"


@given(
    st.data(),
    st.sampled_from(["interpolate", "ffill"]),
    st.integers(1, 12),
    st.integers(0, 5),
    st.integers(1, 3),
)
def test_fill_equals_pandas(
    data: st.DataObject, method: Missing, window: int, before: int, channels: int
) -> None:
    numbers = st.one_of(st.just(NAN), st.integers(-100, 100).map(float))
    rows = window + before
    values = np.array(
        data.draw(st.lists(numbers, min_size=rows * channels, max_size=rows * channels))
    ).reshape(rows, channels)
    values[-1][np.isnan(values[before:]).all(axis=0)] = 0.0
    if method == "ffill":
        values[0] = 1.0
    given, names = values.copy(), [f"c{index}" for index in range(channels)]
    frame = pd.DataFrame(values)
    expected = frame.ffill() if method == "ffill" else frame.interpolate(limit_direction="both")
    found, counts = fill(values, method, window, names, lambda row, _: f"s[{row}]")
    np.testing.assert_allclose(found[before:], expected.to_numpy()[before:], atol=1e-9)
    # Earlier rows are used for filling, and are not changed.
    np.testing.assert_array_equal(found[:before], given[:before])
    np.testing.assert_array_equal(values, given)
    missing = np.isnan(given[before:]).sum(axis=0)
    assert counts == {name: int(n) for name, n in zip(names, missing, strict=True) if n}


@pytest.mark.parametrize(
    ("missing", "last", "filled"), [("interpolate", 5.0, 3), ("ffill", 4.0, 3)]
)
def test_missing_values(client: Client, missing: str, last: float, filled: int) -> None:
    whole = [0.0, 1.0, 2.0, None, 4.0, None, 6.0, 7.0, 4.0, None]
    forecast = client.first(body({"series": [*whole[:9], 4.0, 5.0][:8]}, missing="interpolate"))
    assert (forecast["mean_forecast"], forecast["filled"]) == ([7.0] * 4, {"load": 2})
    content = json.dumps(body({"series": [4.0, *whole]}, missing=missing)).replace("null", "NaN", 1)
    answer = client.send(content.encode()).json()["outputs"][0]["content"][0]
    assert (answer["mean_forecast"], answer["filled"]) == ([4.0] * 4, {"load": filled})
    assert "filled" not in client.first(body(missing=missing))
    pairs = [[first, second] for first, second in zip(EIGHT, [None, *EIGHT[:7]], strict=True)]
    entry = {"series": pairs, "channels": ["wind", "load"]}
    if missing == "interpolate":
        assert client.first(body(entry, model="multi", missing=missing))["filled"] == {"load": 1}
    else:
        error = client.error(body(entry, model="multi", missing=missing))
        assert error["param"] == "inputs[0].series[0][1]"
        assert "no value of 'load' comes before it" in error["message"]


LEVELS = [0.1, 0.9]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Serves a model of two channels that reads gaps, and others that do not."""
    folder = tmp_path_factory.mktemp("models")
    two = ("load", "wind")
    write_bundle(folder, Spec(name="gaps", channels=two, observed_steps=NEEDED, calibrated=2))
    write_bundle(folder, Spec(name="whole", channels=two, calibrated=2))
    for spec in (UNIVARIATE, MULTIVARIATE):
        write_bundle(folder, spec)
    with Client(folder) as client:
        yield client


def rows(count: int = CONTEXT) -> np.ndarray:
    found = np.random.default_rng(3).normal(size=(count, 2)).round(3)
    found[-5:-3, 0] = found[-1, 1] = NAN
    return found


def request_body(values: np.ndarray, model: str = "gaps", **options: Any) -> dict[str, Any]:
    series = [[None if np.isnan(one) else one for one in row] for row in values.tolist()]
    return {"model": model, "inputs": [{"series": series}], "options": options}


def test_masked_gaps_reach_the_model_and_are_counted(client: Client) -> None:
    values = rows(10)
    answer = client.forecast(request_body(values, missing="mask", horizon=6)).json()
    (found,) = answer["outputs"][0]["content"]
    # The last value of `wind` is missing, which this model takes for 0; `load` is carried on.
    np.testing.assert_allclose(found["mean_forecast"], [[values[-1, 0], 0]] * 6, rtol=1e-6)
    assert (found["masked"], found["rolled_from"]) == ({"load": 2, "wind": 1}, 4)
    assert "filled" not in found
    (_, warning) = answer["warnings"]
    assert (warning["type"], warning["param"]) == ("masked", "options.missing")
    assert warning["message"] == "3 missing values of what the model read were left out (mask)"
    whole = client.forecast(request_body(np.ones((8, 2)), missing="mask")).json()
    assert "warnings" not in whole
    assert "masked" not in whole["outputs"][0]["content"][0]


def test_columns_in_another_order(client: Client) -> None:
    body = request_body(rows()[:, ::-1], missing="mask")
    body["inputs"][0]["channels"] = ["wind", "load"]
    found = client.first(body)
    plain = client.first(request_body(rows(), missing="mask"))
    assert found["masked"] == plain["masked"]
    assert [row[::-1] for row in found["mean_forecast"]] == plain["mean_forecast"]


def test_width_of_intervals_follows_known_values(client: Client) -> None:
    found = client.first(request_body(rows(), missing="mask", quantiles=LEVELS))
    forecast, low, high = (
        np.array(one) for one in (found["mean_forecast"], *found["quantiles"].values())
    )
    step = np.arange(1, 5)[:, None]
    expected = np.nanstd(rows(), axis=0) * 0.4 * step
    np.testing.assert_allclose(forecast - low, expected, rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(high - forecast, expected, rtol=1e-3, atol=1e-6)


def test_a_model_that_reads_no_gaps_refuses_them(client: Client) -> None:
    message = (
        "whole reads no missing values, so that none can be left out; 'interpolate' or 'ffill' "
        "fills them in"
    )
    body = request_body(rows(), "whole", missing="mask")
    for found in (client.error(body), refused_backtest(client, body)):
        assert (found["param"], found["message"]) == ("options.missing", message)
    table = pa.table({"unique_id": ["x"] * 8, "load": rows()[:, 0], "wind": rows()[:, 1]})
    found = refused_table(client, table, "?model=whole&missing=mask")
    assert (found["param"], found["message"]) == ("options.missing", message)


def test_card_has_the_flag_reads_gaps(client: Client) -> None:
    cards = {one["name"]: one["reads_gaps"] for one in client.get("/models").json()}
    assert cards == {"gaps": True, "whole": False, "multi": False, "repeat": False}


@pytest.mark.parametrize("missing", ["mask", "interpolate"])
def test_each_channel_needs_a_value_in_the_scaled_steps(client: Client, missing: str) -> None:
    values = rows()
    values[:, 0] = values[:, 1] = NAN
    values[CONTEXT - NEEDED - 1] = 1
    if missing == "interpolate":
        assert client.first(request_body(values, missing=missing))["filled"] == {
            "load": 7,
            "wind": 7,
        }
        return
    found = client.error(request_body(values, missing=missing))
    assert found["param"] == "inputs[0].series[5][0]"
    assert found["message"] == (
        "'load' has no value in the last 3 rows, by which the model scales it"
    )
    values[-NEEDED] = 1
    assert client.first(request_body(values, missing=missing))["masked"] == {"load": 6, "wind": 6}
    values[-NEEDED:, 1] = NAN
    table = pa.table({"unique_id": ["x"] * 8, "load": values[:, 0], "wind": values[:, 1]})
    assert refused_table(client, table, "?model=gaps&missing=mask")["param"] == "wind[5]"


def test_tables_are_answered_as_json(client: Client) -> None:
    values = rows(11)
    table = pa.table({"unique_id": ["x"] * 11, "load": values[:, 0], "wind": values[:, 1]})
    found = forecast_table(client, table, "?model=gaps&missing=mask&horizon=5&quantiles=0.1")
    forecast = client.first(request_body(values, missing="mask", horizon=5, quantiles=[0.1]))
    np.testing.assert_array_equal(
        np.stack([found["load"], found["wind"]], axis=1), np.float32(forecast["mean_forecast"])
    )
    np.testing.assert_array_equal(
        np.stack([found["load_q0.1"], found["wind_q0.1"]], axis=1),
        np.float32(forecast["quantiles"]["0.1"]),
    )
    assert notes_of(found)["masked"] == {"x": forecast["masked"]}


def long_rows() -> np.ndarray:
    values = np.random.default_rng(4).normal(size=(50, 2)).round(3)
    values[[5, 11, 12, 20, 33, 40]] = NAN
    # Windows within these rows have no value for the scaling.
    values[25:28, 0] = NAN
    return values


def test_backtest_with_gaps_equals_single_forecasts(client: Client) -> None:
    values, options = long_rows(), {"missing": "mask", "horizon": 2}
    body = request_body(values, **options, stride=1, quantiles=LEVELS)
    found = backtest(client, body)
    origins = [origin for origin in range(8, 49) if origin != 28]
    assert found["origins"] == len(origins)
    entry = request_body(values)["inputs"][0]
    forecast, quantiles = one_by_one(client, "gaps", entry, origins, **options, quantiles=LEVELS)
    future = np.stack([values[origin : origin + 2] for origin in origins])
    filled = [[interpolated(values[origin - 8 : origin])] for origin in origins]
    last = np.concatenate(filled)[:, -1:]
    for channel, result in enumerate(found["channels"]):
        error = np.abs(forecast - future)[..., channel]
        assert result["mae"] == pytest.approx(np.nanmean(error), rel=1e-5)
        naive = np.abs(last - future)[..., channel]
        assert result["last_value"]["mae"] == pytest.approx(np.nanmean(naive), rel=1e-5)
        is_known = ~np.isnan(future[..., channel])
        inside = (quantiles["0.1"] <= future) & (future <= quantiles["0.9"])
        coverage = inside[..., channel][is_known].mean()
        assert result["intervals"][0]["coverage"] == pytest.approx(coverage)


def interpolated(window: np.ndarray) -> np.ndarray:
    steps = np.arange(len(window))
    columns = [(column, ~np.isnan(column)) for column in window.T]
    filled = [np.interp(steps, steps[known], column[known]) for column, known in columns]
    return np.stack(filled, axis=1)


def test_errors_of_late_correct_quantiles(client: Client) -> None:
    options = {"missing": "mask", "quantiles": LEVELS}
    stored = client.first(request_body(long_rows(), **options))["quantiles"]
    found = client.first(request_body(long_rows(), **options, calibration="history"))
    assert found["calibration"]["origins"] == 19
    for level, values in found["quantiles"].items():
        assert np.isfinite(np.array(values, float)).all()
        assert not np.allclose(values, stored[level])


def test_warning_of_a_distant_history_uses_known_values(client: Client) -> None:
    manifest = client.repository.registry.find("gaps").manifest
    manifest = manifest.model_copy(update={"scaler": Scaler(mean=(0, 0), std=(1.2, 1.5))})
    history = np.full((2, CONTEXT, 2), 1, np.float32)
    history[1] = 100
    history[:, 1:, 0] = NAN
    forecast = np.ones((2, 4, 2), np.float32)
    found = outside(manifest, history, forecast, "inputs[{}]".format)
    assert found is not None
    assert [(one["type"], one["param"]) for one in found] == [
        ("outside_training_range", "inputs[1]")
    ]
    assert "'load' is 100 on average over this history" in str(found[0]["message"])
