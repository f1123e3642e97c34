import pytest
import torch

from foretell.export.rewrites.embedding import (
    NeighbourEmbedding,
    ServedEmbedding,
    neighbours,
    rewrite_tokens,
)
from foretell.export.rewrites.lookup import Call
from foretell.models.layers.embedding import SeriesEmbedding, TokenEmbedding
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.export.rewrites.test_attention import time_first

STEPS, CHANNELS, D_MODEL = 17, 5, 8
HOUR = Frequency.parse("h")


@pytest.mark.parametrize("kind", ["timeF", "learned", "fixed", None])
def test_equals_the_embedding(kind, float64, equal):
    calendar = Calendar.for_frequency(HOUR, "scaled" if kind == "timeF" else "integer")
    plain = SeriesEmbedding(
        CHANNELS,
        D_MODEL,
        STEPS,
        calendar=calendar if kind else None,
        kind=kind or "timeF",
        positions=False,
        dropout=0.1,
    ).eval()
    series = torch.randn(3, STEPS, CHANNELS)
    features = torch.randint(0, 4, (3, STEPS, len(calendar.features))).double() if kind else None
    joined = series[:, neighbours(STEPS)].reshape(3, STEPS, 3 * CHANNELS)
    equal(NeighbourEmbedding(plain)(joined, features), plain(series, features))


@pytest.mark.parametrize("length", [1, STEPS])
def test_a_convolution_by_itself(length, float64, equal):
    plain, series = TokenEmbedding(CHANNELS, D_MODEL), torch.randn(3, length, CHANNELS)
    equal(rewrite_tokens(plain, Call((series.shape,), itself=False))(series), plain(series))


def test_neighbours_are_circular():
    assert neighbours(3).tolist() == [2, 0, 1, 0, 1, 2, 1, 2, 0]
    assert neighbours(1).tolist() == [0, 0, 0]


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("calendar", [Calendar.for_frequency(HOUR, "scaled"), None])
def test_called_as_the_plain_one_or_with_the_time_first(calendar, positions, float64, equal):
    plain = SeriesEmbedding(
        CHANNELS,
        D_MODEL,
        STEPS,
        calendar=calendar,
        kind="timeF",
        positions=positions,
        dropout=0.1,
    ).eval()
    series, features = torch.randn(3, STEPS, CHANNELS), torch.rand(3, STEPS, 4)
    given = (series, features if calendar else None)
    expected = plain.double()(*given)
    equal(ServedEmbedding(plain, STEPS)(*given), expected)
    equal(ServedEmbedding(plain, STEPS, time_first=True)(*given), time_first(expected))
