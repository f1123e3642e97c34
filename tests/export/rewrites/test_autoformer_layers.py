import pytest
import torch

from foretell.export.rewrites.auto_correlation import correlator_for
from foretell.export.rewrites.autoformer_layers import (
    SeasonalDecoderLayer,
    SeasonalEncoderLayer,
    TrendProjection,
)
from foretell.export.rewrites.decomposition import SeasonalPart
from foretell.models.architectures.autoformer import (
    AutoformerConfig,
    AutoformerDecoderLayer,
    AutoformerEncoderLayer,
)
from foretell.models.layers.decomposition import MovingAverage
from foretell.models.layers.embedding import TokenEmbedding
from tests.checkpoints import SMALL

BATCH = 3
EVEN = {"mechanism": "autocorrelation", "lags": "even"}
# A decoder longer than the context, a shorter one, and one without a label.
CONFIGS = [
    AutoformerConfig(**SMALL | {"horizon": 36}, label=24, moving_average=13),
    AutoformerConfig(**SMALL | {"context": 37}, label=16, attention=EVEN),
    AutoformerConfig(**SMALL | {"horizon": 24}, label=0, moving_average=5),
]


def parts(config: AutoformerConfig, length: int):
    return (
        correlator_for(length, torch.float64),
        SeasonalPart(config.moving_average, length, torch.float64),
    )


@pytest.mark.parametrize("config", CONFIGS)
def test_trend_projection(config, float64, equal):
    plain = TokenEmbedding(config.d_model, config.channels)
    tokens = torch.randn(BATCH, config.decoder_length, config.d_model)
    trend = plain(MovingAverage(config.moving_average)(tokens))
    equal(TrendProjection(plain, config)(tokens), trend[:, -config.horizon :])


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("first", [True, False])
def test_encoder_layer(config, first, float64, equal):
    attention = config.build_attention("encoder.0.self")
    plain = AutoformerEncoderLayer(attention, config).eval()
    rewritten = SeasonalEncoderLayer(plain, *parts(config, config.context), first=first)
    tokens = torch.randn(BATCH, config.context, config.d_model) + 2
    expected, found = (layer(tokens, explain=True) for layer in (plain, rewritten))
    equal(found.output, expected.output)
    assert torch.equal(found.evidence.lags, expected.evidence.lags)


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("first", [True, False])
def test_decoder_layer(config, first, float64, equal):
    attentions = (config.build_attention(f"decoder.0.{which}") for which in ("self", "cross"))
    plain = AutoformerDecoderLayer(*attentions, config).eval()
    rewritten = SeasonalDecoderLayer(
        plain, config, *parts(config, config.decoder_length), first=first
    )
    tokens = torch.randn(BATCH, config.decoder_length, config.d_model) + first
    tokens = tokens if first else SeasonalPart(5, config.decoder_length, torch.float64)(tokens)
    memory = torch.randn(BATCH, config.context, config.d_model)
    expected, found = (layer(tokens, memory, explain=True) for layer in (plain, rewritten))
    equal(found.seasonal, expected.seasonal)
    equal(found.trend, expected.trend[:, -config.horizon :])
    assert torch.equal(found.own.lags, expected.own.lags)
    assert torch.equal(found.cross.lags, expected.cross.lags)
