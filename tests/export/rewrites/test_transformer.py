import pytest
import torch

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.export.rewrites.transformer import TimeFirstEmbedding, TimeFirstProjection
from foretell.models.layers.embedding import SeriesEmbedding
from tests.export.rewrites.test_attention import time_first

STEPS, CHANNELS, D_MODEL = 9, 4, 8
HOURLY = Calendar.for_frequency(Frequency.parse("h"), "scaled")


def embedding(calendar: Calendar | None, *, positions: bool) -> SeriesEmbedding:
    return SeriesEmbedding(
        CHANNELS,
        D_MODEL,
        STEPS,
        calendar=calendar,
        kind="timeF",
        positions=positions,
        dropout=0.1,
    ).eval()


@pytest.mark.parametrize("calendar", [HOURLY, None])
def test_embedding(calendar, float64, equal):
    plain = embedding(calendar, positions=True).double()
    series, features = torch.randn(3, STEPS, CHANNELS), torch.rand(3, STEPS, 4)
    given = (series, features if calendar else None)
    equal(TimeFirstEmbedding(plain)(*given), time_first(plain(*given)))


def test_an_embedding_without_positions_is_none_of_a_transformer():
    with pytest.raises(ValueError, match="without positions"):
        TimeFirstEmbedding(embedding(None, positions=False))


def test_projection(float64, equal):
    plain = torch.nn.Linear(D_MODEL, CHANNELS)
    tokens = torch.randn(3, STEPS, D_MODEL)
    equal(TimeFirstProjection(plain, STEPS)(time_first(tokens)), plain(tokens))
