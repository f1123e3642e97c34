import pytest
import torch
from torch import nn

from foretell.export.rewrites.patchtst import FlatPatchEncoder, FoldedHead
from foretell.models.architectures.patchtst import PatchEncoder, PatchTSTConfig
from tests.checkpoints import SMALL

BATCH = 4
VARIANTS = [
    {},
    {"final_norm": "layer", "individual": True},
    {"final_norm": None, "patch": 10, "stride": 3, "pad_end": False, "patch_bias": True},
    {"positions": "learned", "norm": "batch", "affine": True, "individual": True},
    {"window_norm": None, "attention": "residual-softmax", "stride": 20},
]


def encoder(variant: dict) -> PatchEncoder:
    torch.manual_seed(0)
    plain = PatchEncoder(PatchTSTConfig(**SMALL | variant))
    plain.window_norm = plain.config.build_window_norm()
    for module in plain.modules():
        if isinstance(module, nn.LayerNorm | nn.BatchNorm1d):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.normal_(module.bias, std=0.2)
        if isinstance(module, nn.BatchNorm1d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
    return plain.eval()


@pytest.mark.parametrize("variant", VARIANTS)
def test_folded_head(variant, float64, equal):
    plain = encoder(variant)
    config = plain.config
    tokens = torch.randn(BATCH * config.channels, config.patches, config.d_model)
    normed = plain.final_norm(tokens).unflatten(0, (BATCH, config.channels))
    expected = plain._head(normed.transpose(-1, -2).flatten(-2))
    equal(FoldedHead(plain)(tokens), expected)


@pytest.mark.parametrize("variant", VARIANTS + [variant | {"heads": 8} for variant in VARIANTS])
def test_patch_encoder(variant, float64, equal):
    plain = encoder(variant)
    history = torch.randn(BATCH, plain.config.context, plain.config.channels)
    expected, maps = plain(history, explain=True)
    rewritten = FlatPatchEncoder(plain)
    assert rewritten.merged == ("heads" not in variant)
    found, found_maps = rewritten(history, explain=True)
    equal(found, expected)
    assert set(rewritten(history)[1]) == {None}
    for seen, wanted in zip(found_maps, maps, strict=True):
        equal(seen.weights, wanted.weights)


@pytest.mark.parametrize(("norm", "bounded"), [("layer", [False, True]), ("batch", [False] * 2)])
def test_what_comes_out_of_a_layer_norm_is_bounded(norm, bounded):
    form = FlatPatchEncoder(encoder({"norm": norm, "encoder_layers": 2}))
    assert [layer.attention.bounded for layer in form.layers] == bounded
