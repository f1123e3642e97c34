import numpy as np
import pandas as pd
import pytest

from foretell.data.reading import read_frame
from foretell.data.seasons import find_seasons

HOURS = np.arange(24 * 7 * 12)


def seasons(*channels: np.ndarray) -> list[int]:
    noise = np.random.default_rng(0).normal(0, 0.1, (len(channels), len(HOURS)))
    frame = pd.DataFrame({f"c{i}": one + noise[i] for i, one in enumerate(channels)})
    frame["ds"] = pd.date_range("2024-01-01", periods=len(HOURS), freq="h")
    return [season.steps for season in find_seasons(read_frame(frame))]


def test_finds_days_and_weeks() -> None:
    day = np.sin(2 * np.pi * HOURS / 24)
    week = (HOURS // 24 % 7 >= 5) * 2.0
    assert seasons(day) == [24]
    assert seasons(day, day + week) == [24, 168]
    # A trend is no season, and does not hide one.
    assert seasons(day + HOURS / 100) == [24]


def test_no_ripple_on_what_slowly_changes_is_a_season() -> None:
    steps = np.random.default_rng(3).normal(size=1461)
    year = 2 * np.sin(2 * np.pi * np.arange(1461) / 365.25) + steps
    frame = pd.DataFrame({"y": year, "ds": pd.date_range("2020-01-01", periods=1461)})
    ((steps, correlation),) = find_seasons(read_frame(frame))
    assert 345 < steps < 385
    assert correlation == pytest.approx(2 / 3, abs=0.05)


@pytest.mark.parametrize("values", [HOURS * 1.0, HOURS * 0.0])
def test_finds_none_where_nothing_repeats(values: np.ndarray) -> None:
    frame = pd.DataFrame({"y": values, "ds": pd.date_range("2024-01-01", periods=len(HOURS))})
    assert find_seasons(read_frame(frame)) == []
    assert find_seasons(read_frame(frame.head(5))) == []
