import pytest

from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.season import season_name, season_of


@pytest.mark.parametrize(
    ("frequency", "season", "name"),
    [
        ("s", 60, "minute"),
        ("10ms", 100, "second"),
        ("1000us", 1000, "second"),
        ("10s", 6, "minute"),
        ("min", 1440, "day"),
        ("15min", 96, "day"),
        ("h", 24, "day"),
        ("6h", 4, "day"),
        ("D", 7, "week"),
        ("B", 5, "week"),
        ("W-SUN", 52, "year"),
        ("MS", 12, "year"),
        ("QE", 4, "year"),
        ("BME", 12, "year"),
        ("SMS", 24, "year"),
        ("3SME", 8, "year"),
        ("WOM-3FRI", 12, "year"),
        ("7min", None, "day"),
        ("2D", None, "week"),
        ("24h", None, "day"),
        ("YS", None, "season"),
    ],
)
def test_season_of(frequency: str, season: int | None, name: str) -> None:
    assert season_of(Frequency.parse(frequency), context=1440) == season
    assert season_name(Frequency.parse(frequency)) == name


def test_a_context_shorter_than_the_season_has_none() -> None:
    assert season_of(Frequency.parse("h"), 24) == 24
    assert season_of(Frequency.parse("h"), 23) is None
