"""Kinds of covariates that columns look like."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.covariates import Kinds
from foretell.data.proposals import Proposal, propose
from foretell.data.reading import Reading

HOURS = pd.Series(pd.date_range("2024-01-01", periods=24 * 28, freq="h"))
NOISE = np.random.default_rng(0).normal(size=(3, len(HOURS)))
WEEKDAYS = HOURS.dt.day_of_week
# Columns, and their kinds where `y` is the target.
COLUMNS = {
    "y": (NOISE[0], None),
    "temperature": (NOISE[1], "past"),
    "sky": (np.where(NOISE[2] > 0, "sun", "rain"), "past"),
    "holiday": (HOURS.dt.day.isin([1, 6]).astype(int), "future"),
    "season": (np.where(HOURS.dt.day > 15, "late", "early"), "future"),
    "opening": (((HOURS.dt.hour > 8) & (WEEKDAYS < 5)).map({True: "yes", False: "no"}), "future"),
    # A price of each day has many values.
    "price": (np.repeat(NOISE[1, :: 24 * 1][:28], 24), "past"),
    "constant": (np.ones(len(HOURS)), None),
    "remark": ([f"remark {i}" for i in range(len(HOURS))], None),
    "changed": (HOURS.dt.strftime("%Y-%m-%d %H:%M:%S"), None),
}


def written(folder: Path, frame: pd.DataFrame) -> Path:
    path = folder / "data.csv"
    frame.to_csv(path, index=False)
    return path


def kinds(*names: str) -> set[str]:
    return {name for name, (_, kind) in COLUMNS.items() if kind in names}


@pytest.mark.parametrize("target", [(), ("y",)])
def test_facts_of_the_calendar_are_known_ahead(tmp_path: Path, target: tuple[str, ...]) -> None:
    frame = pd.DataFrame({"ds": HOURS} | {name: own for name, (own, _) in COLUMNS.items()})
    reading = Reading(time_column=("ds",))
    found = propose(written(tmp_path, frame), reading, target).kinds
    assert {*found.future} == kinds("future")
    # Past covariates can only be proposed if a target is named.
    assert {*found.past} == (kinds("past") if target else set())
    assert found.static == ()


def test_columns_of_a_series_are_static(tmp_path: Path) -> None:
    stores = pd.DataFrame({"store": ["a", "b", "c"], "region": ["n", "s", "n"], "size": [1, 2, 3]})
    frame = pd.DataFrame({"ds": HOURS, "y": NOISE[0]}).merge(stores, how="cross")
    path = written(tmp_path, frame)
    reading = Reading(time_column=("ds",), id_column=("store",))
    assert propose(path, reading, ("y",)).kinds == Kinds(static=("region", "size"))
    assert propose(
        path, reading.model_copy(update={"static_covariates": ("size",)})
    ).kinds == Kinds(static=("region",))


def cut(frame: pd.DataFrame, *names: str) -> pd.DataFrame:
    """The table with a last day in which these columns have no values."""
    shorter = frame.copy()
    shorter.loc[shorter.index[-24:], [*names]] = np.nan
    return shorter


LONG = pd.DataFrame({"ds": HOURS, "y": NOISE[0], "x": NOISE[1], "z": NOISE[2]})


def test_columns_that_go_on_after_the_target_are_known_ahead(tmp_path: Path) -> None:
    path = written(tmp_path, cut(LONG, "y", "z"))
    expected = Proposal(Kinds(("x",), ("z",)), ahead=("x",))
    assert propose(path, Reading(), ("y",)) == expected
    # Without a target, none of them is known to be short.
    assert propose(path, Reading()) == Proposal()


def test_a_column_that_ends_early_makes_no_other_known_ahead(tmp_path: Path) -> None:
    path = written(tmp_path, cut(LONG, "z"))
    assert propose(path, Reading(), ("y",)) == Proposal(Kinds(past=("x", "z")))
    # One of several targets has values up to the end.
    assert propose(path, Reading(), ("y", "z")) == Proposal(Kinds(past=("x",)))
    assert propose(written(tmp_path, LONG.assign(y=np.nan)), Reading(), ("y",)).ahead == ()


def test_columns_that_miss_most_values_are_not_proposed(tmp_path: Path) -> None:
    rare = np.where(np.arange(len(HOURS)) % 40 == 0, NOISE[1], np.nan)
    words = np.where(np.arange(len(HOURS)) % 40 < 2, np.where(NOISE[1] > 0, "a", "b"), "")
    path = written(tmp_path, LONG.assign(rare=rare, words=words))
    assert propose(path, Reading(), ("y",)) == Proposal(Kinds(past=("x", "z")))


def test_word_none_names_a_category(tmp_path: Path) -> None:
    promos = np.where(NOISE[1] > 0, "none", "sale")
    path = written(tmp_path, LONG[["ds", "y"]].assign(promo=promos))
    assert propose(path, Reading(), ("y",)) == Proposal(Kinds(past=("promo",)))


def test_a_column_without_a_value_of_some_series_is_not_static(tmp_path: Path) -> None:
    stores = pd.DataFrame({"store": ["a", "b", "c", "d"], "size": [1, 2, 3, np.nan]})
    frame = LONG[["ds", "y"]].merge(stores, how="cross")
    reading = Reading(id_column=("store",))
    assert propose(written(tmp_path, frame), reading, ("y",)).kinds.static == ()
