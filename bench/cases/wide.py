"""Peak memory of very many channels and of very many series, by command of foretell."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from pyarrow import parquet

from bench.harness import Result, Row, Run

# The fewest rows with which every split has windows: memory does not depend on the number.
_ROWS, _SPLITS = 700, "0.66,0.16,0.18"
_WIDE: dict[str, Any] = {"context": 336, "horizon": 96, "batch_size": 4, "splits": _SPLITS}
_WIDE_MODEL = {"d_model": 128, "heads": 16, "d_ff": 256, "encoder_layers": 3}
# Daily series are between four and fourteen months long.
_LENGTHS = (120, 420)
_LONG: dict[str, Any] = {"context": 56, "horizon": 14, "batch_size": 512}
_LONG_MODEL = {"patch": 7, "stride": 7}


def measure(run: Run) -> Result:
    """Train, export and verify a PatchTST of each."""
    tables: dict[str, list[Row]] = {}
    if run.wants("series"):
        data = _write_series(run.folder / "long.parquet", run.pick(10_000, 40))
        tables["series"] = _commands(data, _LONG, _LONG_MODEL, run.folder / "long")
    if run.wants("channels"):
        data = _write_channels(run.folder / "wide.csv", run.pick(862, 4))
        tables["channels"] = _commands(data, _WIDE, _WIDE_MODEL, run.folder / "wide")
    return Result(dict(tables))


def _commands(
    data: Path, options: Mapping[str, Any], model: Mapping[str, Any], folder: Path
) -> list[Row]:
    """Peak and CPU time of each command."""
    checkpoint, repository = folder / "model", folder / "repository"
    settings = {"arch": "patchtst", "epochs": 1, **options}
    settings |= {f"model.{name}": value for name, value in model.items()}
    given = [f"--set={name}={value}" for name, value in settings.items()]
    train = ("train", "--data", data, "--out", checkpoint)
    return [
        _peak(*train, *given),
        _peak("export", checkpoint, "--out", repository),
        _peak("verify", repository / "model" / "1", "--checkpoint", checkpoint),
    ]


def _peak(*arguments: object) -> Row:
    """Peak resident MiB of a command, and its CPU seconds."""
    print("foretell", arguments[0], flush=True)
    child = subprocess.Popen([sys.executable, "-m", "foretell", *map(str, arguments)])
    # Unlike `child.wait`, this returns the child's use of memory and CPU.
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise RuntimeError(f"foretell {arguments[0]} ended with {child.returncode}")
    return {
        "command": f"`foretell {arguments[0]}`",
        "MiB": round(used.ru_maxrss / 1024),
        "CPU seconds": round(used.ru_utime + used.ru_stime),
    }


def _write_channels(path: Path, channels: int) -> Path:
    """Daily cycles with noise."""
    random = np.random.default_rng(0)
    hour = np.arange(_ROWS)[:, None]
    cycle = np.sin(2 * np.pi * (hour / 24 + random.uniform(size=channels)))
    values = 50 + 10 * cycle + random.normal(0, 3, (_ROWS, channels))
    columns = {f"c{i}": values[:, i] for i in range(channels)}
    index = pd.date_range("2024-01-01", periods=_ROWS, freq="h")
    pd.DataFrame({"date": index} | columns).to_csv(path, index=False, float_format="%.4f")
    return path


def _write_series(path: Path, series: int) -> Path:
    """Weekly cycles with noise, of sizes from ones to thousands."""
    random = np.random.default_rng(0)
    lengths = random.integers(*_LENGTHS, series, endpoint=True)
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
    return path
