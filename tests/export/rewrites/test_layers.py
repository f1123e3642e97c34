import pytest
import torch

from foretell.export.rewrites import composition, inference_form
from foretell.export.rewrites.decomposition import ServedDecomposition
from foretell.export.rewrites.embedding import neighbours, rewrite_tokens
from foretell.export.rewrites.lookup import Call
from foretell.export.rewrites.patchtst import FlatPatchEncoder
from foretell.models.architectures.huggingface_patchtst import HuggingFacePatchTSTConfig, Pooling
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.layers.decomposition import SeriesDecomposition
from foretell.models.layers.embedding import TokenEmbedding
from tests.checkpoints import SMALL, randomised
from tests.support.variants import HUGGINGFACE_PATCHTSTS

CROSSED = HUGGINGFACE_PATCHTSTS[0].config


@pytest.mark.parametrize("kernel", [1, 3, 25, 51])
# Short series are one matrix, long ones blocks, with and without a remainder.
@pytest.mark.parametrize("length", [5, 26, 96, 97, 144, 211, 720])
def test_equals_the_decomposition(kernel, length, float64, equal):
    series = torch.randn(2, length, 5)
    plain = SeriesDecomposition(kernel)(series)
    served = ServedDecomposition(kernel, length, torch.float64)
    for found, expected in zip(served(series), plain, strict=True):
        equal(found, expected)
    seasonal, itself = ServedDecomposition(kernel, length, torch.float64, averaged=False)(series)
    equal(seasonal, plain[0])
    assert itself is series


@pytest.mark.parametrize(("length", "shape"), [(96, (96, 96)), (720, (24, 48))])
def test_long_series_are_multiplied_in_blocks(length, shape):
    assert ServedDecomposition(25, length, torch.float32).matrix.shape == shape


@pytest.mark.parametrize("length", [1, 17])
def test_a_convolution_by_itself(length, float64, equal):
    plain, series = TokenEmbedding(5, 8), torch.randn(3, length, 5)
    equal(rewrite_tokens(plain, Call((series.shape,), itself=False))(series), plain(series))


def test_neighbours_are_circular():
    assert neighbours(3).tolist() == [2, 0, 1, 0, 1, 2, 1, 2, 0]
    assert neighbours(1).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("changes", "merged", "bounded"),
    [
        ({"norm": "layer"}, True, [False, True]),
        ({"norm": "batch"}, True, [False, False]),
        ({"norm": "layer", "heads": 8}, False, [False, True]),
    ],
)
def test_few_heads_are_merged_and_layer_norms_bound_what_they_read(changes, merged, bounded):
    model = randomised(PatchTSTConfig(**SMALL | {"encoder_layers": 2} | changes))
    form = FlatPatchEncoder(model.branches[0])
    assert form.merged == merged
    assert [layer.attention.bounded for layer in form.layers] == bounded


def test_shared_attention_is_served_in_two_forms() -> None:
    rewritten, plain = composition(model := CROSSED.build(), inference_form(model))
    assert {"MultiHeadAttention", "TokenBatchNorm"} <= set(rewritten)
    assert "MultiHeadAttention" not in plain


def test_another_mechanism_is_served_by_itself() -> None:
    fields = CROSSED.model_dump() | {"channel_attention": False, "attention": ("residual-softmax",)}
    with pytest.raises(ValueError, match="is for whole layers of an encoder"):
        HuggingFacePatchTSTConfig.model_validate(fields)
    fields["attention"] = ("linear",)
    model = HuggingFacePatchTSTConfig.model_validate(fields).build().eval()
    history = torch.randn(2, 48, 3)
    torch.testing.assert_close(inference_form(model)(history), model(history))


def test_pooling_of_largest_values() -> None:
    tokens = torch.tensor([[[[1.0, -4], [3, -2], [2, -9]]]])
    assert Pooling("max")(tokens).tolist() == [[[3, -2]]]
    assert Pooling("mean")(tokens).tolist() == [[[2, -5]]]
