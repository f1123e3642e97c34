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

# As tables of the service have them.
_SERIES, _TIME = "unique_id", "ds"
STDOUT = Path("-")
KINDS = (".csv", ".json", ".parquet")


def check_output(path: Path, *, overwrite: bool) -> None:
    """Make sure, before anything is asked for, that a file can be written.

    Raises:
        RefusedError: its name has no known ending, its folder is not there, or it is.
    """
    if path != STDOUT:
        check_writable(path, KINDS, overwrite=overwrite)


def to_frame(forecasts: Sequence[Forecast]) -> pd.DataFrame:
    """A row for each series and step.

    Columns are `unique_id`, where series have names, `ds`, the targets, `<target>_q<level>`, and
    `<target>_actual` where rows were held back.
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
    """Write CSV, JSON (a list of objects) or Parquet, by the ending; CSV to standard output.

    A file appears whole or not at all. Times with UTC offsets are written as UTC in Parquet, and as
    the server wrote them in text.
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
            # All digits; pandas' own JSON has so many decimals, few of a small number's.
            plain = frame.astype(object).where(frame.notna(), None)
            hidden.write_text(json.dumps(plain.to_dict("records"), indent=1), "utf-8")
        else:
            frame.to_parquet(hidden, index=False)
