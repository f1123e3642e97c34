from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from foretell.service.ledger.scores import Scores, fields, gauges, sums, sums_by_day

LEVELS = (0.1, 0.5, 0.9)


class Forecasts(NamedTuple):
    """Forecasts with what came true; `quantiles` `[levels, forecasts, steps, channels]`."""

    actual: np.ndarray
    forecast: np.ndarray
    naive: np.ndarray
    quantiles: np.ndarray
    levels: tuple[float, ...]


def drawn(
    seed: int, levels: Sequence[float] = LEVELS, steps: int = 4, channels: int = 2, count: int = 9
) -> Forecasts:
    random = np.random.default_rng(seed)
    shape = (count, steps, channels)
    actual = random.normal(5, 2, shape)
    actual[random.random(shape) < 0.3] = np.nan
    forecast, naive = random.normal(5, 2, (2, *shape)).astype(np.float32)
    naive[random.random(shape) < 0.2] = np.nan
    spread = np.sort(random.normal(0, 2, (len(levels), *shape)), axis=0)
    # The quantiles of unsorted levels are not sorted.
    places = np.argsort(np.argsort(levels))
    quantiles = (forecast + spread)[places].astype(np.float32)
    return Forecasts(actual, forecast, naive, quantiles, tuple(levels))


def frame(data: Forecasts, **columns: object) -> pd.DataFrame:
    """One row for each pair of a forecast and a known actual value."""
    places = np.indices(data.actual.shape).reshape(3, -1)
    found = pd.DataFrame({"forecast_id": places[0], "step": places[1] + 1, "place": places[2]})
    for name in ("actual", "forecast", "naive"):
        found[name] = getattr(data, name).ravel().astype(float)
    for level, values in zip(data.levels, data.quantiles, strict=True):
        found[f"q{level}"] = values.ravel().astype(float)
    return found.dropna(subset="actual").assign(**columns)


def expected(pairs: pd.DataFrame) -> dict[str, Any]:
    """The scores of pairs, each by its definition."""
    error = pairs["forecast"] - pairs["actual"]
    paired = pairs.dropna(subset="naive")
    naive = (paired["naive"] - paired["actual"]).abs().mean()
    levels = sorted(float(name[1:]) for name in pairs if name.startswith("q"))
    quantiles, intervals = {}, {}
    for level in levels:
        own = pairs.dropna(subset=f"q{level}")
        below = own["actual"] - own[f"q{level}"]
        loss = below.where(below >= 0, 0) * level - below.where(below < 0, 0) * (1 - level)
        quantiles[str(level)] = {"pinball": loss.mean(), "count": len(own)}
    for low, high in ((0.1, 0.9), (0.25, 0.75)):
        if {low, high} <= {*levels}:
            own = pairs.dropna(subset=[f"q{low}", f"q{high}"])
            inside = own["actual"].between(own[f"q{low}"], own[f"q{high}"])
            intervals[str(round(high - low, 9))] = {
                "coverage": inside.mean(),
                "width": (own[f"q{high}"] - own[f"q{low}"]).mean(),
                "count": len(own),
            }
    return {
        "count": len(pairs),
        "mae": error.abs().mean(),
        "rmse": np.sqrt((error**2).mean()),
        "bias": error.mean(),
        "naive_mae": naive,
        "mase": (paired["forecast"] - paired["actual"]).abs().mean() / naive,
        "quantiles": quantiles,
        "intervals": intervals,
    }


def check(row: Mapping[str, Any], pairs: pd.DataFrame) -> None:
    wanted = expected(pairs)
    assert row.keys() >= wanted.keys()
    for name in ("count", "mae", "rmse", "bias", "naive_mae", "mase"):
        assert row[name] == pytest.approx(wanted[name], rel=1e-12, abs=1e-12), name
    for name in ("quantiles", "intervals"):
        assert row[name].keys() == wanted[name].keys()
        for level, scores in wanted[name].items():
            assert row[name][level] == pytest.approx(scores, rel=1e-12, abs=1e-12), level


def test_fields_of_levels() -> None:
    plain = fields(())
    assert plain == (
        *("count", "absolute", "squared", "error"),
        *("paired_count", "paired_absolute", "paired_naive"),
    )
    assert fields((0.9, 0.5, (1 - 0.8) / 2, 0.25)) == (
        *(*plain, "pinball 0.9", "pinball 0.5", "pinball 0.1", "pinball 0.25"),
        *("inside 0.8", "width 0.8"),
    )


def test_levels_that_differ_by_rounding_are_one() -> None:
    assert fields((0.3, 0.1 + 0.2, 0.7)) == fields((0.3, 0.7))
    both = drawn(0, (0.3, 0.7))
    twice = both._replace(quantiles=both.quantiles[[0, 0, 1]], levels=(0.3, 0.1 + 0.2, 0.7))
    np.testing.assert_array_equal(sums(*twice), sums(*both))


def test_sums_of_one_pair() -> None:
    # Below its forecast by 2, at the lower end of its interval.
    cell = np.full((1, 1, 1), 1.0)
    found = sums(3 * cell, 5 * cell, 7 * cell, np.stack([3 * cell, 6 * cell]), (0.1, 0.9))
    names = fields((0.1, 0.9))
    wanted = {"count": 1, "absolute": 2, "squared": 4, "error": 2}
    wanted |= {"paired_count": 1, "paired_absolute": 2, "paired_naive": 4}
    wanted |= {"pinball 0.1": 0, "pinball 0.9": 0.3, "inside 0.8": 1, "width 0.8": 3}
    assert dict(zip(names, found[0, 0], strict=True)) == pytest.approx(wanted)


@pytest.mark.parametrize("levels", [(), LEVELS, (0.9, 0.05, 0.1, 0.25, 0.75)])
@pytest.mark.parametrize("by", ["step", "channel", "total"])
def test_scores_are_those_of_the_pairs(levels: tuple[float, ...], by: str) -> None:
    data = drawn(1, levels)
    scores = Scores(by)
    scores.add(sums(*data), levels, ["a", "b"], version="1", series="s", day="2024-01-01")
    pairs = frame(data)
    pairs["channel"] = pairs["place"].map({0: "a", 1: "b"})
    rows = scores.rows()
    if by == "total":
        [row] = rows
        assert row.keys() == {"version", *expected(pairs)}
        return check(row, pairs)
    assert [row[by] for row in rows] == sorted(pairs[by].unique())
    for row in rows:
        check(row, pairs[pairs[by] == row[by]])
    return None


@pytest.mark.parametrize("by", ["step", "channel", "series", "day", "total"])
@pytest.mark.parametrize("kept", [None, {"b", "c"}])
def test_configurations_are_added_by_step_channel_and_level(by: str, kept: set[str] | None) -> None:
    configurations = [
        (drawn(2, (0.1, 0.9)), ["a", "b"], "1", "south", "2024-01-02"),
        (drawn(3, (0.75, 0.25, 0.9, 0.1), steps=6), ["a", "b"], "1", "north", "2024-01-02"),
        (drawn(4, (), steps=2, channels=3), ["b", "c", "a"], "1", "south", "2024-01-01"),
        (drawn(5, (0.5,)), ["b", "a"], "0", "south", "2024-01-01"),
    ]
    scores, frames = Scores(by, kept), []
    for data, channels, version, series, day in configurations:
        of = {"version": version, "series": series, "day": day}
        scores.add(sums(*data), data.levels, channels, **of)
        one = frame(data, **of, total="")
        one["channel"] = one["place"].map(dict(enumerate(channels)))
        frames.append(one)
    pairs = pd.concat(frames)
    if kept is not None:
        pairs = pairs[pairs["channel"].isin(kept)]
    groups = {key: one.dropna(axis=1, how="all") for key, one in pairs.groupby(["version", by])}
    rows = scores.rows()
    keys = [(row["version"], row.get(by, "")) for row in rows]
    assert {*keys} == groups.keys()
    assert len(keys) == len(groups)
    # The first version came first; channels stay in their order, other groups are sorted.
    assert [key[0] for key in keys] == sorted((key[0] for key in keys), reverse=True)
    own = [key[1] for key in keys if key[0] == "1"]
    assert own == sorted(own)
    for key, row in zip(keys, rows, strict=True):
        check(row, groups[key])


def test_sums_of_each_day_are_those_of_its_pairs() -> None:
    data = drawn(6, count=12)
    day = np.add.outer(np.arange(12), np.arange(4)) // 5 * 3 + 19_000
    days, found = sums_by_day(*data, day)
    assert days.tolist() == [19_000, 19_003, 19_006]
    assert found.shape == (3, 4, 2, len(fields(LEVELS)))
    for one, own in zip(days, found, strict=True):
        actual = np.where((day == one)[..., None], data.actual, np.nan)
        np.testing.assert_allclose(own, sums(*data._replace(actual=actual)), rtol=1e-12, atol=0)
    np.testing.assert_allclose(found.sum(axis=0), sums(*data), rtol=1e-12, atol=1e-12)


def test_a_day_without_known_values_has_sums_of_zero() -> None:
    data = drawn(7, count=2)
    data.actual[1] = np.nan
    days, found = sums_by_day(*data, np.repeat([[5], [6]], 4, axis=1))
    assert days.tolist() == [5, 6]
    assert found[0].any()
    assert not found[1].any()


def test_without_forecasts_all_sums_are_zero() -> None:
    data = drawn(8, count=0)
    assert sums(*data).shape == (4, 2, len(fields(LEVELS)))
    assert not sums(*data).any()
    days, found = sums_by_day(*data, np.zeros((0, 4), np.int64))
    assert (len(days), found.shape) == (0, (0, 4, 2, len(fields(LEVELS))))


@given(
    arrays.arrays(
        np.float64, (7, 2, 2, 1), elements=st.floats(width=64, allow_nan=True, allow_infinity=True)
    )
)
def test_rows_are_json_for_every_number(values: np.ndarray) -> None:
    actual, forecast, naive, *quantiles = values
    data = (actual, forecast, naive, np.stack(quantiles), (0.1, 0.2, 0.8, 0.9))
    scores = Scores("total")
    for _ in range(2):
        scores.add(sums(*data), data[-1], ["a"], version="1", series="", day="")
    rows = scores.rows()
    json.dumps(rows, allow_nan=False)
    known = np.isfinite([actual, forecast, *quantiles]).all(axis=0).sum()
    assert sum(row["count"] for row in rows) == 2 * known
    for row in rows:
        json.dumps(gauges(row), allow_nan=False)


def test_undefined_scores_are_null() -> None:
    data = drawn(9, ())
    data.naive[:] = np.nan
    scores = Scores("total")
    scores.add(sums(*data), (), ["a", "b"], version="1", series="", day="")
    [row] = scores.rows()
    assert (row["naive_mae"], row["mase"]) == (None, None)
    assert (row["quantiles"], row["intervals"]) == ({}, {})
    data = data._replace(naive=data.actual)
    scores = Scores("total")
    scores.add(sums(*data), (), ["a", "b"], version="1", series="", day="")
    [row] = scores.rows()
    assert (row["naive_mae"], row["mase"]) == (0, None)
    assert row["mae"] > 0


def test_groups_without_a_pair_have_no_row() -> None:
    data = drawn(10)
    data.actual[:, 1:] = np.nan
    scores = Scores("step")
    scores.add(sums(*data), LEVELS, ["a", "b"], version="1", series="", day="")
    assert [row["step"] for row in scores.rows()] == [1]
    other = Scores("total", {"c"})
    other.add(sums(*data), LEVELS, ["a", "b"], version="1", series="", day="")
    assert other.rows() == []


def test_adding_changes_no_given_array() -> None:
    found = sums(*drawn(11))
    before, scores = found.copy(), Scores("total")
    for _ in range(3):
        scores.add(found, LEVELS, ["a", "b"], version="1", series="", day="")
    np.testing.assert_array_equal(found, before)
    assert scores.rows()[0]["count"] == 3 * before[..., 0].sum()


def test_gauges_of_a_total() -> None:
    cell = np.ones((4, 1, 1))
    high = np.array([2.0, 2.0, 2.0, 0.5])[:, None, None]
    data = Forecasts(cell, 3 * cell, 2 * cell, np.stack([0 * cell, high]), (0.1, 0.9))
    scores = Scores("total")
    scores.add(sums(*data), data.levels, ["a"], version="1", series="", day="")
    [row] = scores.rows()
    assert gauges(row) == {"mae": 2, "mase": 2, "bias_ratio": 1, "coverage": 0.75}
    exact = {"mae": 0.0, "bias": 0.0, "mase": None, "intervals": {"0.5": {"coverage": 1.0}}}
    assert gauges(exact) == {"mae": 0}


@pytest.mark.parametrize("name", ["actual", "naive", "quantiles"])
def test_other_shapes_are_refused(name: str) -> None:
    data = drawn(12)
    wrong = data._replace(**{name: getattr(data, name)[..., :1]})
    with pytest.raises(ValueError, match=rf"^{name} has shape .*, expected "):
        sums(*wrong)


def test_days_and_sums_of_other_shapes_are_refused() -> None:
    data = drawn(13)
    with pytest.raises(ValueError, match=r"^day has shape \(9,\), but forecast has \(9, 4, 2\)"):
        sums_by_day(*data, np.zeros(9, np.int64))
    with pytest.raises(ValueError, match=r"^sums have shape .* for 1 channels and 3 levels"):
        Scores("total").add(sums(*data), LEVELS, ["a"], version="1", series="", day="")
