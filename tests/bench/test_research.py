"""The arithmetic of the research: intervals and faithful maps."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from bench.research.accuracy import table
from bench.research.attention import _by_step, faithfulness
from bench.research.intervals import SCALE, SERVED, Errors, Sample, held, judge, methods, scales
from foretell.bundle.attention import Axis, stage
from foretell.bundle.calibration import Calibration, order_statistics, stored_levels
from foretell.bundle.scaler import Scaler
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.data.table import Table
from foretell.models.architectures.dlinear import DLinearConfig
from foretell.models.attention.evidence import Dense, Sparse
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained, Inputs
from foretell.timeaxis.frequency import Frequency
from foretell.training.windows import Windows

STEPS, CHANNELS, KNOWN = 6, 2, 400
LEVELS = stored_levels([499])
HOUR = Frequency.parse("h")


def sample(windows: int, size: float, seed: int) -> Sample:
    random = np.random.default_rng(seed)
    history = random.normal(0, size, (windows, 200, 1))
    return Sample(history, random.normal(0, size, (windows, 5, 1)))


def test_interval_of_other_data_covers_less_and_scores_worse() -> None:
    known, later = sample(2000, 1.0, 0), sample(500, 2.0, 1)
    share, width, score = held(known, later, SCALE, 0.8, signed=True)
    assert share == pytest.approx(0.8, abs=0.03)
    assert width == pytest.approx(2 * 2 * 1.2816, rel=0.03)
    plain = held(known, later, "none", 0.8, signed=True)
    assert plain[0] < 0.55
    assert plain[1] == pytest.approx(width / 2, rel=0.05)
    assert plain[2] > score


def test_score_is_the_width_and_ten_times_the_excess() -> None:
    known = Sample(np.ones((9, 4, 1)), np.arange(-4.0, 5.0)[:, None, None])
    later = Sample(np.ones((2, 4, 1)), np.array([0.0, 6.0])[:, None, None])
    # The widest interval of nine errors is from the smallest to the largest one.
    share, width, score = held(known, later, "none", 0.8, signed=True)
    assert (share, width) == (0.5, 8.0)
    assert score == pytest.approx(8 + 10 * 2 / 2)


def test_every_scale_is_positive_for_a_history_that_does_not_move() -> None:
    for scale in scales(np.zeros((3, 10, 2))).values():
        assert scale.shape == (3, 1, 2)
        assert (scale > 0).all()


def drawn(count: int, seed: int, shift: float = 0.0, size: float = 1.0) -> np.ndarray:
    return np.random.default_rng(seed).normal(shift, size, (count, STEPS, CHANNELS))


STORED = Calibration(LEVELS, order_statistics(drawn(499, 0), LEVELS))


def errors_of(known: np.ndarray, later: np.ndarray) -> Errors:
    """Errors of forecasts that all have the same past errors."""
    scaled = np.concatenate([known, later])
    units = np.ones((len(scaled), 1, CHANNELS))
    at = np.arange(len(known), len(scaled))
    return Errors(scaled, units, at, [np.arange(len(known))] * len(later))


@pytest.mark.parametrize("name", methods(STORED, STEPS))
def test_errors_like_the_stored_ones_are_covered(name: str) -> None:
    errors = errors_of(drawn(KNOWN, 1), drawn(200, 2))
    share, width, score = np.mean(judge(errors, methods(STORED, STEPS)[name], 0.8), axis=0)
    assert share == pytest.approx(0.8, abs=0.04)
    assert width == pytest.approx(2 * 1.2816, rel=0.1)
    assert score > width


@pytest.mark.parametrize("shift", [0.0, 1.5])
def test_other_errors_are_covered_unless_offsets_are_stored_ones(shift: float) -> None:
    errors = errors_of(drawn(KNOWN, 1, shift, 2.0), drawn(200, 2, shift, 2.0))
    shares = {
        name: np.mean(judge(errors, method, 0.8), axis=0)[0]
        for name, method in methods(STORED, STEPS).items()
    }
    assert shares.pop("stored errors alone") < 0.6
    assert all(share > 0.73 for share in shares.values()), shares
    assert SERVED in shares


class Reader(Forecaster):
    """Repeats step 3, but its map shows another step."""

    def __init__(self, shown: int) -> None:
        super().__init__(DLinearConfig(channels=1, context=24, horizon=8))
        steps = Axis(length=24, start=-24)
        self.shown = shown
        self.stages = (stage("encoder.0.self", "softmax", "dense", 1, steps, steps),)

    def run(self, inputs: Inputs, *, explain: bool) -> Explained:
        forecast = inputs.history[:, 3:4].expand(-1, 8, -1)
        weights = torch.zeros(len(forecast), 1, 24, 24)
        weights[..., self.shown] = 1
        # Among equal weights later steps come first.
        weights += 1e-6 * torch.arange(24)
        return Explained(forecast, {"encoder.0.self": Dense(weights)} if explain else {})


@pytest.mark.parametrize(("shown", "low", "high"), [(3, 3.0, 40.0), (23, 0.0, 0.0)])
def test_map_is_faithful_if_its_steps_matter(shown: int, low: float, high: float) -> None:
    rows = np.random.default_rng(0).normal(size=(200, 1))
    times = HOUR.steps_from(np.datetime64("2024-01-01T00:00"), 200)
    panel = Panel((Table(times, rows, ("a",), HOUR),))
    windows = Windows(panel, [Span(0, 0, 200)], 24, 8, Scaler(mean=(0.0,), std=(1.0,)))
    found = faithfulness(Reader(shown).eval(), windows)
    assert found is not None
    assert low <= found <= high


def test_weights_of_patches_and_few_keys_become_weights_of_steps() -> None:
    reader = Reader(0)
    patches = Axis(of="patches", length=3, start=-24, stride=8, width=12, end=0)
    reader.stages = (stage("a", "softmax", "dense", 1, patches, patches),)
    weights = torch.tensor([0.5, 0.25, 0.25]).expand(2, 1, 3, 3)
    found = _by_step(reader, Dense(weights), 24)
    expected = torch.zeros(24)
    for start, share in ((0, 0.5), (8, 0.25), (16, 0.25)):
        for step in range(start, start + 12):
            # The last patch repeats the last step.
            expected[min(step, 23)] += share / 12
    torch.testing.assert_close(found, expected.expand(2, 24))
    keys = torch.tensor([[0, 1], [2, -1], [0, 2]]).expand(2, 1, 3, 2)
    shares = torch.tensor([[0.5, 0.5], [1.0, 9.0], [0.25, 0.75]]).expand(2, 1, 3, 2)
    dense = torch.tensor([[0.5, 0.5, 0.0], [0.0, 0.0, 1.0], [0.25, 0.0, 0.75]])
    torch.testing.assert_close(
        _by_step(reader, Sparse(keys, shares), 24),
        _by_step(reader, Dense(dense.expand(2, 1, 3, 3)), 24),
    )


def test_recipes_are_rows_by_precision() -> None:
    first = {"mse": 0.37, "mae": 0.39, "windows": 2785, "epochs": 9, "best": 6}
    first |= {"last_mse": 1.29, "last_mae": 0.71}
    records = {
        "dlinear/etth1-96 0": first,
        "dlinear/etth1-96 0 whole": {"mse": 0.36, "mae": 0.38},
        "dlinear/etth1-96 1": first | {"mse": 0.39},
        "patchtst-42/etth1-96 0": first | {"precision": "bfloat16"},
    }
    linear, other = table(records)
    assert linear["ours"] == linear["DLinear, ours"] == "0.380 ± 0.010 / 0.390 ± 0.000"
    assert (linear["whole batches"], linear["seeds"]) == ("0.360 / 0.380", 2)
    assert linear["epochs"] == "9 (6), 9 (6)"
    assert other["preset"] == "`patchtst-42/etth1-96`, bfloat16"
    assert other["DLinear, ours"] == linear["ours"]
