import pytest
import torch

from foretell.export.rewrites.autoformer import JoinedDecoderStart, SeasonalNorm, SeasonalProjection
from foretell.export.rewrites.embedding import neighbours
from foretell.models.architectures.autoformer import DecoderStart
from foretell.models.layers.normalization import SeasonalLayerNorm
from tests.export.rewrites.test_autoformer_layers import CONFIGS


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
