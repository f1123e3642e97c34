import math

import numpy as np
import pytest
import torch

from foretell.models.layers.embedding import (
    CalendarEmbedding,
    SeriesEmbedding,
    TokenEmbedding,
    sinusoids,
)
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

HOURLY = Frequency.parse("h")
SCALED = Calendar.for_frequency(HOURLY, "scaled")
INTEGER = Calendar.for_frequency(HOURLY, "integer")


@pytest.mark.parametrize("d_model", [1, 4, 7])
def test_sinusoids_by_their_definition(d_model: int) -> None:
    table = sinusoids(50, d_model)
    assert table.shape == (50, d_model)
    for position in (0, 1, 49):
        for feature in range(d_model):
            angle = position / 10000 ** (2 * (feature // 2) / d_model)
            expected = math.cos(angle) if feature % 2 else math.sin(angle)
            assert float(table[position, feature]) == pytest.approx(expected, abs=1e-5)


def test_token_embedding_wraps_around() -> None:
    layer = TokenEmbedding(2, 3)
    series = torch.randn(1, 6, 2)
    found = layer(series)
    weight = layer.convolution.weight
    for step in range(6):
        expected = sum(weight[:, :, tap] @ series[0, (step + tap - 1) % 6] for tap in range(3))
        torch.testing.assert_close(found[0, step], expected)


def test_token_embedding_moves_with_its_input() -> None:
    layer = TokenEmbedding(2, 3)
    series = torch.randn(1, 9, 2)
    torch.testing.assert_close(layer(series.roll(2, dims=1)), layer(series).roll(2, dims=1))


def test_linear_calendar_embedding() -> None:
    layer = CalendarEmbedding(SCALED, "timeF", 5)
    assert layer.linear is not None
    features = torch.randn(2, 3, 4)
    torch.testing.assert_close(layer(features), features @ layer.linear.weight.T)


@pytest.mark.parametrize("kind", ["learned", "fixed"])
def test_table_calendar_embedding_adds_a_row_a_feature(kind: str) -> None:
    layer = CalendarEmbedding(INTEGER, kind, 6)  # type: ignore[arg-type]
    moment = np.array(["2024-12-31T23:00"], "M8[us]")
    features = torch.from_numpy(INTEGER.encode(moment))[None]
    tables = layer.tables
    expected = (
        tables["month"].weight[12]
        + tables["day_of_month"].weight[31]
        + tables["day_of_week"].weight[1]
        + tables["hour"].weight[23]
    )
    torch.testing.assert_close(layer(features)[0, 0], expected)
    assert all(table.weight.requires_grad == (kind == "learned") for table in tables.values())


def test_fixed_table_is_sinusoidal() -> None:
    layer = CalendarEmbedding(INTEGER, "fixed", 6)
    torch.testing.assert_close(layer.tables["hour"].weight.data, sinusoids(24, 6))


@pytest.mark.parametrize("positions", [False, True])
def test_series_embedding_is_a_sum(positions: bool) -> None:
    layer = SeriesEmbedding(
        2, 4, 6, calendar=SCALED, kind="timeF", positions=positions, dropout=0.0
    )
    assert layer.calendar is not None
    series, features = torch.randn(3, 6, 2), torch.randn(3, 6, 4)
    expected = layer.value(series) + layer.calendar(features)
    if positions:
        expected = expected + sinusoids(6, 4)
    torch.testing.assert_close(layer(series, features), expected)
    assert not any("positions" in name for name in layer.state_dict())


def test_series_embedding_without_a_calendar() -> None:
    layer = SeriesEmbedding(2, 4, 6, calendar=None, kind="timeF", positions=False, dropout=0.0)
    series = torch.randn(3, 6, 2)
    torch.testing.assert_close(layer(series, None), layer.value(series))
