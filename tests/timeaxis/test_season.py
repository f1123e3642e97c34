import pytest

from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.season import season_name, season_of


@pytest.mark.parametrize(
    ("frequencies", "name"),
    [
        ({"10ms": 100, "1000us": 1000}, "second"),
        ({"s": 60, "10s": 6}, "minute"),
        ({"min": 1440, "15min": 96, "h": 24, "6h": 4, "7min": None, "24h": None}, "day"),
        ({"D": 7, "B": 5, "2D": None}, "week"),
        ({"W-SUN": 52, "MS": 12, "BME": 12, "WOM-3FRI": 12, "SMS": 24, "3SME": 8, "QE": 4}, "year"),
        ({"YS": None}, "season"),
    ],
)
def test_season_of(frequencies: dict[str, int | None], name: str) -> None:
    for frequency, season in frequencies.items():
        assert season_of(Frequency.parse(frequency), context=1440) == season
        assert season_name(Frequency.parse(frequency)) == name


def test_a_context_shorter_than_the_season_has_none() -> None:
    assert season_of(Frequency.parse("h"), 24) == 24
    assert season_of(Frequency.parse("h"), 23) is None
