import pytest
import torch
from torch import nn

from foretell.export.rewrites.attention import TimeFirstAttention
from foretell.export.rewrites.merged_attention import MergedAttention
from foretell.export.rewrites.transformer_layers import TimeFirstDecoderLayer, flatten_layer
from foretell.models.layers.normalization import TokenBatchNorm
from foretell.models.layers.transformer import DecoderLayer, EncoderLayer
from tests.export.rewrites.test_attention import BATCH, D_MODEL, HEADS, time_first
from tests.models.attention.places import multi_head

STEPS, SOURCE = 8, 5


def decoder_layer(activation: str) -> DecoderLayer:
    own, cross = multi_head(D_MODEL, HEADS, causal=True), multi_head(D_MODEL, HEADS)
    return DecoderLayer(own, cross, D_MODEL, 20, activation=activation, dropout=0.1).eval()


@pytest.mark.parametrize("norm", [nn.LayerNorm, TokenBatchNorm])
@pytest.mark.parametrize("residual", [False, True])
def test_encoder_layer(norm, residual, float64, equal):
    attention = multi_head(D_MODEL, HEADS, dropout=0.1, residual=residual)
    plain = EncoderLayer(attention, D_MODEL, 20, activation="gelu", dropout=0.1, norm=norm)
    for module in plain.modules():
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    plain.eval()
    tokens = torch.randn(BATCH, STEPS, D_MODEL)
    inherited = torch.randn(BATCH, HEADS, STEPS, STEPS) if residual else None
    expected = plain(tokens, inherited=inherited, explain=True)
    alone = plain(tokens).output
    flatten_layer(plain, TimeFirstAttention(attention, (STEPS, STEPS)))
    found = plain(time_first(tokens), inherited=inherited, explain=True)
    equal(found.output, time_first(expected.output))
    equal(found.evidence.weights, expected.evidence.weights)
    assert plain(time_first(tokens), inherited=inherited).evidence is None
    flatten_layer(plain, MergedAttention(attention, STEPS))
    equal(plain(tokens.flatten(0, 1)).output, alone.flatten(0, 1))


@pytest.mark.parametrize("wanted", [STEPS, 3])
def test_decoder_layer(wanted, float64, equal):
    plain = decoder_layer(activation="relu")
    tokens, memory = torch.randn(BATCH, STEPS, D_MODEL), torch.randn(BATCH, SOURCE, D_MODEL)
    expected = plain(tokens, memory, explain=True)
    rewritten = TimeFirstDecoderLayer(plain, STEPS, SOURCE, wanted, embedded=True)
    given = time_first(tokens), time_first(memory)
    found = rewritten(*given, explain=True)
    output = time_first(expected.output[:, -wanted:])
    equal(found.output, output)
    equal(found.own.weights, expected.own.weights)
    equal(found.cross.weights, expected.cross.weights)
    found = rewritten(*given)
    equal(found.output, output)
    assert found[1:] == (None, None)
