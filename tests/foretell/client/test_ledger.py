"""Actual values, scores and stored forecasts by the client, against a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest

from foretell import Client
from foretell.client import AsyncClient, ForetellWarning, InvalidInputError
from tests.support.bundles import Spec, write_bundle
from tests.support.process import Server
from tests.support.waiting import until


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    write_bundle(tmp_path / "models", Spec(name="load", calibrated=3))
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    with Server(tmp_path / "models", tmp_path / "log", ledger=ledger) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[Client]:
    with Client(server.url) as client:
        yield client


def table(rows: int, *names: str) -> pd.DataFrame:
    times = pd.date_range("2024-03-01", periods=rows, freq="h")
    parts = [
        pd.DataFrame({"sku": name, "at": times, "load": float(number)})
        for number, name in enumerate(names)
    ]
    return pd.concat(parts)


def test_values_are_written_and_scored(client: Client) -> None:
    kept = client.forecast(table(8, "a", "b"), id_column="sku", quantiles=[0.1, 0.9])
    client.forecast(table(8, "c"), id_column="sku", ledger=False)
    assert len(kept) == 8
    truth = table(12, "a", "b")
    truth.loc[10, "load"] = np.nan
    truth["load"] += 1
    written = client.actuals(truth, model="load", id_column="sku")
    assert (written.new, written.changed, written.same) == (22, 0, 0)
    assert written.series["a"].new == 11
    again = client.actuals(pl.from_pandas(truth), id_column="sku", time_column="at")
    assert (again.new, again.same) == (0, 22)
    until(lambda: not client.accuracy("load").empty)
    [total] = client.accuracy("load").to_dict("records")
    assert (total["version"], total["count"], total["mae"], total["bias"]) == ("1", 6, 1, -1)
    assert {"pinball_0.1", "coverage_0.8", "width_0.8"} <= total.keys()
    by_series = client.accuracy("load", by="series", since="2024-03-01", until="2024-03-01")
    assert by_series["series"].tolist() == ["a", "b"]
    assert client.accuracy("load", by="step", since="2025-01-01").columns[1] == "step"

    stored = client.trajectories("load", "b")
    assert stored.forecasts["mean"].tolist() == [1.0] * 4
    assert stored.forecasts["step"].tolist() == [1, 2, 3, 4]
    assert stored.forecasts["time"].iloc[0] == pd.Timestamp("2024-03-01 08:00")
    assert stored.actuals["load"].dropna().unique().tolist() == [2.0]
    assert client.delete_series("b") == 1
    assert client.accuracy("load", by="series")["series"].tolist() == ["a"]


def test_stored_forecasts_of_steps_below_a_second(tmp_path: Path) -> None:
    write_bundle(tmp_path / "models", Spec(name="fast", frequency="500ms"))
    ledger = f"sqlite:///{tmp_path / 'ledger.db'}"
    rows = table(8, "a")
    rows["at"] = pd.date_range("2024-03-01", periods=8, freq="500ms")
    with (
        Server(tmp_path / "models", tmp_path / "log", ledger=ledger) as server,
        Client(server.url) as client,
    ):
        client.forecast(rows, id_column="sku")
        until(lambda: not client.trajectories("fast", "a").forecasts.empty)
        stored = client.trajectories("fast", "a")
    expected = pd.date_range("2024-03-01 00:00:04", periods=4, freq="500ms")
    assert stored.forecasts["time"].tolist() == expected.tolist()


def test_series_that_fails_is_a_warning(client: Client) -> None:
    wrong = table(3, "a", "b")
    wrong.iloc[4, 1] = pd.Timestamp("2024-03-01 00:30")
    with pytest.warns(ForetellWarning, match=r"at\[4\]: .*it lies between two steps"):
        written = client.actuals(wrong, id_column="sku")
    assert [*written.series] == ["a"]
    [error] = written.notes.errors
    assert error.series == "b"
    with pytest.raises(InvalidInputError, match="did you mean 'load'"):
        client.actuals(wrong.rename(columns={"load": "laod"}), id_column="sku")


def test_coroutines_write_and_read(server: Server) -> None:
    async def run() -> None:
        async with AsyncClient(server.url) as client:
            await client.forecast(table(8, "a"), id_column="sku")
            written = await client.actuals(table(12, "a"), id_column="sku")
            assert written.new == 12
            assert (await client.trajectories("load", "a")).actuals.columns[0] == "time"
            assert "mae" in (await client.accuracy("load")).columns
            assert await client.delete_series("a") == 1

    asyncio.run(run())
