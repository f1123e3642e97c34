import pytest
import torch

from export.rewrites.autoformer import JoinedDecoderStart, SeasonalProjection
from export.rewrites.embedding import neighbours
from models.autoformer import DecoderStart
from models.layers.normalization import SeasonalLayerNorm
from tests.export.rewrites.test_autoformer_layers import CONFIGS


@pytest.mark.parametrize("config", CONFIGS)
def test_decoder_start(config, float64, equal):
    history = torch.randn(3, config.context, config.channels) + 2
    seasonal, trend = DecoderStart(config)(history)
    joined, mean = JoinedDecoderStart(config, torch.float64)(history)
    shape = (3, config.decoder_length, 3 * config.channels)
    equal(joined, seasonal[:, neighbours(config.decoder_length)].reshape(shape))
    equal(mean.expand(-1, config.horizon, -1), trend[:, -config.horizon :])


def test_projection_and_the_norm_before_it(float64, equal):
    norm, plain = SeasonalLayerNorm(8), torch.nn.Linear(8, 3)
    torch.nn.init.normal_(norm.norm.bias)
    tokens = torch.randn(2, 10, 8)
    found = SeasonalProjection(plain, 4)(norm.norm(tokens))
    equal(found, plain(norm(tokens))[:, -4:])
