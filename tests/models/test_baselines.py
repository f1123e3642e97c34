import pytest
import torch

from foretell.bundle.frequency import Frequency
from foretell.models.baselines import last_value, season_of, seasonal_naive


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


def test_last_value_repeats() -> None:
    history = torch.tensor([[[1.0, 10.0], [2.0, 20.0]]])
    assert last_value(history, 3).tolist() == [[[2, 20]] * 3]


def test_seasonal_naive_repeats_the_last_season() -> None:
    history = torch.arange(5.0).reshape(1, 5, 1)
    assert seasonal_naive(history, 7, 3).flatten().tolist() == [2, 3, 4, 2, 3, 4, 2]
    assert seasonal_naive(history, 2, 3).flatten().tolist() == [2, 3]
