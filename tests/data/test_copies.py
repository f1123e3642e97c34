"""Covariates that give a target before it is known are refused; honest ones are not."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate, Covariates
from foretell.data.coding import recoded
from foretell.data.copies import check_copies
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read_frame
from foretell.data.splits import Span
from foretell.data.table import Table
from foretell.timeaxis.gaps import Filling
from tests.data.panels import HOUR

Values = NDArray[np.float64]
ROWS, CONTEXT, HORIZON = 400, 30, 12
# Most steps between a row that is read and one that is forecast.
REACH = CONTEXT + HORIZON - 1
NOISE = np.random.default_rng(0).normal(size=(6, 2 * ROWS))
# A daily cycle with noise, as counts; casual and registered ones sum to it.
CASUAL, REGISTERED = (
    np.rint(50 + 20 * np.sin(np.arange(2 * ROWS) * np.pi / 12) + 9 * noise) for noise in NOISE[:2]
)
BIKERS = CASUAL + REGISTERED
WEATHER = np.round(15 + 3 * NOISE[2], 1)


def panel_of(target: Values, filled: Values | None = None, **covariates: Values) -> Panel:
    times = HOUR.steps_from(np.datetime64("2024-01-01"), len(target))
    known = Covariates(future=tuple(Covariate(name=name) for name in covariates))
    codes = np.column_stack(list(covariates.values()))
    empty = None if filled is None else filled[:, None] > 0
    table = Table(
        times, target[:, None], ("bikers",), HOUR, series="s", filled=empty, covariates=codes
    )
    return Panel((table,), covariates=known)


def with_past(target: Values, known: NDArray[np.bool_] | None = None, **past: Values) -> Panel:
    """A panel with past covariates, which were filled in where they are not known."""
    times = HOUR.steps_from(np.datetime64("2024-01-01"), len(target))
    values = np.column_stack([target, *past.values()])
    filled = None
    if known is not None:
        filled = np.column_stack([np.zeros(len(target), np.bool_), *(~known for _ in past)])
    covariates = Covariates(past=tuple(Covariate(name=name) for name in past))
    table = Table(times, values, ("bikers", *past), HOUR, filled=filled)
    return Panel((table,), covariates=covariates)


def found(panel: Panel, horizon: int = HORIZON, rows: int = ROWS) -> str:
    """The error message about the first rows; empty without an error."""
    try:
        check_copies(panel, [Span(0, 0, rows)], ("bikers",), CONTEXT, horizon)
    except DataError as error:
        return re.split(r"\. (?:Read|Leave)", str(error).partition(": ")[2])[0]
    return ""


@pytest.mark.parametrize(
    ("covariates", "message"),
    [
        ({"copy": BIKERS}, "bikers = copy"),
        ({"tenths": np.round(BIKERS * 0.1 + 32, 1)}, "bikers = 10 tenths - 320"),
        ({"float": (BIKERS / 7).astype(np.float32).astype(float)}, "bikers = 7 float"),
        ({"minus": -BIKERS, "weather": WEATHER}, "bikers = -1 minus"),
        ({"casual": CASUAL, "registered": REGISTERED}, "bikers = casual + registered"),
        ({"all": BIKERS + 3, "weather": WEATHER}, "bikers = all - 3"),
        ({"net": BIKERS - 2 * WEATHER, "weather": WEATHER}, "bikers = net + 2 weather"),
        ({"next": np.roll(BIKERS, -1)}, "next gives bikers 1 step later"),
        ({"early": 2 * np.roll(BIKERS, -HORIZON)}, f"early gives bikers {HORIZON} steps later"),
        (
            {"lag": np.roll(BIKERS, HORIZON - 1)},
            f"lag gives bikers {HORIZON - 1} steps before, and the horizon has {HORIZON}",
        ),
        ({"late": np.roll(BIKERS, -REACH)}, f"late gives bikers {REACH} steps later"),
        # The model reads no row with a target that it forecasts.
        ({"later": np.roll(BIKERS, -REACH - 1)}, ""),
        (
            {"one": np.roll(CASUAL, -2), "two": np.roll(REGISTERED, -2)},
            "one and two give bikers 2 steps later",
        ),
        (
            {"one": np.roll(CASUAL, 1), "two": np.roll(REGISTERED, 1)},
            f"one and two give bikers 1 step before, and the horizon has {HORIZON}",
        ),
        # A target of a whole horizon before is known.
        ({"lag": np.roll(BIKERS, HORIZON)}, ""),
        ({"casual": CASUAL, "weather": WEATHER}, ""),
        ({"near": BIKERS + NOISE[3]}, ""),
        ({"rounded": np.rint(BIKERS / 3)}, "bikers = 3.002 rounded"),
        ({"coarse": np.rint(BIKERS / 9)}, ""),
        ({"trend": np.arange(2.0 * ROWS), "constant": np.ones(2 * ROWS)}, ""),
    ],
)
def test_copies_are_named_with_their_formulae(covariates: dict[str, Values], message: str) -> None:
    # Rows after the training rows are another matter.
    changed = np.where(np.arange(2 * ROWS) < ROWS + HORIZON, BIKERS, 0)
    assert found(panel_of(changed, **covariates)) == message


def test_every_copy_is_named_with_the_remedies() -> None:
    panel = panel_of(
        BIKERS,
        one=BIKERS,
        two=2 * BIKERS,
        casual=CASUAL,
        registered=REGISTERED,
        next=np.roll(BIKERS, -1),
    )
    with pytest.raises(DataError) as raised:
        check_copies(panel, [Span(0, 0, ROWS)], ("bikers",), CONTEXT, HORIZON)
    assert str(raised.value) == (
        "covariates give a target before it is known, in all training rows: bikers = one; "
        "bikers = 0.5 two; next gives bikers 1 step later; bikers = casual + registered. "
        "Read one, two, casual, registered with --past-covariates, or leave them out. "
        "Leave out next: the past alone gives a later target. "
        "If the values are really known that early, confirm it with --set target_copies=allow"
    )


@pytest.mark.parametrize(
    ("past", "message"),
    [
        ({"next": np.roll(BIKERS, -1)}, "next gives bikers 1 step later"),
        ({"late": 7 - np.roll(BIKERS, -REACH)}, f"late gives bikers {REACH} steps later"),
        (
            {"one": np.roll(CASUAL, -3), "two": np.roll(REGISTERED, -3)},
            "one and two give bikers 3 steps later",
        ),
        ({"later": np.roll(BIKERS, -REACH - 1)}, ""),
        # A past covariate may repeat the target of its own step, or of one before.
        ({"same": BIKERS}, ""),
        ({"casual": CASUAL, "registered": REGISTERED}, ""),
        ({"lag": np.roll(BIKERS, 1)}, ""),
    ],
)
def test_past_covariates_give_no_later_target(past: dict[str, Values], message: str) -> None:
    assert found(with_past(BIKERS, **past)) == message


def test_a_sum_of_the_past_and_the_future_gives_a_later_target() -> None:
    panel = with_past(BIKERS, casual=np.roll(CASUAL, -1))
    codes = np.roll(REGISTERED, -1)[:, None]
    tables = (replace(panel.tables[0], covariates=codes),)
    assert panel.covariates is not None
    known = panel.covariates.model_copy(update={"future": (Covariate(name="registered"),)})
    both = Panel(tables, covariates=known)
    assert found(both) == "registered and casual give bikers 1 step later"
    # In its own step, the model reads the future one alone.
    same = replace(
        tables[0], values=np.column_stack([BIKERS, CASUAL]), covariates=REGISTERED[:, None]
    )
    assert found(Panel((same,), covariates=known)) == ""


def test_past_values_that_were_filled_in_do_not_count() -> None:
    known = np.arange(2 * ROWS) % 7 != 0
    copy = np.where(known, np.roll(BIKERS, -1), 0)
    assert found(with_past(BIKERS, copy=copy)) == ""
    assert found(with_past(BIKERS, known, copy=copy)) == "copy gives bikers 1 step later"


def test_a_series_that_repeats_itself_is_known_from_its_past() -> None:
    day = np.rint(100 * np.sin(np.arange(2 * ROWS) * np.pi / 12))
    assert found(with_past(day, same=day)) == ""
    assert found(panel_of(day, lag=np.roll(day, HORIZON))) == ""
    assert found(panel_of(day, same=day)) == "bikers = same"


def test_a_walk_and_short_series_hide_no_copy() -> None:
    walk = np.cumsum(NOISE[4])
    copy = np.roll(walk, -REACH)
    assert found(panel_of(walk, copy=copy)) == f"copy gives bikers {REACH} steps later"
    panel = panel_of(walk, copy=copy)
    spans = [Span(0, start, start + 50) for start in range(0, ROWS, 50)]
    with pytest.raises(DataError, match=f"copy gives bikers {REACH} steps later"):
        check_copies(panel, spans, ("bikers",), CONTEXT, HORIZON)


def test_targets_without_a_known_value_are_passed_over() -> None:
    assert found(panel_of(BIKERS, np.ones(2 * ROWS), casual=CASUAL, registered=REGISTERED)) == ""


def test_rows_that_were_filled_in_do_not_count() -> None:
    filled = (np.arange(2 * ROWS) % 7 == 0).astype(float)
    panel = panel_of(np.where(filled > 0, 0, BIKERS), filled, copy=BIKERS)
    assert found(panel) == "bikers = copy"


def test_covariates_that_were_filled_in_do_not_count() -> None:
    filled = np.arange(2 * ROWS) % 7 == 0
    panel = panel_of(BIKERS, weather=WEATHER, copy=np.where(filled, 0, BIKERS))
    assert found(panel) == ""
    empty = np.column_stack([np.zeros(2 * ROWS, np.bool_), filled])
    known = replace(panel, tables=(replace(panel.tables[0], covariates_filled=empty),))
    assert found(known) == "bikers = copy"
    assert known.covariates is not None
    turned = Covariates(future=known.covariates.future[::-1])
    assert found(recoded(known, turned)) == "bikers = copy"


@pytest.mark.parametrize("missing", ["interpolate", "ffill"])
def test_a_gap_in_a_table_hides_no_copy(missing: Filling) -> None:
    times = pd.date_range("2024-01-01", periods=ROWS, freq="h")
    table = pd.DataFrame({"ds": times, "bikers": BIKERS[:ROWS], "copy": BIKERS[:ROWS]})
    table.loc[50, "copy"] = np.nan
    panel = read_frame(table, Reading(future_covariates=("copy",), missing=missing))
    assert found(panel) == "bikers = copy"


def test_few_events_match_by_chance() -> None:
    event, other = np.zeros(2 * ROWS), np.zeros(2 * ROWS)
    event[50], other[55] = 1, 1
    assert found(panel_of(event, other=other)) == ""
    assert found(panel_of(event, same=event)) == "bikers = same"
    assert found(panel_of(BIKERS, copy=BIKERS), rows=19) == ""


def test_categories_and_targets_that_never_change_are_passed_over() -> None:
    panel = panel_of(BIKERS, weather=WEATHER)
    assert panel.covariates is not None
    kinds = Covariate(name="weather", type="category", categories=("a",))
    table = panel.tables[0]
    codes = Panel(
        (Table(table.timestamps, table.values, ("bikers",), HOUR, covariates=BIKERS[:, None]),),
        covariates=Covariates(future=(kinds,)),
    )
    assert found(codes) == ""
    assert found(panel_of(np.ones(2 * ROWS), weather=WEATHER)) == ""


@given(st.floats(0.01, 100), st.floats(-1000, 1000), st.integers(0, 3), st.integers(0, 2**32 - 1))
def test_any_scale_and_rounding_is_found(
    weight: float, constant: float, digits: int, seed: int
) -> None:
    values = np.random.default_rng(seed).normal(0, 100, 200)
    panel = panel_of(np.round(weight * values + constant, digits), x=values)
    # Rounding to whole numbers may leave little of small values.
    if weight * 100 > 10**-digits * 12:
        assert found(panel, rows=200).startswith("bikers = ")
    assert not found(panel_of(values, x=np.roll(values, 50)), rows=200)
