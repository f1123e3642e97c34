"""Tables to forecast, and the forecasts that were written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import dataset, parquet

from foretell.batch.plan import Part
from foretell.batch.prepare import Task
from foretell.batch.run import Summary, forecast_table
from foretell.batch.work import Done, Work, Worker

START = np.datetime64("2024-01-01", "us")
HOUR = np.timedelta64(1, "h")


def hours(count: int, start: np.datetime64 = START) -> np.ndarray:
    return start + HOUR * np.arange(count)


def table(
    series: dict[str, Any], *, times: dict[str, Any] | None = None, channel: str = "load"
) -> pa.Table:
    """Values of one channel by the name of the series; a row an hour unless times are given."""
    ids = [name for name, values in series.items() for _ in values]
    all_times = [(times or {}).get(name, hours(len(series[name]))) for name in series]
    values = np.concatenate([np.array(each, np.float64) for each in series.values()])
    return pa.table({"unique_id": ids, "ds": np.concatenate(all_times), channel: values})


def wave(number: int, rows: int) -> np.ndarray:
    """Values of a series that no other has."""
    return np.sin(np.arange(rows) / 3 + number) * (1 + number % 7) / 8


def many(count: int, rows: int = 8) -> pa.Table:
    return table({f"s{number:04d}": wave(number, rows) for number in range(count)})


def here(work: Work, parts: Sequence[Part]) -> Iterator[Done]:
    """Run parts in this process."""
    worker = Worker(work)
    try:
        yield from map(worker.run, parts)
    finally:
        worker.close()


def task(path: object, folder: Path, bundle: Path, **options: Any) -> Task:
    """A task that forecasts into `folder/out`."""
    return Task(str(path), str(folder / "out"), bundle, device="cpu", **options)


def run(
    given: pa.Table | Path, bundle: Path, folder: Path, *, part_rows: int = 100, **options: Any
) -> Summary:
    """Forecast a table into `folder/out`."""
    path = given
    if not isinstance(given, Path):
        folder.mkdir(exist_ok=True)
        path = folder / "given.parquet"
        parquet.write_table(given, path, row_group_size=64)
    return forecast_table(task(path, folder, bundle, **options), here, part_rows=part_rows)


def forecasts(folder: Path) -> pa.Table:
    return dataset.dataset(folder / "out" / "forecasts").to_table()


def rejected(folder: Path) -> dict[str, dict[str, Any]]:
    """Rows of rejected series, by their names."""
    place = folder / "out" / "rejected"
    rows = dataset.dataset(place).to_table().to_pylist() if place.exists() else []
    return {row["unique_id"]: row for row in rows}
