from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bench import coverage
from bench.coverage import SERVED, Sample, measure, scales
from tests.checkpoints import CONFIGS, checkpoint_of


def drawn(windows: int, size: float, seed: int) -> Sample:
    random = np.random.default_rng(seed)
    history = random.normal(0, size, (windows, 200, 1))
    return Sample(history, random.normal(0, size, (windows, 5, 1)))


def test_an_interval_that_does_not_follow_the_data_holds_less_and_scores_worse() -> None:
    known, coming = drawn(2000, 1.0, 0), drawn(500, 2.0, 1)
    held, width, score = measure(known, coming, SERVED, 0.8, signed=True)
    assert held == pytest.approx(0.8, abs=0.03)
    assert width == pytest.approx(2 * 2 * 1.2816, rel=0.03)
    plain = measure(known, coming, "none", 0.8, signed=True)
    assert plain[0] < 0.55
    assert plain[1] == pytest.approx(width / 2, rel=0.05)
    assert plain[2] > score


def test_the_score_is_the_width_and_ten_times_what_lies_beyond() -> None:
    known = Sample(np.ones((9, 4, 1)), np.arange(-4.0, 5.0)[:, None, None])
    coming = Sample(np.ones((2, 4, 1)), np.array([0.0, 6.0])[:, None, None])
    # Nine errors bear no more than an interval from the first to the last of them.
    held, width, score = measure(known, coming, "none", 0.8, signed=True)
    assert (held, width) == (0.5, 8.0)
    assert score == pytest.approx(8 + 10 * 2 / 2)


def test_every_scale_is_positive_for_a_history_that_does_not_move() -> None:
    for scale in scales(np.zeros((3, 10, 2))).values():
        assert scale.shape == (3, 1, 2)
        assert (scale > 0).all()


# One that does not forecast all that it reads does not go on from its forecasts.
@pytest.mark.parametrize(("targets", "passes"), [(None, 4), ((0, 2), 1)])
def test_prints_a_row_for_each_pass_and_method(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    targets: tuple[int, ...] | None,
    passes: int,
) -> None:
    noise = pd.DataFrame(np.random.default_rng(1).normal(size=(1500, 3)), columns=["a", "b", "c"])
    noise.insert(0, "date", pd.date_range("2024-01-01", periods=len(noise), freq="h"))
    noise.to_csv(tmp_path / "noise.csv", index=False)
    config = CONFIGS["patchtst"].model_copy(update={"targets": targets})
    trained = checkpoint_of(config, tmp_path / "noise.csv", tmp_path / "trained")
    monkeypatch.setattr(sys, "argv", ["coverage", str(trained)])
    coverage.main()
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| trained")]
    assert len(rows) == passes + 6
    assert rows[0].startswith("| trained | 1 to 12 | 139 | 12 | ")
    assert SERVED in rows[passes + 1]
