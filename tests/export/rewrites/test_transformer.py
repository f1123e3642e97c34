import pytest
import torch

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.export.rewrites.embedding import ServedEmbedding
from foretell.export.rewrites.transformer import TimeFirstProjection
from foretell.models.layers.embedding import SeriesEmbedding
from tests.export.rewrites.test_attention import time_first

STEPS, CHANNELS, D_MODEL = 9, 4, 8
HOURLY = Calendar.for_frequency(Frequency.parse("h"), "scaled")


@pytest.mark.parametrize("positions", [True, False])
@pytest.mark.parametrize("calendar", [HOURLY, None])
def test_embedding(calendar, positions, float64, equal):
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


def test_projection(float64, equal):
    plain = torch.nn.Linear(D_MODEL, CHANNELS)
    tokens = torch.randn(3, STEPS, D_MODEL)
    equal(TimeFirstProjection(plain, STEPS)(time_first(tokens)), plain(tokens))
