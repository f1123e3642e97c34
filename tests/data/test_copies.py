"""Future covariates that give the target are refused; honest ones are not."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from foretell.bundle.covariates import Covariate, Covariates
from foretell.data.copies import check_copies
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.data.table import Table
from tests.data.panels import HOUR

Values = NDArray[np.float64]
ROWS, HORIZON = 400, 12
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


def found(panel: Panel, horizon: int = HORIZON, rows: int = ROWS) -> str:
    """The error message about the first rows; empty without an error."""
    try:
        check_copies(panel, [Span(0, 0, rows)], ("bikers",), horizon)
    except DataError as error:
        return str(error).partition(": ")[2].partition(". Read")[0]
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
        # A target of a whole horizon before is known.
        ({"lag": np.roll(BIKERS, HORIZON)}, ""),
        ({"casual": CASUAL, "weather": WEATHER}, ""),
        ({"near": BIKERS + NOISE[3]}, ""),
        ({"trend": np.arange(2.0 * ROWS), "constant": np.ones(2 * ROWS)}, ""),
    ],
)
def test_copies_are_named_with_their_formulae(covariates: dict[str, Values], message: str) -> None:
    # Rows after the training rows are another matter.
    changed = np.where(np.arange(2 * ROWS) < ROWS + HORIZON, BIKERS, 0)
    assert found(panel_of(changed, **covariates)) == message


def test_every_copy_is_named_with_the_remedies() -> None:
    panel = panel_of(BIKERS, one=BIKERS, two=2 * BIKERS, casual=CASUAL, registered=REGISTERED)
    with pytest.raises(DataError) as raised:
        check_copies(panel, [Span(0, 0, ROWS)], ("bikers",), HORIZON)
    assert str(raised.value) == (
        "future covariates give the target in all training rows: bikers = one; "
        "bikers = 0.5 two; bikers = casual + registered. Read them with --past-covariates, or "
        "leave them out. If they are really known for the horizon, confirm it with "
        "--set target_copies=allow"
    )


def test_rows_that_were_filled_in_do_not_count() -> None:
    filled = (np.arange(2 * ROWS) % 7 == 0).astype(float)
    panel = panel_of(np.where(filled > 0, 0, BIKERS), filled, copy=BIKERS)
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
    if weight * 100 > 10**-digits * 50:
        assert found(panel, rows=200).startswith("bikers = ")
    assert not found(panel_of(values, x=np.roll(values, 50)), rows=200)
