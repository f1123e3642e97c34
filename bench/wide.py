"""Peak memory of very many channels, and of very many series: `python -m bench.wide`.

Trains, exports and verifies a PatchTST on the command line, each in a process of its own, and
writes its parts of docs/benchmarks.md; `--only long` takes minutes. `--quick` takes few channels
and series, and prints the parts.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from bench.page import PAGE, machine, table, write_part
from foretell.data.splits import Splits

CHANNELS, FEW_CHANNELS = 862, 8
SERIES, FEW_SERIES = 10_000, 40
# As few rows as every split has windows in: memory does not grow with their number.
ROWS, SPLITS = 700, "0.66,0.16,0.18"
MODEL = {
    "arch": "patchtst",
    "context": 336,
    "horizon": 96,
    "model.d_model": 128,
    "model.heads": 16,
    "model.d_ff": 256,
    "model.encoder_layers": 3,
    "batch_size": 4,
    "epochs": 1,
    "splits": SPLITS,
}
# Of daily series, between four and fourteen months long.
LENGTHS = (120, 420)
LONG_MODEL: dict[str, Any] = {
    "arch": "patchtst",
    "context": 56,
    "horizon": 14,
    "model.patch": 7,
    "model.stride": 7,
    "batch_size": 512,
    "epochs": 1,
}
Peaks = dict[str, tuple[float, float]]
_TEXT = """\
## Many channels

`make bench-wide` wrote this part: the most memory that each command had resident at a time, and
what it took of the CPUs, for a PatchTST of {channels} channels: context 336, horizon 96, patches of
16 steps every 8, 128 features, 16 heads, 3 layers, trained for an epoch in batches of 4 windows.
One map of one window has {numbers:.0f} million numbers; float64 for all layers takes
{size:.0f} MiB.

{machine}

{rows}
Most of what training takes are activations of a batch, which `batch_size` decides; of one that
would keep more than 2 GiB, as this, what is inside of a layer is computed once more instead of
kept, for some channels after the others (`models/layers/encoder.py`). All else runs as many windows
at a time as fit (`models/batches.py`).
"""
_LONG_TEXT = """\
## Many series

`make bench-wide` wrote this part: the same of one PatchTST for {series:,} series of one channel,
{rows:,} daily rows in a Parquet file of {size:.0f} MB, {shortest} to {longest} of each: context 56,
horizon 14, patches of a week, 16 features, one epoch in batches of 512. Its {windows:,} training
windows would be {bytes:,.0f} MiB if they were kept as such.

{machine}

{table}
"""


def peak_of(*arguments: str | Path) -> tuple[float, float]:
    """MiB that a subcommand of foretell had resident at most, and seconds of CPUs that it took.

    Raises:
        SystemExit: it failed.
    """
    print("foretell", *arguments[:1], flush=True)
    child = subprocess.Popen([sys.executable, "-m", "foretell", *map(str, arguments)])
    # Unlike `child.wait`, it tells what the child used.
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"foretell {arguments[0]} ended with {child.returncode}")
    return used.ru_maxrss / 1024, used.ru_utime + used.ru_stime


def measure(data: Path, model: Mapping[str, Any], folder: Path) -> Peaks:
    """Peak and seconds of each command."""
    checkpoint = folder / "model"
    train = peak_of("train", "--data", data, "--out", checkpoint, *options(model))
    export = peak_of("export", checkpoint, "--out", folder / "repository")
    bundle = folder / "repository" / "model" / "1"
    verify = peak_of("verify", bundle, "--checkpoint", checkpoint)
    return {"train": train, "export": export, "verify": verify}


def options(settings: Mapping[str, Any]) -> list[str]:
    """Settings as a command line has them."""
    return [f"--set={name}={value}" for name, value in settings.items()]


def _write_data(path: Path, channels: int) -> None:
    """Daily cycles with noise."""
    random = np.random.default_rng(0)
    hour = np.arange(ROWS)[:, None]
    cycle = np.sin(2 * np.pi * (hour / 24 + random.uniform(size=channels)))
    values = 50 + 10 * cycle + random.normal(0, 3, (ROWS, channels))
    columns = {f"c{i}": values[:, i] for i in range(channels)}
    index = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    pd.DataFrame({"date": index} | columns).to_csv(path, index=False, float_format="%.4f")


def _write_long(path: Path, series: int) -> list[int]:
    """Weekly cycles with noise, of sizes from ones to thousands; returns the rows of each."""
    random = np.random.default_rng(0)
    lengths = random.integers(*LENGTHS, series, endpoint=True)
    first = np.repeat(np.cumsum(lengths) - lengths, lengths)
    day = np.arange(lengths.sum()) - first
    level = np.repeat(np.exp(random.normal(4, 2, series)), lengths)
    cycle = np.sin(2 * np.pi * day / 7 + np.repeat(random.uniform(0, 7, series), lengths))
    values = level * (1 + 0.5 * cycle + random.normal(0, 0.2, len(day)))
    columns = {
        "unique_id": np.repeat([f"series-{index}" for index in range(series)], lengths),
        "ds": np.datetime64("2023-01-01", "us") + day * np.timedelta64(1, "D"),
        "y": values.round(2),
    }
    parquet.write_table(pa.table(columns), path)
    return list(map(int, lengths))


def _rows(found: Peaks) -> str:
    rows = (
        (f"`foretell {name}`", f"{peak:,.0f}", f"{seconds:.0f}")
        for name, (peak, seconds) in found.items()
    )
    return table(("command", "MiB", "CPU seconds"), rows)


def _long_text(lengths: list[int], size: float, found: Peaks) -> str:
    horizon = LONG_MODEL["horizon"]
    steps = LONG_MODEL["context"] + horizon
    trained_on = (Splits.by_fraction().ends_of(rows, horizon)[0] for rows in lengths)
    windows = sum(rows - steps + 1 for rows in trained_on)
    return _LONG_TEXT.format(
        series=len(lengths),
        rows=sum(lengths),
        size=size / 1e6,
        shortest=min(lengths),
        longest=max(lengths),
        windows=windows,
        bytes=windows * steps * 4 / 2**20,
        machine=machine("torch", "onnxruntime"),
        table=_rows(found),
    )


def _text(channels: int, found: Peaks) -> str:
    patches = (336 - 16) // 8 + 2
    numbers = channels * 16 * patches**2
    return _TEXT.format(
        channels=channels,
        numbers=numbers / 1e6,
        size=3 * 8 * numbers / 2**20,
        machine=machine("torch", "onnxruntime"),
        rows=_rows(found),
    )


def main() -> None:
    """Measure, and write or print the parts."""
    parser = argparse.ArgumentParser(prog="python -m bench.wide", description=__doc__)
    parser.add_argument("--only", choices=("wide", "long"), help="one part of the two")
    parser.add_argument("--quick", action="store_true", help="few of them, and write nothing")
    given = parser.parse_args()
    for part in (given.only,) if given.only else ("long", "wide"):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            if part == "wide":
                channels = FEW_CHANNELS if given.quick else CHANNELS
                data = folder / "wide.csv"
                _write_data(data, channels)
                text = _text(channels, measure(data, MODEL, folder))
            else:
                data = folder / "long.parquet"
                lengths = _write_long(data, FEW_SERIES if given.quick else SERIES)
                size = data.stat().st_size
                text = _long_text(lengths, size, measure(data, LONG_MODEL, folder))
        if given.quick:
            print(text)
        else:
            write_part(part, text)
            print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
