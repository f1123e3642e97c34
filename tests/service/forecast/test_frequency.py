from __future__ import annotations

import pytest

from foretell.service.errors import InvalidInputError
from foretell.service.forecast.times import check_frequency
from foretell.timeaxis.frequency import Frequency

HOURLY = Frequency.parse("h")


@pytest.mark.parametrize("text", ["h", "H", "hour", "60min", "T60"])
def test_frequencies(text: str) -> None:
    if text == "T60":
        with pytest.raises(InvalidInputError, match="expected a frequency such as"):
            check_frequency(text, HOURLY, "f")
    else:
        check_frequency(text, HOURLY, "f")


@pytest.mark.parametrize(
    ("text", "frequency"),
    [
        ("T", "15min"),
        ("minute", "15min"),
        ("15T", "15min"),
        ("H", "2h"),
        ("D", "B"),
        ("day", "B"),
        ("B", "B"),
        ("W", "2W-SUN"),
        ("Q", "QS-FEB"),
        ("M", "SME-20"),
        ("month", "WOM-3FRI"),
        ("Y", "BYE-MAR"),
    ],
)
def test_kserves_names_mean_the_unit(text: str, frequency: str) -> None:
    check_frequency(text, Frequency.parse(frequency), "f")


@pytest.mark.parametrize(
    ("text", "frequency"),
    [("30min", "15min"), ("min", "15min"), ("H", "15min"), ("2D", "B"), ("1H", "2h"), ("D", "W")],
)
def test_another_multiple_or_unit(text: str, frequency: str) -> None:
    with pytest.raises(InvalidInputError, match=f"frequency, {frequency}, got {text!r}") as error:
        check_frequency(text, Frequency.parse(frequency), "f")
    assert error.value.param == "f"


def test_another_frequency() -> None:
    with pytest.raises(InvalidInputError, match="expected the model's frequency, h, got 'D'"):
        check_frequency("D", HOURLY, "f")
