"""Whole tables with covariates: forecasts equal a server's answers for the same rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import csv, parquet

from foretell.batch.errors import BatchError
from foretell.batch.prepare import prepare
from tests.foretell.batch.tables import forecasts, rejected, run, task
from tests.service.client import Client
from tests.service.forecast.bodies import notes_of, table_of
from tests.service.forecast.shops import (
    CONTEXT,
    HORIZON,
    KIOSK,
    SHOP,
    kiosk,
    models,
    server,
    shop,
)
from tests.service.forecast.test_table_covariates import TARGETS, columns_of, joined

__all__ = ["models", "server"]

SPECS = {"shop": SHOP, "kiosk": KIOSK}
SERVED = tuple(SPECS.values())


def columns(model: str, count: int, ahead: int = HORIZON) -> dict[str, list[Any]]:
    parts = []
    for number in range(count):
        rows = CONTEXT + number % 5
        entry = kiosk(rows, number) if model == "kiosk" else shop(rows, ahead, number)
        parts.append(columns_of(entry, model, f"s{number:02}"))
    return joined(*parts)


def written(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".csv":
        csv.write_csv(table, path)
    else:
        parquet.write_table(table, path, row_group_size=50)
    return path


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
@pytest.mark.parametrize(
    ("model", "horizon", "missing"),
    [
        ("shop", 4, "error"),
        ("shop", 7, "interpolate"),
        ("kiosk", 4, "ffill"),
        ("kiosk", 2, "error"),
    ],
)
def test_forecasts_equal_those_of_a_server(
    server: Client,
    models: Path,
    tmp_path: Path,
    model: str,
    horizon: int,
    missing: str,
    ending: str,
) -> None:
    given = columns(model, 12, ahead=-(-horizon // HORIZON) * HORIZON)
    wrong = "sky" if model == "shop" else "staff"
    given[wrong][30] = "fog"
    if missing != "error":
        given["price"][5] = given[wrong][3] = None
    table = pa.table(given)
    path = written(table, tmp_path / f"given{ending}")
    run(path, models / model / "1", tmp_path, horizon=horizon, missing=missing, part_rows=60)
    query = f"/forecast?model={model}&horizon={horizon}&missing={missing}"
    answer = table_of(server.send_table(table, query))
    found = forecasts(tmp_path).sort_by([("unique_id", "ascending"), ("step", "ascending")])
    assert found["unique_id"].unique().to_pylist() == answer["unique_id"].unique().to_pylist()
    values = found["forecast"].to_numpy()
    if len(TARGETS[model]) > 1:
        first = pa.compute.equal(found["channel"], TARGETS[model][0])
        values = found.filter(first)["forecast"].to_numpy()
    np.testing.assert_array_equal(values, answer[TARGETS[model][0]].to_numpy())
    (error,) = notes_of(answer)["errors"]
    (row,) = rejected(tmp_path).values()
    assert (row["unique_id"], row["column"]) == (error["unique_id"], wrong)
    assert row["reason"] == error["message"]


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_columns_are_checked_before_anything_is_written(
    models: Path, tmp_path: Path, ending: str
) -> None:
    for name, change, message in (
        ("price", None, "expected one column 'price'"),
        ("price", "cheap", "column 'price': expected (a column of )?numbers"),
        ("open", "often", "column 'open': expected (a column of booleans|true or false)"),
        ("size", None, "expected one column 'size'"),
    ):
        given = columns("shop", 2)
        if change is None:
            del given[name]
        else:
            given[name] = [change] * len(given[name])
        path = written(pa.table(given), tmp_path / f"given{ending}")
        with pytest.raises(BatchError, match=message):
            prepare(task(path, tmp_path, models / "shop" / "1"))


def test_cells_of_csv_that_are_no_booleans_reject_their_series(
    models: Path, tmp_path: Path
) -> None:
    given = columns("shop", 3)
    given["open"] = [str(value).lower() for value in given["open"]]
    given["open"][1] = "often"
    path = written(pa.table(given), tmp_path / "given.csv")
    run(path, models / "shop" / "1", tmp_path)
    (row,) = rejected(tmp_path).values()
    assert (row["unique_id"], row["column"]) == ("s00", "open")
    assert row["reason"] == "expected true or false, got the string 'often'"


def test_series_without_their_future_are_rejected(models: Path, tmp_path: Path) -> None:
    given = {name: values[: CONTEXT + 12] for name, values in columns("shop", 2).items()}
    run(pa.table(given), models / "shop" / "1", tmp_path)
    assert len(forecasts(tmp_path)) == HORIZON * 2
    (row,) = rejected(tmp_path).values()
    assert row["unique_id"] == "s01"
    assert row["reason"].startswith("expected 4 rows after the last value of sales, returns")


@pytest.mark.parametrize("missing", ["error", "ffill"])
def test_chunk_holds_all_that_is_read_of_a_series(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str
) -> None:
    monkeypatch.setattr("foretell.batch.prepare._VALUES", 1000)
    path = written(pa.table(columns("shop", 2, ahead=2 * HORIZON)), tmp_path / "given.parquet")
    work, _ = prepare(task(path, tmp_path, models / "shop" / "1", horizon=7, missing=missing))
    # Two targets, three future covariates and two static ones.
    assert work.last == (1 if missing == "error" else 2) * CONTEXT + 2 * HORIZON
    assert work.most == 1000 // (work.last * 7)
