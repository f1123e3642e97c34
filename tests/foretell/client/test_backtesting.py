"""Backtests by the client, against a real server."""

from __future__ import annotations

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from pyarrow import ipc

from foretell import Client
from foretell.client import ForetellWarning, InvalidInputError
from foretell.client.backtesting import backtest
from foretell.client.exchange import Ask
from foretell.client.forecasting import Calibration
from tests.support.process import Server

ROWS = 40


def walk(name: str, seed: int, rows: int = ROWS) -> pd.DataFrame:
    times = pd.date_range("2024-03-01", periods=rows, freq="h")
    values = np.random.default_rng(seed).normal(0, 1, rows)
    return pd.DataFrame({"sku": name, "at": times, "load": values})


def test_backtest_equals_the_servers_answer(client: Client, server: Server) -> None:
    frame = walk("a", 0).drop(columns="sku")
    body = {
        "model": "load",
        "inputs": [{"series": frame["load"].tolist()}],
        "options": {"quantiles": [0.1, 0.9], "stride": 2},
    }
    answer = httpx.post(f"{server.url}/backtest", json=body, headers={"X-API-Key": "sesame"})
    wanted = answer.json()["outputs"][0]["content"][0]
    found = client.backtest(frame.set_index("at"), model="load", quantiles=[0.1, 0.9], stride=2)
    (series,) = found.series.values()
    assert (series.origins, series.horizon, series.stride) == (wanted["origins"], 4, 2)
    assert series.last_origin == "2024-03-02T12:00:00"
    (channel,), (own,) = series.channels, wanted["channels"]
    assert (channel.mse, channel.mae) == (own["mse"], own["mae"])
    np.testing.assert_array_equal(channel.steps.mae, own["steps"]["mae"])
    assert channel.below == {0.1: own["below"]["0.1"], 0.9: own["below"]["0.9"]}
    assert channel.intervals[0].coverage == own["intervals"][0]["coverage"]
    # The model repeats the last value; there is no season in 8 hours.
    assert channel.last_value.relative_mae == 1
    assert channel.seasonal_naive is None
    assert found.frame.to_dict("list") == {
        "channel": ["load"],
        "origins": [series.origins],
        "mse": [own["mse"]],
        "mae": [own["mae"]],
        "last_value_mae": [own["mae"]],
        "last_value_relative_mae": [1.0],
        "seasonal_naive_mae": pytest.approx([np.nan], nan_ok=True),
        "seasonal_naive_relative_mae": pytest.approx([np.nan], nan_ok=True),
    }


def test_quantiles_corrected_by_the_history(client: Client) -> None:
    frame = walk("a", 0, rows=80).drop(columns="sku")
    found = client.backtest(frame, model="load", quantiles=[0.1, 0.9], calibration="history")
    (series,) = found.series.values()
    assert series.stride == 2
    assert series.model_extra is not None
    assert series.model_extra["calibration"]["method"] == "history"


@pytest.mark.parametrize(("calibration", "count"), [("stored", 128), ("history", 68)])
def test_a_request_has_as_many_origins_as_a_server_makes(
    calibration: Calibration, count: int
) -> None:
    """With more rows than that the server would leave out the earliest origins."""
    frame = pd.concat(walk(f"{number:03}", number) for number in range(200))
    steps = backtest(frame, 0.0, model="load", id_column="sku", horizon=4, calibration=calibration)
    assert next(steps) == Ask("GET", "models/load")
    card = {"name": "load", "version": "1", "versions": ["1"], "channels": ["load"]}
    card |= {"context": 8, "horizon": 4, "frequency": "h"}
    ask = steps.send(httpx.Response(200, json=card))
    assert isinstance(ask, Ask)
    sent = ipc.open_stream(ask.content).read_all()
    # 8 of each, or 15.
    assert sent["unique_id"].unique().to_pylist() == [f"{number:03}" for number in range(count)]


def test_many_series_in_polars(client: Client) -> None:
    names = [f"series {number}" for number in range(200)]
    frame = pl.from_pandas(pd.concat(walk(name, seed) for seed, name in enumerate(names)))
    found = client.backtest(frame, model="load", id_column="sku")
    assert found.frame["sku"].to_list() == names
    assert found.frame["origins"].to_list() == [8] * 200
    alone = client.backtest(walk("series 150", 150), model="load", id_column="sku")
    name = "series 150"
    assert alone.series[name].model_dump_json() == found.series[name].model_dump_json()


def test_a_series_that_is_too_short(client: Client) -> None:
    """The series is not in the first part of the request."""
    names = [f"long {number}" for number in range(40)]
    frame = pd.concat([*(walk(name, 0) for name in names), walk("short", 1, 5)], ignore_index=True)
    with pytest.warns(ForetellWarning, match=r"^sku\[1600\]: .* 8 rows") as warned:
        found = client.backtest(frame, model="load", id_column="sku")
    assert warned[0].filename == __file__
    assert list(found.series) == names
    assert [error.series for error in found.notes.errors] == ["short"]


def test_several_models_need_a_choice(client: Client) -> None:
    with pytest.raises(InvalidInputError, match=r"^model: choose one .*: load, monthly, two"):
        client.backtest(walk("a", 0))
