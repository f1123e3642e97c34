"""Forecasts as a table in a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from foretell.files import check_writable, written_whole
from foretell.predict.forecasts import Forecast

# Column names of tables of the service.
_SERIES, _TIME = "unique_id", "ds"
STDOUT = Path("-")
KINDS = (".csv", ".json", ".parquet")


def check_output(path: Path, *, overwrite: bool) -> None:
    """Check, before the first request, that a file can be written.

    Raises:
        RefusedError: the suffix is unknown, the folder does not exist, or the file does.
    """
    if path != STDOUT:
        check_writable(path, KINDS, overwrite=overwrite)


def to_frame(forecasts: Sequence[Forecast]) -> pd.DataFrame:
    """A row for each series and step.

    The columns are `unique_id` (if series have names), `ds`, the targets, `<target>_q<level>`, and
    `<target>_actual` (if rows were held out).
    """
    return pd.concat([_frame(one) for one in forecasts], ignore_index=True)


def _frame(forecast: Forecast) -> pd.DataFrame:
    columns: dict[str, object] = {_SERIES: forecast.series} if forecast.series else {}
    columns[_TIME] = pd.to_datetime(forecast.times, format="ISO8601", utc=_has_offset(forecast))
    for place, name in enumerate(forecast.targets):
        columns[name] = forecast.values[:, place]
    for level, values in forecast.quantiles.items():
        for place, name in enumerate(forecast.targets):
            columns[f"{name}_q{level:g}"] = values[:, place]
    for place, name in enumerate(forecast.targets if len(forecast.actual) else ()):
        known = np.full(len(forecast.times), np.nan)
        known[: len(forecast.actual)] = forecast.actual[:, place]
        columns[f"{name}_actual"] = known
    return pd.DataFrame(columns)


def _has_offset(forecast: Forecast) -> bool:
    return forecast.history.utc_offset is not None


def write(forecasts: Sequence[Forecast], path: Path) -> None:
    """Write CSV, JSON (a list of objects) or Parquet, by the suffix; CSV to standard output.

    A file is written atomically. In Parquet, times with UTC offsets are in UTC; in text, they are
    as the server wrote them.
    """
    frame = to_frame(forecasts)
    if path.suffix != ".parquet":
        frame[_TIME] = [time for one in forecasts for time in one.times]
    if path == STDOUT:
        frame.to_csv(sys.stdout, index=False)
        return
    with written_whole(path) as hidden:
        if path.suffix == ".csv":
            frame.to_csv(hidden, index=False)
        elif path.suffix == ".json":
            # Unlike `DataFrame.to_json`, which limits decimals, this keeps all digits.
            plain = frame.astype(object).where(frame.notna(), None)
            hidden.write_text(json.dumps(plain.to_dict("records"), indent=1), "utf-8")
        else:
            frame.to_parquet(hidden, index=False)
