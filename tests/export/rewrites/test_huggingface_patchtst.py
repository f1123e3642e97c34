import pytest
import torch

from foretell.export.rewrites import composition, inference_form
from foretell.models.architectures.huggingface_patchtst import HuggingFacePatchTSTConfig, Pooling
from foretell.models.attention.evidence import Dense
from tests.checkpoints import randomised
from tests.support.variants import HUGGINGFACE_PATCHTSTS

CROSSED = HUGGINGFACE_PATCHTSTS[0].config


@pytest.mark.parametrize("size", HUGGINGFACE_PATCHTSTS, ids=lambda size: size.name)
def test_the_form_forecasts_the_same_by_the_same_evidence(size) -> None:
    model = randomised(size.config).double()
    form = inference_form(model)
    history = torch.randn(4, 48, 3, dtype=torch.float64)
    plain, served = model.explain(history), form.explain(history)
    torch.testing.assert_close(served.forecast, plain.forecast, rtol=1e-9, atol=1e-9)
    assert served.attention.keys() == plain.attention.keys()
    for name, seen in plain.attention.items():
        found = served.attention[name]
        assert isinstance(seen, Dense)
        assert isinstance(found, Dense)
        torch.testing.assert_close(found.weights, seen.weights, rtol=0, atol=1e-9)


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
