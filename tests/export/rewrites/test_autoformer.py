import copy

import pytest
import torch

from foretell.export.rewrites.autoformer import (
    JoinedDecoderStart,
    SeasonalProjection,
    TrendProjection,
    rewrite_autoformer,
)
from foretell.export.rewrites.embedding import neighbours
from foretell.export.rewrites.lookup import Call
from foretell.export.rewrites.normalization import SeasonalNorm
from foretell.models.architectures.autoformer import Autoformer, AutoformerConfig, DecoderStart
from foretell.models.layers.decomposition import MovingAverage
from foretell.models.layers.embedding import TokenEmbedding
from foretell.models.layers.normalization import SeasonalLayerNorm
from tests.checkpoints import SMALL

BATCH = 3
EVEN = {"mechanism": "autocorrelation", "lags": "even"}
# A decoder longer than the context, a shorter one, and one without a label.
CONFIGS = [
    AutoformerConfig(**SMALL | {"horizon": 36}, label=24, moving_average=13),
    AutoformerConfig(**SMALL | {"context": 37}, label=16, attention=EVEN),
    AutoformerConfig(**SMALL | {"horizon": 24}, label=0, moving_average=5),
]


@pytest.mark.parametrize("config", CONFIGS)
def test_decoder_start(config, float64, equal):
    history = torch.randn(3, config.context, config.channels) + 2
    seasonal, trend = DecoderStart(config)(history)
    joined, mean = JoinedDecoderStart(config, torch.float64)(history)
    shape = (3, config.decoder_length, 3 * config.channels)
    equal(joined, seasonal[:, neighbours(config.decoder_length)].reshape(shape))
    equal(mean.expand(-1, config.horizon, -1), trend[:, -config.horizon :])


def test_seasonal_norm(float64, equal):
    plain = SeasonalLayerNorm(8)
    torch.nn.init.normal_(plain.norm.bias)
    tokens = torch.randn(3, 11, 8)
    equal(SeasonalNorm(plain)(tokens), plain(tokens))


@pytest.mark.parametrize("config", CONFIGS)
def test_projection_and_the_norm_before_it(config, float64, equal):
    norm = SeasonalLayerNorm(config.d_model)
    plain = torch.nn.Linear(config.d_model, config.channels)
    torch.nn.init.normal_(norm.norm.bias)
    tokens = torch.randn(2, config.decoder_length, config.d_model)
    found = SeasonalProjection(plain, config)(norm.norm(tokens))
    equal(found, plain(norm(tokens))[:, -config.horizon :])


@pytest.mark.parametrize("config", CONFIGS)
def test_trend_projection(config, float64, equal):
    plain = TokenEmbedding(config.d_model, config.channels)
    tokens, left_out = torch.randn(BATCH, config.decoder_length, config.d_model), torch.randn(16)
    trend = plain(MovingAverage(config.moving_average)(tokens + left_out))
    found = TrendProjection(plain, config, left_out)(tokens)
    equal(found, trend[:, -config.horizon :])


@pytest.mark.parametrize("config", CONFIGS)
def test_encoder_layers(config, float64, equal):
    plain, served = models(config)
    tokens = torch.randn(BATCH, config.context, config.d_model) + 2
    for before, after in zip(plain.encoder_layers, served.encoder_layers, strict=True):
        expected, found = (layer(tokens, explain=True) for layer in (before, after))
        equal(found.output, expected.output)
        assert torch.equal(found.evidence.lags, expected.evidence.lags)
        tokens = expected.output


@pytest.mark.parametrize("config", CONFIGS)
def test_decoder_layers(config, float64, equal):
    plain, served = models(config)
    tokens = torch.randn(BATCH, config.decoder_length, config.d_model) + 1
    memory = torch.randn(BATCH, config.context, config.d_model)
    for before, after in zip(plain.decoder_layers, served.decoder_layers, strict=True):
        expected, found = (layer(tokens, memory, explain=True) for layer in (before, after))
        equal(found.seasonal, expected.seasonal)
        equal(found.trend, expected.trend[:, -config.horizon :])
        assert torch.equal(found.own.lags, expected.own.lags)
        assert torch.equal(found.cross.lags, expected.cross.lags)
        tokens = expected.seasonal


def models(config: AutoformerConfig) -> tuple[Autoformer, Autoformer]:
    """One as it was trained, and one as it is served, with two decoder layers."""
    torch.manual_seed(0)
    plain = Autoformer(config.model_copy(update={"decoder_layers": 2})).eval()
    served = rewrite_autoformer(copy.deepcopy(plain), Call((), itself=False))
    return plain, served
