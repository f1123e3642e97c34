import pytest

from foretell.models.data.errors import DataError
from foretell.models.data.splits import Splits


def test_by_fraction_is_the_published_split() -> None:
    splits = Splits.by_fraction(1001, context=96)
    assert splits.train == (0, 700)
    assert splits.validation == (700 - 96, 801)
    assert splits.test == (801 - 96, 1001)


def test_ett_ranges() -> None:
    hourly = Splits.ett_hourly(336)
    assert hourly.train == (0, 8640)
    assert hourly.validation == (8640 - 336, 11520)
    assert hourly.test == (11520 - 336, 14400)
    assert Splits.ett_minute(96).test == (46080 - 96, 57600)


@pytest.mark.parametrize("fractions", [(0.7, 0.1, 0.1), (0.8, 0.0, 0.2), (1.2, -0.4, 0.2)])
def test_refuses_fractions_that_are_no_split(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(DataError, match="add up to 1"):
        Splits.by_fraction(1000, 96, *fractions)


def test_check_wants_a_window_in_each_split() -> None:
    splits = Splits.by_fraction(100, context=20)
    splits.check(100, context=20, horizon=10)
    with pytest.raises(DataError, match="validation split: rows 50 to 80 hold no window"):
        splits.check(100, context=20, horizon=11)


def test_check_wants_the_rows_to_be_there() -> None:
    with pytest.raises(DataError, match="test split: it ends at row 14400, the data has 14399"):
        Splits.ett_hourly(96).check(14399, context=96, horizon=96)


def test_check_refuses_a_context_longer_than_the_rows_before() -> None:
    splits = Splits(train=(0, 100), validation=(-5, 200), test=(150, 300))
    with pytest.raises(DataError, match="validation split: rows 0 to 200"):
        splits.check(300, context=20, horizon=10)
