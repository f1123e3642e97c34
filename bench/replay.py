"""Replays a table through a server with a ledger: forecasts, and what came true of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from bench.in_process import InProcess

LEVELS = (0.025, 0.1, 0.9, 0.975)
# Intervals by name: the places of their quantiles.
INTERVALS = {"0.8": (1, 2), "0.95": (0, 3)}
# The two calibrations of quantiles, and the series under whose names they are in the ledger.
SERIES = {"stored": "stored", "ledger": "learning"}
_STEPS_OF_SEASON = 24
_PATIENCE = 120.0
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Table:
    """Rows to replay, an hour apart.

    Attributes:
        times: `[rows]`.
        values: `[rows, channels]`, the inputs of the model.
        target: The column of the channel that is forecast.
        start: Row of the first value that is forecast.
    """

    times: NDArray[np.datetime64]
    values: Floats
    target: int
    start: int


@dataclass(frozen=True)
class Replay:
    """The answers of a replay.

    Attributes:
        table: The rows of the replay.
        rows: Row of the first step of each forecast, `[origins]`.
        mean: `[origins, steps]`.
        quantiles: `[origins, levels, steps]`, by the calibration of the quantiles.
    """

    table: Table
    rows: NDArray[np.int64]
    mean: Floats
    quantiles: Mapping[str, Floats]

    def frame(self, calibration: str) -> pd.DataFrame:
        """A row for each forecast value: its origin, step, day, actual value and the rest.

        The forecast of repeating the last day is `naive`, and quantiles are under their levels.
        """
        origins, steps = self.mean.shape
        target = self.table.values[:, self.table.target]
        origin, step = np.divmod(np.arange(origins * steps), steps)
        row = self.rows[origin] + step
        frame = pd.DataFrame(
            {
                "origin": origin,
                "step": step + 1,
                "day": self.table.times[row].astype("datetime64[D]").astype(str),
                "total": "",
                "actual": target[row],
                "forecast": self.mean.ravel(),
                # Forecasts are made of numbers of 32 bits.
                "naive": target[row - _season(step)].astype(np.float32).astype(np.float64),
            }
        )
        for place, level in enumerate(LEVELS):
            frame[level] = self.quantiles[calibration][:, place].ravel()
        return frame


def _season(step: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows back to the same hour of the last day of the history."""
    return (step // _STEPS_OF_SEASON + 1) * _STEPS_OF_SEASON


def replay(server: InProcess, model: str, table: Table, sizes: tuple[int, int, int]) -> Replay:
    """Forecast each hour twice, with stored and with learning intervals, then tell what came true.

    Each hour waits until the ledger has learned all that it can. The values of the series with
    stored intervals come at the end, all at once.

    Args:
        sizes: Numbers of steps of the history and of the horizon, and of origins.
    """
    learner, (context, horizon, origins) = server.ledger.learner, sizes
    # An hour is enough to learn after each value.
    learner.duty = 1.0
    means: list[Floats] = []
    quantiles: dict[str, list[Floats]] = {name: [] for name in SERIES}
    rows = np.arange(table.start, table.start + origins)
    for row in rows.tolist():
        history = slice(row - context, row)
        for calibration, name in SERIES.items():
            answer = _forecast(server, model, _input(table, name, history), calibration)
            quantiles[calibration].append(np.array([*answer["quantiles"].values()]))
        means.append(np.array(answer["mean_forecast"]))
        _observe(server, model, table, SERIES["ledger"], slice(row, row + 1))
        if not learner.settle(_PATIENCE):
            raise RuntimeError(f"nothing was learned in {_PATIENCE:.0f} seconds")
        if (row - table.start) % (7 * 24) == 0:
            print(f"hour {row - table.start} of {origins}", flush=True)
    last = slice(table.start + origins, table.start + origins + horizon - 1)
    _observe(server, model, table, SERIES["ledger"], last)
    _observe(server, model, table, SERIES["stored"], slice(table.start, last.stop))
    stacked = {name: _single(np.stack(each)) for name, each in quantiles.items()}
    return Replay(table, rows, _single(np.stack(means)), stacked)


def _single(values: Floats) -> Floats:
    """The numbers of 32 bits that the answers spell, in 64 bits."""
    return values.astype(np.float32).astype(np.float64)


def _forecast(
    server: InProcess, model: str, series: Mapping[str, object], calibration: str
) -> dict[str, Any]:
    options = {"quantiles": LEVELS, "calibration": calibration}
    body = {"model": model, "inputs": [series], "options": options}
    content: dict[str, Any] = server.post("/forecast", body)["outputs"][0]["content"][0]
    return content


def _input(table: Table, name: str, rows: slice) -> dict[str, object]:
    values = table.values[rows]
    series = values if values.shape[1] > 1 else values[:, 0]
    return {"name": name, "series": series.tolist(), "start_timestamp": str(table.times[rows][0])}


def _observe(server: InProcess, model: str, table: Table, name: str, rows: slice) -> None:
    """Tell the actual values of rows."""
    server.post("/actuals", {"model": model, "inputs": [_input(table, name, rows)]})


def scores(frame: pd.DataFrame, by: str) -> pd.DataFrame:
    """The scores that the server computes, from the rows of a replay; one row for each group."""
    error = frame["forecast"] - frame["actual"]
    terms = frame[[by]].assign(
        count=1,
        mae=error.abs(),
        square=error**2,
        bias=error,
        naive_mae=(frame["naive"] - frame["actual"]).abs(),
    )
    for level in LEVELS:
        above = frame["actual"] - frame[level]
        terms[f"pinball {level}"] = np.maximum(level * above, (level - 1) * above)
    for name, (low, high) in INTERVALS.items():
        edges = frame[LEVELS[low]], frame[LEVELS[high]]
        terms[f"coverage {name}"] = frame["actual"].between(*edges)
        terms[f"width {name}"] = edges[1] - edges[0]
    groups = terms.groupby(by, observed=True)
    found = groups.mean()
    found["count"] = groups.size()
    found["rmse"] = np.sqrt(found.pop("square"))
    found["mase"] = found["mae"] / found["naive_mae"]
    return found


def difference(server: InProcess, model: str, done: Replay) -> float:
    """The largest relative difference of the server's scores from those of `scores`."""
    largest = 0.0
    for calibration, name in SERIES.items():
        frame = done.frame(calibration)
        for by in ("total", "step", "day"):
            target = f"/models/{model}/accuracy?series={name}&by={by}"
            expected = scores(frame, by)
            rows = server.get(target)["rows"]
            keys = [row.get(by, "") for row in rows]
            if keys != expected.index.tolist():
                raise RuntimeError(f"{target} has rows of other groups: {keys}")
            for row, (_, wanted) in zip(rows, expected.iterrows(), strict=True):
                found = _flat(row)
                for column, value in wanted.items():
                    apart = abs(found[str(column)] - value) / max(1.0, abs(value))
                    largest = max(largest, float(apart))
    return largest


def _flat(row: Mapping[str, Any]) -> dict[str, float]:
    """The scores of a row of the server under the names of `scores`."""
    plain = ("count", "mae", "rmse", "bias", "naive_mae", "mase")
    found: dict[str, float] = {name: row[name] for name in plain}
    for name, quantile in row["quantiles"].items():
        found[f"pinball {name}"] = quantile["pinball"]
    for name, interval in row["intervals"].items():
        found |= {f"{what} {name}": interval[what] for what in ("coverage", "width")}
    return found
