import pytest

from foretell.bundle.frequency import Frequency
from foretell.bundle.season import season_of


@pytest.mark.parametrize(
    ("frequency", "season"),
    [
        ("s", 60),
        ("10s", 6),
        ("min", 1440),
        ("15min", 96),
        ("h", 24),
        ("6h", 4),
        ("D", 7),
        ("B", 5),
        ("W-SUN", 52),
        ("MS", 12),
        ("QE", 4),
        ("7min", None),
        ("2D", None),
        ("24h", None),
        ("YS", None),
    ],
)
def test_season_of(frequency: str, season: int | None) -> None:
    assert season_of(Frequency.parse(frequency), context=1440) == season


def test_a_context_shorter_than_the_season_has_none() -> None:
    assert season_of(Frequency.parse("h"), 24) == 24
    assert season_of(Frequency.parse("h"), 23) is None
