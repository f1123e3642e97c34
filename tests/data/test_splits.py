import pytest
from pydantic import ValidationError

from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.splits import Split, Splits
from tests.data.panels import panel, table


def test_by_fraction_is_the_published_split() -> None:
    split = Splits.by_fraction().cut(panel(x=1001), context=96, horizon=24)
    assert split == Split(
        train=((0, 0, 700),), validation=((0, 700 - 96, 801),), test=((0, 801 - 96, 1001),)
    )


def test_ett_ranges() -> None:
    split = Splits.ett_hourly().cut(panel(x=17420), context=336, horizon=96)
    assert split[:3] == (
        ((0, 0, 8640),),
        ((0, 8640 - 336, 11520),),
        ((0, 11520 - 336, 14400),),
    )
    assert Splits.ett_minute().ends_of(69680, 96) == (34560, 46080, 57600)


@pytest.mark.parametrize("fractions", [(0.7, 0.1, 0.1), (0.8, 0.0, 0.2), (1.2, -0.4, 0.2)])
def test_refuses_fractions_that_are_no_split(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(DataError, match="add up to 1"):
        Splits.by_fraction(*fractions)


def test_validation_and_test_are_at_least_a_horizon() -> None:
    assert Splits.by_fraction().ends_of(60, 7) == (41, 48, 60)
    assert Splits.by_fraction().ends_of(60, 20) == (20, 40, 60)
    split = Splits.by_fraction().cut(panel(x=90), context=30, horizon=20)
    assert split[:3] == (((0, 0, 50),), ((0, 20, 70),), ((0, 40, 90),))
    with pytest.raises(DataError, match="train split: rows 0 to 49 hold no window of context 30"):
        Splits.by_fraction().cut(panel(x=89), context=30, horizon=20)


def test_the_rows_have_to_be_there() -> None:
    with pytest.raises(DataError, match="test split: it ends at row 14400, the data has 14399"):
        Splits.ett_hourly().cut(panel(x=14399), context=96, horizon=96)


def test_every_series_is_cut_by_its_own_rows() -> None:
    split = Splits.by_fraction().cut(panel(x=100, y=1000), context=20, horizon=5)
    assert split.train == ((0, 0, 70), (1, 0, 700))
    assert split.validation == ((0, 50, 80), (1, 680, 800))
    assert split.test == ((0, 60, 100), (1, 780, 1000))


def test_short_series_are_trained_on_or_left_out() -> None:
    # A window has 25 rows, three parts with one each 35.
    split = Splits.by_fraction().cut(panel(x=100, y=34, z=24, w=25), context=20, horizon=5)
    assert split.trained_on_only == ("y", "w")
    assert split.left_out == ("z",)
    assert split.train == ((0, 0, 70), (1, 0, 34), (3, 0, 25))
    assert [span.table for span in (*split.validation, *split.test)] == [0, 0]


def test_a_series_is_cut_across_its_holes() -> None:
    tables = (table(60, "x"), table(40, "x", "2024-02-01"), table(100, "y"))
    split = Splits.by_fraction().cut(Panel(tables), context=10, horizon=5)
    assert split.train == ((0, 0, 60), (1, 0, 10), (2, 0, 70))
    # What lies before the hole is no context of what lies behind it.
    assert split.validation == ((1, 0, 20), (2, 60, 80))
    late = Splits(ends=(55, 75, 100)).cut(Panel(tables[:2]), context=10, horizon=5)
    assert late.validation == ((0, 45, 60), (1, 0, 15))
    assert late.test == ((1, 5, 40),)


def test_a_part_without_any_window() -> None:
    with pytest.raises(DataError, match="train split: 2 series, the longest of 22 rows, hold no"):
        Splits.by_fraction().cut(panel(x=20, y=22), context=20, horizon=5)
    with pytest.raises(DataError, match="validation split: 2 series, the longest of 30 rows, hold"):
        Splits.by_fraction().cut(panel(x=20, y=30), context=20, horizon=5)
    holes = Panel(tuple(table(12, "x", f"2024-0{month}-01") for month in (1, 2, 3)))
    with pytest.raises(DataError, match="train split: 3 stretches between holes hold no window"):
        Splits.by_fraction().cut(holes, context=20, horizon=5)


@pytest.mark.parametrize(
    "text",
    [
        "{}",
        '{"fractions": [0.7, 0.1, 0.2], "ends": [1, 2, 3]}',
    ],
)
def test_other_fields_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Splits.model_validate_json(text)
