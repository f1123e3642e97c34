"""A replay through a server, and its scores."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from bench.cases.replay import learning
from bench.replay import LEVELS, Replay, Table, scores
from foretell.bundle.calibration import Calibration, order_statistics, stored_levels


def replayed() -> Replay:
    """Two forecasts of two steps, whose quantiles are 1, 2, 3 and 4 off."""
    values = np.arange(60.0)[:, None] ** 2
    times = np.datetime64("2024-01-01T00:00:00") + np.timedelta64(1, "h") * np.arange(60)
    mean = np.array([[901.0, 950.0], [961.0, 1030.0]])
    offsets = np.array([-4.0, -2.0, 1.0, 3.0])[:, None]
    quantiles = mean[:, None] + offsets
    return Replay(Table(times, values, 0, 30), np.array([30, 31]), mean, {"stored": quantiles})


def test_values_stand_beside_what_came_true_of_them() -> None:
    frame = replayed().frame("stored")
    assert frame["step"].tolist() == [1, 2, 1, 2]
    assert frame["actual"].tolist() == [900.0, 961.0, 961.0, 1024.0]
    # The hour of the day before, which the history of both has.
    assert frame["naive"].tolist() == [36.0, 49.0, 49.0, 64.0]
    assert frame["day"].unique().tolist() == ["2024-01-02"]
    assert frame[LEVELS[0]].tolist() == [897.0, 946.0, 957.0, 1026.0]


def test_scores_are_means_of_their_group() -> None:
    found = scores(replayed().frame("stored"), "step")
    assert found.index.tolist() == [1, 2]
    assert found["count"].tolist() == [2, 2]
    assert found["mae"].tolist() == [0.5, 8.5]
    assert found["bias"].tolist() == [0.5, -2.5]
    assert found["rmse"].tolist() == pytest.approx([np.sqrt(0.5), np.sqrt((121 + 36) / 2)])
    assert found["naive_mae"].tolist() == [(864 + 912) / 2, (912 + 960) / 2]
    # Step 2: 961 is above 953, and 1024 below 1026.
    assert found["coverage 0.8"].tolist() == [1.0, 0.0]
    assert found["coverage 0.95"].tolist() == [1.0, 0.0]
    assert found["width 0.95"].tolist() == [7.0, 7.0]
    below, above = 0.9 * (961 - 951), (1 - 0.9) * (1031 - 1024)
    assert found["pinball 0.9"][2] == pytest.approx((below + above) / 2)
    assert isinstance(found, pd.DataFrame)


def test_narrow_intervals_are_repaired_by_known_errors() -> None:
    random, levels = np.random.default_rng(0), stored_levels([499])
    stored = Calibration(levels, order_statistics(random.normal(size=(499, 2, 1)), levels))
    rows = learning(random.normal(size=(400, 2)), np.full(400, 3.0), stored, (0, 60))
    assert [row["known origins"] for row in rows] == [0, 60]
    nothing, much = rows
    assert [nothing[f"80%, {name}"] for name in ("as stored", "halved")] == pytest.approx(
        [80, 48], abs=5
    )
    assert nothing["width of 80%, as stored"] == pytest.approx(3 * 2 * 1.28, rel=0.1)
    assert nothing["width of 95%, halved"] == pytest.approx(3 * 1.96, rel=0.1)
    assert much["80%, halved"] == pytest.approx(75, abs=7)
    assert much["80%, as stored"] == pytest.approx(80, abs=5)
