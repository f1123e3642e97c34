"""Forecasts that a client did not get are not kept."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, HOUR, START, Open, counted, series_of, settle

GOOD = np.arange(float(CONTEXT))
# Its quantiles are too large for float32.
FAR = np.array([3e38, -3e38] * (CONTEXT // 2))
LEVELS = [0.1, 0.9]


def ask(client: Client, **series: Any) -> list[str]:
    """The statuses of the outputs."""
    inputs = [series_of(name, values) for name, values in series.items()]
    body = {"model": "calibrated", "inputs": inputs, "options": {"quantiles": LEVELS}}
    answer = client.forecast(body)
    assert answer.status_code == 200, answer.text
    settle(client)
    return [output["status"] for output in answer.json()["outputs"]]


def ask_in_table(client: Client, **series: Any) -> list[str]:
    """As `ask`, in Arrow's format."""
    times = (START + np.arange(CONTEXT) * HOUR).astype("datetime64[us]")
    table = pa.table(
        {
            "unique_id": np.repeat([*series], CONTEXT),
            "ds": np.tile(times, len(series)),
            "load": np.concatenate([*series.values()]),
        }
    )
    answer = client.send_table(table, "/forecast?model=calibrated&quantiles=0.1,0.9")
    assert answer.status_code == 200, answer.text
    settle(client)
    found = pa.ipc.open_stream(answer.content).read_all()["unique_id"].to_pylist()
    return ["completed" if name in found else "error" for name in series]


def means(client: Client, name: str) -> list[Any]:
    answer = client.get(f"/models/calibrated/trajectories?series={name}").json()
    return [each["mean"] for each in answer["forecasts"]]


@pytest.mark.parametrize("send", [ask, ask_in_table])
def test_refused_forecast_is_not_kept(sqlite: str, opened: Open, send: Any) -> None:
    with opened(sqlite) as client:
        assert send(client, a=GOOD) == ["completed"]
        before = means(client, "a")
        assert send(client, a=FAR, b=GOOD) == ["error", "completed"]
        assert counted(client, "forecasts", "kept") == 2
        assert means(client, "a") == before
        assert len(means(client, "b")) == 1


@pytest.mark.parametrize("send", [ask, ask_in_table])
def test_history_of_a_refused_forecast_is_no_actual_value(
    sqlite: str, opened: Open, send: Any
) -> None:
    with opened(sqlite, ledger_learn="requests") as client:
        assert send(client, a=FAR, b=GOOD) == ["error", "completed"]
        assert counted(client, "actuals", "new") == CONTEXT


def test_default_quantiles_beyond_float32_are_kept_as_numbers(sqlite: str, opened: Open) -> None:
    with opened(sqlite) as client:
        assert client.forecast({"model": "calibrated", "inputs": [series_of("a", FAR)]}).is_success
        settle(client)
        answer = client.get("/models/calibrated/trajectories?series=a").json()
        [kept] = answer["forecasts"]
        assert np.isfinite(np.array([*kept["quantiles"].values()], np.float64)).all()
