"""Tables in Arrow's streaming format, through POST /forecast."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from unittest.mock import ANY

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.routes import ARROW, ArrowCodec
from tests.service.client import Client, request_of
from tests.service.forecast.bodies import notes_of, table_of

START = datetime(2024, 1, 1)
HOURS = [START + timedelta(hours=hour) for hour in range(8)]


def post(client: Client, body: bytes, query: str = "", **headers: str) -> Any:
    headers = {"Content-Type": ARROW, **headers}
    return client.request("POST", f"/forecast{query}", content=body, headers=headers)


def forecast(client: Client, table: pa.Table, query: str = "") -> pa.Table:
    answer = client.send_table(table, f"/forecast{query}")
    assert answer.headers["content-type"] == ARROW, answer.text
    return table_of(answer)


def error(client: Client, table: pa.Table, query: str) -> dict[str, Any]:
    answer = client.send_table(table, f"/forecast{query}")
    assert answer.status_code == 422, answer.text
    found: dict[str, Any] = answer.json()["error"]
    return found


def two_series() -> pa.Table:
    values = np.random.default_rng(0).normal(size=(2, 8, 2))
    return pa.table(
        {
            "unique_id": ["a"] * 8 + ["b"] * 8,
            "ds": pa.array(HOURS * 2, pa.timestamp("us")),
            "wind": values[:, :, 1].ravel(),
            "load": values[:, :, 0].ravel(),
        }
    )


def test_memory_of_a_table_counts_its_cells(client: Client) -> None:
    codec, rows = ArrowCodec(FORECASTING, client.settings), 1000
    request = request_of("model=repeat")

    def memory(columns: int) -> int:
        table = pa.table({f"column {number}": [0.0] * rows for number in range(columns)})
        return codec.parse(write_table(table), request).memory

    assert memory(20) - memory(10) >= 10 * 8 * rows


def test_table_forecasts_equal_those_of_json(client: Client) -> None:
    table = two_series()
    rows = np.stack([table["load"].to_numpy(), table["wind"].to_numpy()], axis=1)
    inputs = [
        {"series": rows[first : first + 8].tolist(), "start_timestamp": START.isoformat()}
        for first in (0, 8)
    ]
    body = {"model": "multi", "inputs": inputs, "options": {"horizon": 6}}
    expected = [output["content"][0] for output in client.forecast(body).json()["outputs"]]
    found = forecast(client, table, "?model=multi&horizon=6")
    assert found.column_names == ["unique_id", "ds", "load", "wind"]
    assert found["unique_id"].to_pylist() == ["a"] * 6 + ["b"] * 6
    values = np.stack([found["load"].to_numpy(), found["wind"].to_numpy()], axis=1)
    np.testing.assert_array_equal(
        values, np.concatenate([np.float32(one["mean_forecast"]) for one in expected])
    )
    stamps = [moment.isoformat() for moment in found["ds"].to_pylist()]
    assert stamps == expected[0]["timestamps"] + expected[1]["timestamps"]
    notes = notes_of(found)
    assert [warning["type"] for warning in notes.pop("warnings")] == ["rolled"]
    assert notes == {
        "model": "multi",
        "model_version": "1",
        "model_digest": client.repository.registry.find("multi").digest,
        "status": "completed",
        "errors": [],
        "rolled_from": 4,
    }


def test_series_with_the_same_times_share_their_calendar_features(client: Client) -> None:
    starts = {"a": 0, "b": 0, "c": 5, "d": 0, "e": 5}
    values = {name: np.random.default_rng(ord(name)).normal(size=8) for name in starts}
    # Series `b` has too many gaps for a window; later series have the same times.
    values["b"][4:] = np.nan
    table = pa.table(
        {
            "unique_id": np.repeat([*starts], 8),
            "ds": pa.array([hour + timedelta(hours=n) for n in starts.values() for hour in HOURS]),
            "load": np.concatenate([*values.values()]),
        }
    )
    found = forecast(client, table, "?model=calendar")
    inputs = [
        {
            "series": [None if np.isnan(value) else value for value in values[name]],
            "start_timestamp": (START + timedelta(hours=start)).isoformat(),
        }
        for name, start in starts.items()
    ]
    outputs = client.forecast({"model": "calendar", "inputs": inputs}).json()["outputs"]
    expected = [one["content"][0]["mean_forecast"] for one in outputs if one["content"]]
    assert len(expected) == 4
    np.testing.assert_array_equal(found["load"].to_numpy(), np.float32(expected).ravel())


def test_a_frame_of_polars(client: Client) -> None:
    moments = [moment.replace(tzinfo=UTC) for moment in HOURS]
    frame = pl.DataFrame({"unique_id": ["x"] * 8, "ds": moments, "load": np.arange(8.0)})
    sink = io.BytesIO()
    frame.write_ipc_stream(sink)
    answer = post(client, sink.getvalue(), "?model=calendar")
    assert answer.status_code == 200, answer.text
    found = pl.read_ipc_stream(answer.content)
    assert found["ds"].dtype == pl.Datetime("us", "UTC")
    assert found["ds"][0] == datetime(2024, 1, 1, 8, tzinfo=UTC)


Frame = pd.DataFrame | pl.DataFrame


def arrow(frame: Frame) -> pa.Table:
    if isinstance(frame, pl.DataFrame):
        return frame.to_arrow()
    return pa.Table.from_pandas(frame, preserve_index=False)


def followed(client: Client, frame: Frame, after: str) -> Any:
    """The frame changed by the code in the error message, after the text `after`."""
    message = error(client, arrow(frame), "?model=repeat")["message"]
    assert after in message
    remedy, _, in_polars = message.partition(after)[2].partition(", in polars ")
    if isinstance(frame, pl.DataFrame):
        remedy = in_polars
    return eval(remedy, {"df": frame, "pd": pd, "pl": pl})


TEXTS = [moment.isoformat() for moment in HOURS]
SECONDS = [int(moment.replace(tzinfo=UTC).timestamp()) for moment in HOURS]


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("ds", TEXTS),
        ("ds", SECONDS),
        ("ds", [float(second) for second in SECONDS]),
        ("ds", pd.period_range(START, periods=8, freq="h")),
        ("load", [Decimal("1.5")] * 8),
        ("load", ["1.5"] * 8),
        ("load", [True] * 8),
    ],
)
def test_error_of_a_column_type_suggests_a_conversion(
    client: Client, make: Callable[[dict[str, Any]], Frame], name: str, values: list[Any]
) -> None:
    if make is pl.DataFrame and isinstance(values, pd.PeriodIndex):
        pytest.skip("polars has no periods")
    frame = make({"unique_id": ["x"] * 8, "ds": HOURS, "load": [1.0] * 8, name: values})
    column = followed(client, frame, "; convert the column: ")
    if isinstance(frame, pl.DataFrame):
        column = column.to_arrow()
    table = arrow(frame)
    table = table.set_column(table.column_names.index(name), name, pa.array(column))
    found = forecast(client, table, "?model=repeat")
    assert found["ds"][0].as_py() == START + timedelta(hours=8)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
def test_error_without_a_series_name_suggests_a_column(
    client: Client, make: Callable[[dict[str, Any]], Frame]
) -> None:
    frame = followed(client, make({"load": [1.0] * 8}), "the same value in every row: ")
    forecast(client, arrow(frame), "?model=repeat")


def test_missing_values(client: Client) -> None:
    found = forecast(client, one_series(GAPS), "?model=repeat&missing=interpolate")
    assert found["load"].to_pylist() == [6.0] * 4
    assert notes_of(found)["filled"] == {"x": {"load": 2}}
    longer = one_series([None, *range(8)])
    found = forecast(client, longer, "?model=repeat&missing=interpolate")
    assert found["load"].to_pylist() == [7.0] * 4


def test_body_other_than_a_table_is_refused(client: Client) -> None:
    answer = post(client, b"{}", "?model=repeat")
    assert answer.status_code == 400
    assert "Arrow stream" in answer.json()["error"]["message"]


def test_invalid_series_does_not_fail_the_others(client: Client) -> None:
    table = pa.table({"unique_id": [1] * 8 + [2] * 7, "y": np.arange(15.0)})
    found = forecast(client, table, "?model=repeat")
    assert found["unique_id"].to_pylist() == [1] * 4
    notes = notes_of(found)
    assert notes["status"] == "partial"
    (error,) = notes["errors"]
    assert (error["unique_id"], error["param"]) == (2, "unique_id[8]")
    assert "at least 8 rows" in error["message"]


@pytest.mark.parametrize("unit", [None, "us", "ns"])
def test_table_is_freed_before_the_forecast(client: Client, unit: str | None) -> None:
    table = pa.table({"unique_id": ["x"] * 8, "y": np.arange(8.0)})
    if unit is not None:
        hours = np.arange("2024-01-01T00", "2024-01-01T08", dtype="M8[h]").astype(f"M8[{unit}]")
        table = table.append_column("ds", pa.array(hours))
    body = write_table(table)
    held = sys.getrefcount(body)
    codec = ArrowCodec(FORECASTING, client.settings)
    parsed = codec.parse(body, request_of("model=repeat"))
    assert sys.getrefcount(body) > held
    job = codec.decode(parsed, parsed.find(client.repository.registry))
    assert len(job.history) == 1
    assert sys.getrefcount(body) == held


def one_series(load: Any = None, **columns: Any) -> pa.Table:
    values = np.arange(8.0) if load is None else load
    return pa.table({"unique_id": ["x"] * len(values), "load": values, **columns})


def times(start: str, unit: str) -> pa.Array:
    hours = np.datetime64(start, "us") + np.arange(8) * np.timedelta64(1, "h")
    return pa.array(hours).cast(pa.timestamp(unit))


GAPS = [0.0, 1, 2, 3, None, 5, 6, None]


@pytest.mark.parametrize(
    ("table", "query", "place", "message"),
    [
        (one_series(), "?model=calendar", "ds", ""),
        (one_series(), "?model=repeat&horizon=x", "query.horizon", ""),
        (one_series(), "?model=repeat&quantiles=2", "query.quantiles[0]", ""),
        (one_series(), "?model=repeat&levels=80", "query", ""),
        (one_series(GAPS), "?model=repeat", "load[4]", ""),
        # As in JSON, rows before the context are checked too.
        (one_series([None, *range(8)]), "?model=repeat", "load[0]", ""),
        (
            one_series(ds=pa.array([*HOURS[:7], None], pa.timestamp("us"))),
            *("?model=repeat", "ds[7]", "got null"),
        ),
        *(
            (
                one_series(ds=pa.array([late] * 8).cast(pa.timestamp(unit, "Europe/Berlin"))),
                *("?model=repeat", ANY, ""),
            )
            for unit, late in (("us", 10**18), ("s", 10**12))
        ),
        (
            one_series(ds=times("2262-04-11T16", "ns")),
            *("?model=repeat", ANY, "do not fit timestamp[ns]"),
        ),
    ],
)
def test_tables_that_are_refused(
    client: Client, table: pa.Table, query: str, place: str, message: str
) -> None:
    refused = error(client, table, query)
    assert refused["param"] == place
    assert message in refused["message"]
    assert "ds" not in table.column_names or refused["param"].startswith("ds")
