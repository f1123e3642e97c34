import math

import pytest
import torch
from torch import nn

from foretell.models.layers.autoformer import AutoformerDecoderLayer, LayerSizes
from foretell.models.layers.embedding import TokenEmbedding


def test_the_trends_projection_starts_as_published() -> None:
    """As torch's own convolution: evenly between ±1 / √(inputs of an output)."""
    torch.manual_seed(0)
    sizes = LayerSizes(d_model=64, d_ff=8, moving_average=5, activation="gelu", dropout=0.0)
    layer = AutoformerDecoderLayer(nn.Identity(), nn.Identity(), sizes, outputs=64)
    weight = layer.trend_projection.convolution.weight.detach()
    bound = 1 / math.sqrt(64 * 3)
    assert weight.shape == (64, 64, 3)
    assert float(weight.std()) == pytest.approx(bound / math.sqrt(3), rel=0.03)
    assert float(weight.abs().max()) == pytest.approx(bound, rel=0.03)
    # An embedding, which it is otherwise, starts normally distributed and wider.
    embedding = TokenEmbedding(64, 64).convolution.weight.detach()
    assert float(embedding.std()) == pytest.approx(bound * math.sqrt(2), rel=0.03)
    assert float(embedding.abs().max()) > 2 * bound
