"""Forecasts of a table equal a server's answers for the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import ipc

from foretell.batch import windows
from foretell.batch.chunks import Chunk
from foretell.batch.forecaster import Forecaster
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.session import CpuSession
from tests.foretell.batch.tables import (
    HOUR,
    START,
    forecasts,
    hours,
    many,
    rejected,
    run,
    table,
    wave,
)
from tests.service.client import Client
from tests.support.bundles import Spec, write_bundle

NAN = float("nan")


def ask(client: Client, given: pa.Table, **options: Any) -> tuple[pa.Table, dict[str, Any]]:
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, given.schema) as writer:
        writer.write_table(given)
    answer = client.request(
        "POST",
        f"/forecast?{urlencode(options)}",
        content=sink.getvalue().to_pybytes(),
        headers={"Content-Type": "application/vnd.apache.arrow.stream"},
    )
    assert answer.status_code == 200, answer.text
    found = ipc.open_stream(answer.content).read_all()
    return found, json.loads(found.schema.metadata[b"foretell"])


def assert_same(found: pa.Table, answer: pa.Table, channel: str = "load") -> None:
    """Forecasts are those of an answer."""
    assert len(answer)
    for ours, theirs in (("unique_id", "unique_id"), ("ds", "ds"), ("forecast", channel)):
        assert found[ours].to_pylist() == answer[theirs].to_pylist()
    for name in answer.column_names:
        if name.startswith(f"{channel}_q"):
            assert found[name.removeprefix(f"{channel}_")].to_pylist() == answer[name].to_pylist()


def messes() -> pa.Table:
    """Series with every fault, and sound ones between them."""
    gap = wave(4, 12)
    gap[[5, 9]] = NAN
    start = wave(5, 12)
    start[:5] = NAN
    late = hours(8)
    late[6:] += HOUR
    back = hours(8)[[0, 1, 2, 3, 4, 6, 5, 7]]
    between = hours(8) + np.timedelta64(30, "m") * (np.arange(8) == 7)
    series = {
        "good": wave(0, 8),
        "longer": wave(1, 30),
        "short": wave(2, 7),
        "gap": gap,
        "start": start,
        "empty": np.full(9, NAN),
        "huge": np.append(wave(3, 9), 1e39),
        "infinite": np.append(wave(3, 9), -np.inf),
        "late": wave(6, 8),
        "back": wave(7, 8),
        "between": wave(8, 8),
        "twice": wave(8, 8),
        "no time": wave(9, 8),
        "far": wave(9, 8),
        "elsewhere": wave(10, 9),
        "largest": np.full(8, 3.4e38),
        "last": wave(11, 8),
    }
    times = {
        "late": late,
        "back": back,
        "between": between,
        "twice": np.concatenate([hours(7), hours(7)[-1:]]),
        "no time": np.append(hours(7), np.datetime64("NaT")),
        "far": hours(8, np.datetime64("9999-12-31T20", "us") - 7 * HOUR),
        "elsewhere": hours(9, START + 40 * HOUR),
    }
    return table(series, times=times)


# Faults of one series that make the whole request fail.
ALONE = {"huge", "infinite"}


@pytest.fixture(scope="module")
def served(models: Path) -> Iterator[tuple[Client, Path]]:
    """A server, and its repository, which has a model that reads missing values."""
    write_bundle(models, Spec("gaps", observed_steps=4, calibrated=2))
    with Client(models) as client:
        yield client, models


@pytest.mark.parametrize(
    ("model", "missing"),
    [
        *product(["calibrated", "calendar"], ["error", "interpolate", "ffill"]),
        ("gaps", "mask"),
    ],
)
def test_forecasts_and_rejections_equal_those_of_a_server(
    served: tuple[Client, Path], tmp_path: Path, model: str, missing: str
) -> None:
    client, models = served
    end = wave(12, 9)
    end[5:] = NAN
    given = pa.concat_tables([table({"end": end}), messes()])
    options = {"horizon": 6, "missing": missing}
    levels = () if model == "calendar" else (0.1, 0.9)
    summary = run(given, models / model / "1", tmp_path, quantiles=levels, **options)
    names = given["unique_id"].to_pylist()
    readable = given.filter(pa.array([name not in ALONE for name in names]))
    query = {"quantiles": ",".join(map(str, levels))} if levels else {}
    answer, notes = ask(client, readable, model=model, **options, **query)
    found = forecasts(tmp_path)
    assert_same(found, answer)
    assert answer.column_names.count("load_q0.9") == len(levels) // 2
    assert found["step"].to_pylist() == list(range(1, 7)) * (len(found) // 6)
    reasons = {each["unique_id"]: each["message"] for each in notes["errors"]}
    bad = rejected(tmp_path)
    assert bad.keys() == reasons.keys() | ALONE
    assert {name: bad[name]["reason"] for name in reasons} == reasons
    assert summary.counts == (len(found) // 6, len(bad))
    if missing == "mask":
        assert notes["masked"].keys() == {"gap", "start"} <= {*found["unique_id"].to_pylist()}
        assert reasons["end"].startswith("'load' has no value in the last 4 rows, by which the m")


def test_rejections_name_the_place(models: Path, tmp_path: Path) -> None:
    given = messes()
    run(given, models / "calibrated" / "1", tmp_path)
    rows, ids = given["load"].to_pylist(), given["unique_id"].to_pylist()
    bad = rejected(tmp_path)
    assert {each["file"] for each in bad.values()} == {"given.parquet"}
    for name in ("huge", "infinite", "gap"):
        assert ids[bad[name]["row"]] == name
        assert bad[name]["column"] == "load"
    assert rows[bad["huge"]["row"]] == 1e39
    assert bad["gap"]["row"] == ids.index("gap") + 5
    assert (bad["late"]["column"], bad["late"]["row"]) == ("ds", ids.index("late") + 6)
    assert bad["late"]["reason"].endswith("steps are missing before it")
    assert bad["short"]["row"] == ids.index("short")


@pytest.mark.parametrize("kind", ["naive", "UTC", "Europe/Berlin", "+02:00", "ns"])
def test_times_of_every_kind(client: Client, models: Path, tmp_path: Path, kind: str) -> None:
    given = many(3, 9)
    types = {"naive": pa.timestamp("us"), "ns": pa.timestamp("ns")}
    kind_of = types.get(kind, pa.timestamp("us", kind))
    given = given.set_column(1, "ds", given["ds"].cast(kind_of))
    run(given, models / "calendar" / "1", tmp_path)
    answer, _ = ask(client, given, model="calendar")
    assert forecasts(tmp_path)["ds"].type == kind_of
    assert_same(forecasts(tmp_path), answer)


def test_regular_series_are_not_read_one_by_one(
    models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(windows, "read_request")
    given = pa.concat_tables(
        [many(40, 8), table({"other": wave(0, 8)}, times={"other": hours(8, START + HOUR)})]
    )
    assert run(given, models / "calendar" / "1", tmp_path).counts == (41, 0)
    folder = write_bundle(tmp_path / "models", Spec("gaps", observed_steps=4))
    gap = wave(0, 8)
    gap[2] = NAN
    assert run(table({"gap": gap}), folder, tmp_path / "gaps", missing="mask").counts == (1, 0)


def test_rows_are_in_order_of_the_series(tmp_path: Path) -> None:
    gap = wave(0, 8)
    gap[4] = NAN
    overflowing = np.append(np.full(7, -3e38), 3e38)
    series = {"gap": gap, "far": overflowing, "good": wave(1, 8), "short": wave(2, 3)}
    bundle = write_bundle(tmp_path, Spec(calibrated=1))
    run(table(series), bundle, tmp_path, missing="ffill", quantiles=(0.9,))
    assert forecasts(tmp_path)["unique_id"].to_pylist()[::4] == ["gap", "good"]
    assert list(rejected(tmp_path)) == ["far", "short"]
    assert "is not finite" in rejected(tmp_path)["far"]["reason"]


@pytest.mark.parametrize("model", ["repeat", "calendar"])
def test_table_of_which_no_series_can_be_forecast(models: Path, tmp_path: Path, model: str) -> None:
    given = table({"short": wave(0, 3), "gap": np.full(8, NAN)})
    assert run(given, models / model / "1", tmp_path).counts == (0, 2)
    assert rejected(tmp_path).keys() == {"short", "gap"}
    assert len(forecasts(tmp_path)) == 0


def test_time_that_cannot_be_read_is_of_one_series(models: Path, tmp_path: Path) -> None:
    given = many(3)
    times = given["ds"].cast(pa.timestamp("ns")).to_numpy().copy()
    times[10] += np.timedelta64(1, "ns")
    given = given.set_column(1, "ds", pa.array(times))
    assert run(given, models / "calendar" / "1", tmp_path).counts == (2, 1)
    assert rejected(tmp_path)["s0001"]["column"] == "ds"


def test_months(client: Client, models: Path, tmp_path: Path) -> None:
    months = np.arange("2024-01", "2024-09", dtype="M8[M]").astype("M8[us]")
    given = table({"a": wave(0, 8), "b": wave(1, 8)}, times={"a": months, "b": months})
    run(given, models / "monthly" / "1", tmp_path)
    answer, _ = ask(client, given, model="monthly")
    assert_same(forecasts(tmp_path), answer)


def test_weeks_of_another_day(tmp_path: Path) -> None:
    bundle = write_bundle(tmp_path, Spec(frequency="W-MON"))
    monday = START + np.timedelta64(7, "D") * np.arange(8)
    times = {"good": monday, "late": monday + np.timedelta64(2, "D")}
    given = table({name: wave(0, 8) for name in times}, times=times)
    assert run(given, bundle, tmp_path).counts == (1, 1)
    assert (rejected(tmp_path)["late"]["column"], rejected(tmp_path)["late"]["row"]) == ("ds", 8)
    [first, *_] = forecasts(tmp_path)["ds"].to_pylist()
    assert first == START.item() + 8 * timedelta(days=7)


def test_several_channels(client: Client, models: Path, tmp_path: Path) -> None:
    names = [f"s{number:04d}" for number in range(5)]
    series = {name: wave(number, 10) for number, name in enumerate(names)}
    times = {name: hours(10, START + number * HOUR) for number, name in enumerate(names)}
    given = table(series, times=times)
    wind = np.arange(50.0)
    given = given.append_column("wind", pa.array(wind, mask=wind == 49))
    run(given, models / "multi" / "1", tmp_path)
    answer, _ = ask(client, given, model="multi")
    found = forecasts(tmp_path)
    for channel in ("load", "wind"):
        own = found.filter(pa.array([each == channel for each in found["channel"].to_pylist()]))
        assert_same(own, answer, channel)
    assert rejected(tmp_path)["s0004"]["column"] == "wind"


def test_without_times(models: Path, tmp_path: Path) -> None:
    run(many(3).drop_columns(["ds"]), models / "repeat" / "1", tmp_path)
    found = forecasts(tmp_path)
    assert found.column_names[:3] == ["unique_id", "step", "forecast"]
    assert found["forecast"].to_pylist()[::4] == [
        np.float32(wave(number, 8)[-1]) for number in range(3)
    ]


def test_no_batch_has_a_single_window(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime rounds a single window otherwise: a forecast would depend on its batch."""
    forecaster = Forecaster(models / "repeat" / "1", ForecastOptions(), "cpu")
    sizes: list[int] = []
    run = CpuSession.run

    def watched(self: CpuSession, feeds: dict, worker: int = 0) -> dict:
        sizes.append(len(feeds["history"]))
        return run(self, feeds, worker)

    monkeypatch.setattr(CpuSession, "run", watched)
    for count in range(1, 2 * forecaster.model.max_batch + 2):
        names, bounds = pa.array(range(count)), np.arange(count + 1) * 8
        rows = many(count).drop_columns(["unique_id"])
        [found], rejected = forecaster.forecast(Chunk(rows, names, bounds[:-1], bounds[1:], 0))
        assert not rejected
        last = [np.float32(wave(number, 8)[-1]) for number in range(count)]
        assert found.layers[0, :, 0, 0].tolist() == last
    forecaster.close()
    assert 1 not in sizes
