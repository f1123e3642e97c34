import pytest
import torch
from torch import nn

from foretell.export.rewrites.transformer_layers import FlatEncoderLayer, TimeFirstDecoderLayer
from foretell.models.attention.softmax import MultiHeadAttention
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import DecoderLayer, EncoderLayer
from tests.export.rewrites.test_attention import BATCH, D_MODEL, HEADS, time_first

STEPS, SOURCE = 8, 5


def decoder_layer(activation: str) -> DecoderLayer:
    own, cross = MultiHeadAttention(D_MODEL, HEADS, causal=True), MultiHeadAttention(D_MODEL, HEADS)
    return DecoderLayer(own, cross, D_MODEL, 20, activation=activation, dropout=0.1).eval()


@pytest.mark.parametrize("norm", [nn.LayerNorm, TokenBatchNorm])
@pytest.mark.parametrize("residual", [False, True])
def test_encoder_layer(norm, residual, float64, equal):
    attention = MultiHeadAttention(D_MODEL, HEADS, dropout=0.1, residual=residual)
    plain = EncoderLayer(attention, D_MODEL, 20, activation="gelu", dropout=0.1, norm=norm)
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    plain.eval()
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    inherited = torch.randn(BATCH, HEADS, STEPS, STEPS) if residual else None
    expected = plain(tokens, inherited=inherited, explain=True)
    rewritten = FlatEncoderLayer(plain, STEPS, None, embedded=True)
    found = rewritten(time_first(tokens), inherited=inherited, explain=True)
    equal(found.output, time_first(expected.output))
    equal(found.evidence.weights, expected.evidence.weights)
    assert rewritten(time_first(tokens), inherited=inherited).evidence is None
    merged = FlatEncoderLayer(plain, STEPS, None, embedded=True, merged=True)
    equal(merged(tokens.flatten(0, 1)).output, plain(tokens).output.flatten(0, 1))


@pytest.mark.parametrize("wanted", [STEPS, 3])
def test_decoder_layer(wanted, float64, equal):
    plain = decoder_layer(activation="relu")
    tokens, memory = torch.randn(BATCH, STEPS, D_MODEL), torch.randn(BATCH, SOURCE, D_MODEL)
    expected = plain(tokens, memory, explain=True)
    rewritten = TimeFirstDecoderLayer(
        plain, STEPS, SOURCE, wanted, None, nn.Identity(), embedded=True
    )
    given = time_first(tokens), time_first(memory)
    found = rewritten(*given, explain=True)
    output = time_first(expected.output[:, -wanted:])
    equal(found.output, output)
    equal(found.own.weights, expected.own.weights)
    equal(found.cross.weights, expected.cross.weights)
    found = rewritten(*given)
    equal(found.output, output)
    assert found[1:] == (None, None)


def test_layers_after_a_norm(float64, equal):
    norm = nn.LayerNorm(D_MODEL)
    tokens = norm(torch.randn(BATCH, STEPS, D_MODEL))
    memory = norm(torch.randn(BATCH, SOURCE, D_MODEL))
    attention = MultiHeadAttention(D_MODEL, HEADS)
    encoder = EncoderLayer(attention, D_MODEL, 20, activation="gelu", dropout=0.1).eval()
    rewritten = FlatEncoderLayer(encoder, STEPS, norm, embedded=False)
    assert rewritten.attention.bounded
    equal(rewritten(time_first(tokens)).output, time_first(encoder(tokens).output))
    decoder = decoder_layer(activation="gelu")
    changed = TimeFirstDecoderLayer(decoder, STEPS, SOURCE, 3, norm, norm, embedded=False)
    assert changed.self_attention.bounded
    assert changed.cross_attention.bounded
    expected = decoder(tokens, memory, explain=True)
    found = changed(time_first(tokens), time_first(memory), explain=True)
    equal(found.output, time_first(expected.output[:, -3:]))
    equal(found.own.weights, expected.own.weights)
    equal(found.cross.weights, expected.cross.weights)
