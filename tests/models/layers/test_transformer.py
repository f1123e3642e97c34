from typing import Any

import torch

from foretell.models.layers.transformer import DecoderLayer, EncoderLayer
from tests.models.attention.places import multi_head


def make_encoder(*, residual: bool = False, **options: Any) -> EncoderLayer:
    torch.manual_seed(0)
    attention = multi_head(8, 2, residual=residual)
    return EncoderLayer(attention, 8, 16, activation="gelu", dropout=0.1, **options).eval()


def test_encoder_layer_is_post_norm() -> None:
    layer = make_encoder()
    tokens = torch.randn(2, 5, 8)
    attended = tokens + layer.attention(tokens, tokens).output
    middle = layer.attention_norm(attended)
    expected = layer.feed_forward_norm(middle + layer.feed_forward(middle))
    torch.testing.assert_close(layer(tokens).output, expected)


def test_decoder_layer_is_causal_and_reads_all_of_the_memory() -> None:
    torch.manual_seed(0)
    own, cross = multi_head(8, 2, causal=True), multi_head(8, 2)
    layer = DecoderLayer(own, cross, 8, 16, activation="relu", dropout=0.1).eval()
    tokens, memory = torch.randn(1, 4, 8), torch.randn(1, 6, 8)
    before = layer(tokens, memory, explain=True)
    assert not before.own.weights.triu(1).any()
    assert before.cross.weights.shape == (1, 2, 4, 6)
    later = tokens.clone()
    later[:, 3] += 1
    torch.testing.assert_close(layer(later, memory).output[:, :3], before.output[:, :3])
    memory[:, 5] += 1
    assert not torch.allclose(layer(tokens, memory).output[:, 0], before.output[:, 0])


def test_dropout_between_attention_and_residual_acts_in_training_only() -> None:
    torch.manual_seed(0)
    attention = multi_head(8, 2)
    options = {"activation": "gelu", "dropout": 0.0, "projection_dropout": 1.0}
    layer = EncoderLayer(attention, 8, 16, **options)  # type: ignore[arg-type]
    tokens = torch.randn(2, 5, 8)
    alone = layer.attention_norm(tokens)
    expected = layer.feed_forward_norm(alone + layer.feed_forward(alone))
    torch.testing.assert_close(layer(tokens).output, expected)
    assert not torch.allclose(layer.eval()(tokens).output, expected)
