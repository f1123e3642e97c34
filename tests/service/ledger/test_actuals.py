"""`POST /actuals`: actual values come into the ledger."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foretell.service.ledger import ledger, observing
from tests.service.client import Client
from tests.service.ledger.conftest import (
    CONTEXT,
    HORIZON,
    HOUR,
    START,
    Open,
    counted,
    forecast,
    scores,
    series_of,
    settle,
)
from tests.service.ledger.sending import (
    hours_from_start,
    models_of_steps,
    post,
    refused,
    values_of,
    written,
)

__all__ = ["models_of_steps"]


def test_values_are_counted_and_scored(database: str, opened: Open) -> None:
    truth = np.arange(20.0)
    with opened(database) as client:
        forecast(client, *(series_of(name, truth[:CONTEXT]) for name in "ab"))
        assert scores(client) == []
        sent = [series_of("a", truth), series_of("b", truth[10:], 10)]
        answer = post(client, *sent)
        assert written(answer) == [(20, 0, 0), (10, 0, 0)]
        body = answer.json()
        assert (body["status"], body["model"], body["model_version"]) == (
            *("completed", "calibrated"),
            "1",
        )
        assert [output["content"][0]["name"] for output in body["outputs"]] == ["a", "b"]
        counts = {row["series"]: row["count"] for row in scores(client, "?by=series")}
        # The first two hours of b's horizon are not known.
        assert counts == {"a": HORIZON, "b": HORIZON - 2}
        sent[0]["series"][3] = -1.0
        sent[1]["series"][0] = None
        assert written(post(client, *sent)) == [(0, 1, 19), (0, 0, 9)]
        assert counted(client, "actuals", "new") == 30
        assert counted(client, "actuals", "changed") == 1


def test_many_series_are_written_in_several_transactions(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def counted_observe(connection: Any, store: Any, ids: Any, observed: Any) -> Any:
        sizes.append(len(observed))
        return observing.observe(connection, store, ids, observed)

    monkeypatch.setattr(ledger, "observe", counted_observe)
    with opened(sqlite) as client:
        answer = post(client, *(series_of(f"s{number}", np.zeros(2)) for number in range(25)))
        assert written(answer) == [(2, 0, 0)] * 25
        assert sizes == [10, 10, 5]
        assert counted(client, "actuals", "new") == 50


def test_table_writes_what_json_writes(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(0).normal(size=(2, 20, 2))
    truth[1, 5] = np.nan
    truth[0, 7, 1] = np.nan
    times = (START + np.arange(20) * HOUR).astype("datetime64[us]")
    with opened(sqlite) as client:
        for name in ("json0", "json1", "table0", "table1"):
            sent = series_of(name, np.zeros((CONTEXT, 2)))
            assert client.forecast({"model": "pair", "inputs": [sent]}).is_success
        lists = [
            series_of(f"json{number}", np.where(np.isnan(values), None, values))
            for number, values in enumerate(truth)
        ]
        # Rows of the two series alternate.
        table = pa.table(
            {
                "unique_id": ["table0", "table1"] * 20,
                "ds": times.repeat(2),
                "load": truth[:, :, 0].T.ravel(),
                "wind": truth[:, :, 1].T.ravel(),
            }
        )
        answer = client.send_table(table, "/actuals?model=pair")
        assert (
            written(post(client, *lists, model="pair"))
            == written(answer)
            == [
                (39, 0, 0),
                (38, 0, 0),
            ]
        )
        for number in range(2):
            known = values_of(client, f"json{number}", "pair")
            assert known["values"]["load"]
            assert known == values_of(client, f"table{number}", "pair")


def test_some_channels_may_be_sent(sqlite: str, opened: Open) -> None:
    rows = np.arange(24.0).reshape(12, 2)
    with opened(sqlite) as client:
        for model in ("pair", "partial"):
            sent = series_of("a", np.zeros((CONTEXT, 2)))
            assert client.forecast({"model": model, "inputs": [sent]}).is_success
        settle(client)
        only = series_of("a", rows[:, 1], channels=["wind"])
        assert written(post(client, only, model="pair")) == [(12, 0, 0)]
        swapped = series_of("a", rows[:, ::-1], channels=["wind", "load"])
        assert written(post(client, swapped, model="pair")) == [(12, 0, 12)]
        assert values_of(client, "a", "pair")["values"] == {
            "load": rows[CONTEXT - 1 :, 0].tolist(),
            "wind": rows[CONTEXT - 1 :, 1].tolist(),
        }
        # The forecast channels alone, or those of a history.
        assert written(post(client, series_of("b", rows[:, 0]), model="partial")) == [(12, 0, 0)]
        answer = post(client, series_of("b", rows), model="partial")
        assert written(answer) == [(0, 0, 12)]
        [warning] = answer.json()["warnings"]
        assert (warning["type"], warning["param"]) == ("ignored_field", "inputs[0].series")
        assert "wind" in warning["message"]


@pytest.mark.parametrize(
    ("model", "changes", "message", "place"),
    [
        ("pair", {"channels": ["laod"]}, "did you mean 'load'?", "channels[0]"),
        ("pair", {"channels": ["load", "load"]}, "'load' is named twice", "channels[1]"),
        ("partial", {"channels": ["wind"]}, "is forecast (load)", "channels"),
        ("pair", {}, "name the columns in inputs[0].channels", "series[0]"),
        ("calibrated", {"start_timestamp": None}, "required: send the time", "start_timestamp"),
        ("calibrated", {"series": []}, "expected at least one row", "series"),
        ("calibrated", {"series": [1.0, "x"]}, "expected a number", "series[1]"),
        ("calibrated", {"series": [1.0, 1e39]}, "3.4e38", "series[1]"),
        ("calibrated", {"name": None}, "expected a string", "name"),
        ("calibrated", {"frequency": "D"}, "expected the model's frequency", "frequency"),
        ("calibrated", {"time_zone": "Europe/Berlim"}, "expected a time zone", "time_zone"),
        ("calibrated", {"start_timestamp": "9999-12-31T23:00"}, "1 to 9999", "start_timestamp"),
        ("calibrated", {"chanels": ["load"]}, "did you mean 'channels'?", "chanels"),
    ],
)
def test_invalid_input_has_an_error_with_its_place(
    sqlite: str, opened: Open, model: str, changes: dict[str, Any], message: str, place: str
) -> None:
    with opened(sqlite) as client:
        sent = series_of("a", np.zeros(2)) | changes
        text, param = refused(post(client, sent, model=model))
        assert message in text
        assert param == f"inputs[0].{place}"


def test_nothing_of_an_invalid_input_is_written(sqlite: str, opened: Open) -> None:
    truth = np.arange(12.0)
    with opened(sqlite) as client:
        forecast(client, *(series_of(name, truth[:CONTEXT]) for name in ("a", "b", "c")))
        wrong = series_of("b", truth)
        wrong["series"][-1] = "x"
        again = series_of("a", truth + 1)
        answer = post(client, series_of("a", truth), wrong, again, series_of("c", truth))
        assert answer.status_code == 200
        assert answer.json()["status"] == "partial"
        outputs = answer.json()["outputs"]
        statuses = [output["status"] for output in outputs]
        assert statuses == ["completed", "error", "error", "completed"]
        assert [(output["error"] or {}).get("param") for output in outputs] == [
            *(None, "inputs[1].series[11]", "inputs[2].name", None)
        ]
        assert [output["content"] for output in outputs] == [
            [{"name": "a", "new": 12, "changed": 0, "same": 0}],
            [],
            [],
            [{"name": "c", "new": 12, "changed": 0, "same": 0}],
        ]
        assert [row["series"] for row in scores(client, "?by=series")] == ["a", "c"]


@pytest.mark.parametrize(
    ("columns", "message", "place"),
    [
        ({"laod": [1.0, 2.0]}, "did you mean 'load'?", "laod"),
        ({"load": [1.0, 2.0], "wimd": [1.0, 2.0]}, "did you mean 'wind'?", "wimd"),
        ({"other": [1.0, 2.0]}, "at least one channel that is forecast (load, wind)", "load"),
        ({"load": ["x", "y"]}, "expected a column of numbers", "load"),
        ({"load": [1.0, 2.0], "ds": [1, 2]}, "expected timestamps or dates", "ds"),
        ({"load": [1.0, 2.0], "ds": None}, "required: actual values need their times", "ds"),
        ({"load": [1.0, 2.0], "ds": [None, None]}, "expected a timestamp, got null", "ds[0]"),
    ],
)
def test_invalid_table_has_an_error_with_its_place(
    sqlite: str, opened: Open, columns: dict[str, Any], message: str, place: str
) -> None:
    columns = {"ds": hours_from_start(0, 1), **columns}
    if columns["ds"] == [None, None]:
        columns["ds"] = pa.array([None, None], pa.timestamp("us"))
    columns = {name: column for name, column in columns.items() if column is not None}
    with opened(sqlite) as client:
        table = pa.table({"unique_id": ["a", "a"], **columns})
        text, param = refused(client.send_table(table, "/actuals?model=pair"))
        assert message in text
        assert param == place


def test_unknown_columns_and_fields_are_named_in_warnings(sqlite: str, opened: Open) -> None:
    with opened(sqlite) as client:
        sent = series_of("a", np.zeros(2), past_covariates={"x": [1, 2]})
        answer = post(client, sent, options={"horizon": 2})
        assert written(answer) == [(2, 0, 0)]
        assert [warning["param"] for warning in answer.json()["warnings"]] == [
            "options",
            "inputs[0].past_covariates",
        ]
        times = hours_from_start(0, 1)
        table = pa.table({"unique_id": ["a"] * 2, "ds": times, "load": [0.0] * 2, "q": [1, 2]})
        answer = client.send_table(table, "/actuals?model=calibrated")
        assert written(answer) == [(0, 0, 2)]
        [warning] = answer.json()["warnings"]
        assert warning["message"] == "columns that are not read: q"
        error = client.send_table(table, "/actuals?model=calibrated&horizon=2").json()["error"]
        assert (error["param"], "expected one of model" in error["message"]) == ("query", True)


def test_large_and_compressed_bodies(sqlite: str, opened: Open) -> None:
    """Bodies of this size are read in pieces."""
    truth = np.random.default_rng(3).normal(size=60_000)
    with opened(sqlite) as client:
        body = {"model": "calibrated", "inputs": [series_of("a", truth)]}
        packed = gzip.compress(json.dumps(body).encode())
        headers = {"content-type": "application/json", "content-encoding": "gzip"}
        answer = client.request("POST", "/actuals", content=packed, headers=headers)
        assert written(answer) == [(60_000, 0, 0)]
        assert written(post(client, series_of("a", truth))) == [(0, 0, 60_000)]


def test_limits_are_those_of_forecasts(sqlite: str, opened: Open) -> None:
    one, other = series_of("a", np.zeros(2)), series_of("b", np.zeros(2))
    with opened(sqlite, max_inputs=1, max_body_bytes=300) as client:
        assert refused(post(client, one, other))[0] == "expected at most 1 inputs, got 2"
        assert post(client, series_of("a", np.zeros(200))).status_code == 413


def test_server_without_a_ledger_names_the_setting(repository: Path) -> None:
    with Client(repository) as client:
        answer = post(client, series_of("a", np.zeros(2)))
        assert answer.status_code == 422
        assert answer.json()["error"]["type"] == "not_supported"
        assert "FORETELL_LEDGER" in answer.json()["error"]["message"]
