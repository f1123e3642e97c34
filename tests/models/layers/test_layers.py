import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional

from foretell.models.layers.autoformer import AutoformerDecoderLayer, LayerSizes
from foretell.models.layers.decomposition import SeriesDecomposition
from foretell.models.layers.dropout import Dropout, drop
from foretell.models.layers.embedding import (
    CalendarEmbedding,
    SeriesEmbedding,
    TokenEmbedding,
    sinusoids,
)
from foretell.models.layers.feed_forward import FeedForward
from foretell.models.layers.normalization import SeasonalLayerNorm, TokenBatchNorm
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency


def test_the_trends_projection_starts_as_published() -> None:
    """Torch's default: uniform between ±1 / √(inputs of an output)."""
    torch.manual_seed(0)
    sizes = LayerSizes(d_model=64, d_ff=8, moving_average=5, activation="gelu", dropout=0.0)
    layer = AutoformerDecoderLayer(nn.Identity(), nn.Identity(), sizes, outputs=64)
    weight = layer.trend_projection.convolution.weight.detach()
    bound = 1 / math.sqrt(64 * 3)
    assert weight.shape == (64, 64, 3)
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert float(weight.abs().max()) == pytest.approx(bound, rel=0.03)
    # The convolution of an embedding starts normally distributed and wider.
    embedding = TokenEmbedding(64, 64).convolution.weight.detach()
    assert float(embedding.std()) == pytest.approx(bound * math.sqrt(2), rel=0.03)
    assert float(embedding.abs().max()) > 2 * bound


def test_a_series_is_decomposed_by_hand() -> None:
    series = torch.tensor([[1.0, 2.0, 6.0, 3.0], [3.0, 3.0, 3.0, 3.0]]).T[None]
    # The first and the last value stand in for what lies outside.
    expected = torch.tensor([[4 / 3, 3.0, 11 / 3, 4.0], [3.0, 3.0, 3.0, 3.0]]).T[None]
    seasonal, trend = SeriesDecomposition(3)(series)
    torch.testing.assert_close(trend, expected)
    torch.testing.assert_close(seasonal, series - expected)
    assert torch.equal(SeriesDecomposition(1)(series)[1], series)


@pytest.mark.parametrize("probability", [0.05, 0.3, 0.9])
def test_dropout_drops_a_share_and_keeps_the_mean(probability: float) -> None:
    torch.manual_seed(0)
    values = torch.full((100, 1003), 2.0, requires_grad=True)
    found = drop(values, probability, training=True)
    assert (found == 0).float().mean().item() == pytest.approx(probability, abs=0.01)
    assert found.mean().item() == pytest.approx(2, rel=0.03)
    kept = found[found != 0]
    assert torch.equal(kept, kept[:1].expand(len(kept)))
    found.sum().backward()
    assert values.grad is not None
    torch.testing.assert_close(values.grad * 2, found.detach())


def test_dropout_depends_on_the_seed() -> None:
    draws = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        draws.append(drop(torch.ones(50), 0.5, training=True))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])


def test_dropout_of_zero_and_one() -> None:
    values, layer = torch.randn(3, 5), Dropout(0.5)
    assert torch.equal(layer.eval()(values), values)
    assert torch.equal(drop(values, 0.0, training=True), values)
    assert not drop(values, 1.0, training=True).any()
    assert not torch.equal(layer.train()(values), values)


def test_dropout_keeps_half_precision() -> None:
    assert drop(torch.ones(9, dtype=torch.bfloat16), 0.5, training=True).dtype == torch.bfloat16


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
    if kind == "fixed":
        torch.testing.assert_close(tables["hour"].weight.data, sinusoids(24, 6))


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


@pytest.mark.parametrize("activation", ["gelu", "relu"])
def test_two_maps_with_an_activation_between(activation: str) -> None:
    layer = FeedForward(4, 8, activation=activation, dropout=0.0)  # type: ignore[arg-type]
    tokens = torch.randn(2, 5, 4)
    function = getattr(functional, activation)
    hidden = function(tokens @ layer.expand.weight.T + layer.expand.bias)
    expected = hidden @ layer.contract.weight.T + layer.contract.bias
    torch.testing.assert_close(layer(tokens), expected)


def test_without_biases() -> None:
    layer = FeedForward(4, 8, activation="relu", dropout=0.0, bias=False)
    assert set(layer.state_dict()) == {"expand.weight", "contract.weight"}


def test_dropout_acts_in_training_only() -> None:
    layer = FeedForward(4, 64, activation="gelu", dropout=0.5)
    tokens = torch.randn(1, 8, 4)
    assert not torch.equal(layer(tokens), layer(tokens))
    layer.eval()
    assert torch.equal(layer(tokens), layer(tokens))


def test_seasonal_norm_has_no_mean_over_time() -> None:
    layer = SeasonalLayerNorm(5)
    torch.nn.init.uniform_(layer.norm.weight)
    torch.nn.init.uniform_(layer.norm.bias)
    tokens = torch.randn(2, 9, 5)
    found = layer(tokens)
    torch.testing.assert_close(found.mean(1), torch.zeros(2, 5), atol=1e-6, rtol=0)
    plain = functional.layer_norm(tokens, (5,), layer.norm.weight)
    torch.testing.assert_close(found, plain - plain.mean(1, keepdim=True))


def test_batch_norm_of_each_feature() -> None:
    layer = TokenBatchNorm(3)
    tokens = torch.randn(4, 6, 3) * 5 + 2
    normed = layer(tokens)
    torch.testing.assert_close(normed.mean((0, 1)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(normed.var((0, 1), correction=0), torch.ones(3), atol=1e-4, rtol=0)


def test_batch_norm_in_evaluation_uses_running_statistics() -> None:
    layer = TokenBatchNorm(2).eval()
    layer.norm.running_mean = torch.tensor([1.0, 2.0])
    layer.norm.running_var = torch.tensor([4.0, 9.0])
    tokens = torch.randn(2, 3, 2)
    expected = (tokens - torch.tensor([1.0, 2.0])) / torch.tensor([4.0, 9.0]).add(1e-5).sqrt()
    torch.testing.assert_close(layer(tokens), expected)
    torch.testing.assert_close(layer(tokens[:1]), layer(tokens)[:1])
