import pytest
import torch

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.export.rewrites.embedding import NeighbourEmbedding, neighbours
from foretell.models.layers.embedding import SeriesEmbedding

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


def test_neighbours_are_circular():
    assert neighbours(3).tolist() == [2, 0, 1, 0, 1, 2, 1, 2, 0]
    assert neighbours(1).tolist() == [0, 0, 0]
