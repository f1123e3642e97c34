from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import history
from bench.history import SERVED, Errors, judge, methods
from foretell.bundle.calibration import Calibration, order_statistics, stored_levels
from tests.checkpoints import CONFIGS, checkpoint_of

STEPS, CHANNELS, KNOWN = 6, 2, 400
LEVELS = stored_levels([499])


def drawn(count: int, seed: int, shift: float = 0.0, spread: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, spread, (count, STEPS, CHANNELS))


STORED = Calibration(LEVELS, order_statistics(drawn(499, 0), LEVELS))


def of(known: np.ndarray, coming: np.ndarray) -> Errors:
    """Forecasts that all have the same past."""
    scaled = np.concatenate([known, coming])
    past = np.arange(len(known))
    return Errors(
        scaled,
        np.ones((len(scaled), 1, CHANNELS)),
        np.arange(len(known), len(scaled)),
        [past] * len(coming),
    )


@pytest.mark.parametrize("name", methods(STORED, STEPS))
def test_errors_as_before_are_held(name: str) -> None:
    errors = of(drawn(KNOWN, 1), drawn(200, 2))
    held, width, score = judge(errors, methods(STORED, STEPS)[name], 0.8)
    assert held == pytest.approx(0.8, abs=0.04)
    assert width == pytest.approx(2 * 1.2816, rel=0.1)
    assert score > width


@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_other_errors_are_held_by_all_but_the_stored_ones(shift: float) -> None:
    errors = of(drawn(KNOWN, 1, shift, 2.0), drawn(200, 2, shift, 2.0))
    held = {name: judge(errors, method, 0.8)[0] for name, method in methods(STORED, STEPS).items()}
    assert held.pop("stored errors alone") < 0.6
    assert all(share > 0.73 for share in held.values()), held
    assert SERVED in held


def test_prints_a_row_for_each_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    noise = pd.DataFrame(np.random.default_rng(1).normal(size=(1500, 3)), columns=["a", "b", "c"])
    noise.insert(0, "date", pd.date_range("2024-01-01", periods=len(noise), freq="h"))
    noise.to_csv(tmp_path / "noise.csv", index=False)
    config = CONFIGS["patchtst"].model_copy(update={"targets": (0, 2)})
    trained = checkpoint_of(config, tmp_path / "noise.csv", tmp_path / "trained")
    monkeypatch.setattr(sys, "argv", ["history", str(trained), "--rows", "300"])
    history.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| trained")]
    assert len(rows) == len(methods(STORED, STEPS))
    held = {row.split(" | ")[1]: float(row.split(" | ")[2].split("%")[0]) for row in rows}
    assert held[SERVED] == pytest.approx(80, abs=6)
