"""Every case of `python -m bench` with `--quick`."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench.__main__ import CASES, RESEARCH, measure
from bench.harness import Run
from bench.research.covariates import FACTS, TARGET, WEATHER
from tests.checkpoints import CONFIGS, checkpoint_of
from tests.support.stand_in.machine import TOOL

# They train, start several servers, or measure for a while.
_SLOW = ("accuracy", "attention", "batch", "counts", "endurance", "gpu", "server", "wide")


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if case in _SLOW else ())
        for case in (*CASES, *RESEARCH)
    ],
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.timeout(600)
def test_every_case_runs_with_quick(case: str, tmp_path: Path) -> None:
    if "needs wrk" in CASES.get(case, "") and shutil.which("wrk") is None:
        pytest.skip("wrk is not installed")
    if case == "gpu" and not TOOL.exists():
        pytest.skip(f"{TOOL} is not there")
    data: tuple[Path, ...] = ()
    if case in ("coverage", "history"):
        data = (_checkpoint(tmp_path / "trained"),)
    if case == "accuracy":
        data = (_table(tmp_path / "data" / "ETTh1.csv", 14_400).parent,)
    if case == "covariates":
        data = (_bikes(tmp_path / "bikes.csv"),)
    only = {"accuracy": ("dlinear/etth1-96",), "covariates": ("dlinear",)}.get(case, ())
    folder = tmp_path / "run"
    folder.mkdir()
    result = measure(case, Run(folder, quick=True, data=data, only=only))
    assert result.tables
    for name, rows in result.tables.items():
        assert rows, name
        cells = [cell for row in rows for cell in row.values()]
        assert all(cell >= 0 and math.isfinite(cell) for cell in cells if not isinstance(cell, str))
    # Other cases fail where a number is too low, which a busy machine may cause.
    assert case not in ("gpu", "replay") or result.failures == []


def _table(path: Path, rows: int) -> Path:
    path.parent.mkdir(exist_ok=True)
    names = ["HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"]
    noise = pd.DataFrame(np.random.default_rng(1).normal(size=(rows, 7)), columns=names)
    noise.insert(0, "date", pd.date_range("2024-01-01", periods=rows, freq="h"))
    noise.to_csv(path, index=False)
    return path


def _bikes(path: Path, rows: int = 1000) -> Path:
    noise = np.random.default_rng(1).normal(size=(rows, len(WEATHER) + 1))
    frame = pd.DataFrame(noise, columns=[TARGET, *WEATHER])
    frame["weathersit"] = np.where(noise[:, 0] > 0, "clear", "rain")
    frame.insert(0, "time", pd.date_range("2011-01-01", periods=rows, freq="h"))
    for name in FACTS:
        frame[name] = frame["time"].dt.day_of_week > 4
    frame.to_csv(path, index=False)
    return path


def _checkpoint(folder: Path) -> Path:
    config = CONFIGS["patchtst"].model_copy(update={"channels": 7})
    return checkpoint_of(config, _table(folder.with_name("noise.csv"), 1500), folder)
