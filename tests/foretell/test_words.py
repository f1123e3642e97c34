import numpy as np
import pytest

from foretell.timeaxis.frequency import Frequency
from foretell.words import numbers, period, sparkline


@pytest.mark.parametrize(
    ("steps", "frequency", "words"),
    [
        (24, "h", "1 day"),
        (36, "h", "1 day 12 hours"),
        (86, "h", "3 days 14 hours"),
        (168, "h", "1 week"),
        (192, "h", "8 days"),
        (0, "h", "0 seconds"),
        (96, "15min", "1 day"),
        (6, "15min", "1 hour 30 minutes"),
        (90, "s", "1 minute 30 seconds"),
        (100, "10ms", "1 second"),
        (150, "10ms", "1 second 500 milliseconds"),
        (2, "1250us", "2 milliseconds 500 microseconds"),
        (7, "D", "1 week"),
        (2, "W-SUN", "2 weeks"),
        (5, "B", "5 business days"),
        (3, "ME", "3 months"),
        (12, "M", "1 year"),
        (15, "M", "1 year 3 months"),
        (0, "M", "0 months"),
        (49, "30min", "1 day 30 minutes"),
        (3, "QS", "9 months"),
        (3, "BME", "3 months"),
        (4, "SMS", "2 months"),
        (3, "SMS", "3 half months"),
        (24, "SME-20", "1 year"),
        (8, "Q", "2 years"),
        (1, "2YS", "2 years"),
    ],
)
def test_periods(steps: int, frequency: str, words: str) -> None:
    assert period(steps, Frequency.parse(frequency)) == words


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([5.5, 6.5], ["5.5", "6.5"]),
        ([50, 60], ["50", "60"]),
        ([12860.4, 12860.6, 12861.0], ["12860.4", "12860.6", "12861.0"]),
        ([12860.41, 12860.42, 13000], ["12860.41", "12860.42", "13000.00"]),
        ([0.5, 0.5, 0.5], ["0.5", "0.5", "0.5"]),
        ([0, 0], ["0", "0"]),
        ([1 / 3, 2 / 3], ["0.3333", "0.6667"]),
        ([-1.25, 1e-7], ["-1.25", "0.00"]),
        ([1e20, 3e-9], ["1e+20", "3e-09"]),
        ([1.5, np.nan], ["1.5", "nan"]),
        ([], []),
    ],
)
def test_numbers_have_the_digits_that_tell_neighbours_apart(
    values: list[float], texts: list[str]
) -> None:
    assert numbers(np.array(values, np.float64)) == texts


def test_numbers_that_differ_by_rounding_alone_have_no_more_digits_than_float32() -> None:
    assert numbers(np.array([1.0, 1.0 + 1e-12])) == ["1", "1"]


def test_sparklines_share_a_scale() -> None:
    assert sparkline(np.arange(8.0)) == ["▁▂▃▄▅▆▇█"]
    assert sparkline(np.array([0.0, 7.0]), np.array([14.0])) == ["▁▅", "█"]
    assert sparkline(np.ones(3)) == ["▅▅▅"]


def test_long_sparklines_show_means() -> None:
    assert sparkline(np.repeat([0.0, 7.0], 50), width=2) == ["▁█"]
