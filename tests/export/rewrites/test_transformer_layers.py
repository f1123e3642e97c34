import pytest
import torch
from torch import nn

from foretell.export.rewrites.transformer_layers import FlatEncoderLayer, TimeFirstDecoderLayer
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer_layers import DecoderLayer, EncoderLayer
from tests.export.rewrites.test_attention import BATCH, D_MODEL, HEADS, time_first

STEPS, SOURCE = 8, 5


@pytest.mark.parametrize("norm", [nn.LayerNorm, TokenBatchNorm])
@pytest.mark.parametrize("residual", [False, True])
def test_encoder_layer(norm, residual, float64, equal):
    plain = EncoderLayer(
        D_MODEL,
        HEADS,
        20,
        activation="gelu",
        dropout=0.1,
        attention_dropout=0.1,
        norm=norm,
        residual_attention=residual,
    )
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    plain.eval()
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    inherited = torch.randn(BATCH, HEADS, STEPS, STEPS) if residual else None
    expected = plain(tokens, inherited=inherited, return_weights=True)
    rewritten = FlatEncoderLayer(plain, STEPS, None)
    found = rewritten(time_first(tokens), inherited=inherited, return_weights=True)
    equal(found.output, time_first(expected.output))
    equal(found.weights, expected.weights)
    assert rewritten(time_first(tokens), inherited=inherited).weights is None
    merged = FlatEncoderLayer(plain, STEPS, None, merged=True)
    equal(merged(tokens.flatten(0, 1)).output, plain(tokens).output.flatten(0, 1))


@pytest.mark.parametrize("wanted", [STEPS, 3])
def test_decoder_layer(wanted, float64, equal):
    plain = DecoderLayer(D_MODEL, HEADS, 20, activation="relu", dropout=0.1).eval()
    tokens, memory = torch.randn(BATCH, STEPS, D_MODEL), torch.randn(BATCH, SOURCE, D_MODEL)
    expected = plain(tokens, memory, return_weights=True)
    rewritten = TimeFirstDecoderLayer(plain, STEPS, SOURCE, wanted, None, nn.Identity())
    given = time_first(tokens), time_first(memory)
    found = rewritten(*given, return_weights=True)
    output = time_first(expected.output[:, -wanted:])
    equal(found.output, output)
    equal(found.self_weights, expected.self_weights)
    equal(found.cross_weights, expected.cross_weights)
    found = rewritten(*given)
    equal(found.output, output)
    assert found[1:] == (None, None)


def test_layers_after_a_norm(float64, equal):
    norm = nn.LayerNorm(D_MODEL)
    tokens = norm(torch.randn(BATCH, STEPS, D_MODEL))
    memory = norm(torch.randn(BATCH, SOURCE, D_MODEL))
    network = {"activation": "gelu", "dropout": 0.1}
    encoder = EncoderLayer(D_MODEL, HEADS, 20, attention_dropout=0.1, **network).eval()
    rewritten = FlatEncoderLayer(encoder, STEPS, norm)
    assert rewritten.attention.bounded
    equal(rewritten(time_first(tokens)).output, time_first(encoder(tokens).output))
    decoder = DecoderLayer(D_MODEL, HEADS, 20, **network).eval()
    changed = TimeFirstDecoderLayer(decoder, STEPS, SOURCE, 3, norm, norm)
    assert changed.self_attention.bounded
    assert changed.cross_attention.bounded
    expected = decoder(tokens, memory, return_weights=True)
    found = changed(time_first(tokens), time_first(memory), return_weights=True)
    equal(found.output, time_first(expected.output[:, -3:]))
    equal(found.self_weights, expected.self_weights)
    equal(found.cross_weights, expected.cross_weights)
