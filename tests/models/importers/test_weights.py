import pytest
import torch

from foretell.models.importers.errors import ImporterError
from foretell.models.importers.weights import load_weights
from tests.models.importers import published
from tests.models.importers.published import filled, inputs


@pytest.mark.parametrize("form", ["autoformer", "transformer", "patchtst", "official"])
def test_all_weights_arrive(form: str) -> None:
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    layout = published.layout(source, architecture)
    model = published.make(form)
    other = filled(model, layout, published.publish(model, layout))
    assert torch.equal(other(*inputs(model)), model(*inputs(model)))


def test_half_precision_becomes_single() -> None:
    layout = published.layout("tslib", "transformer")
    model = published.make("transformer")
    state = {key: tensor.half() for key, tensor in published.publish(model, layout).items()}
    other = filled(model, layout, state)
    assert {weight.dtype for weight in other.parameters()} == {torch.float32}
    torch.testing.assert_close(other(*inputs(model)), model(*inputs(model)), atol=0.05, rtol=0)


def test_refuses_before_it_fills() -> None:
    layout = published.layout("tslib", "patchtst", final_norm="batch")
    model = published.make("patchtst")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {key: tensor + 1 for key, tensor in published.publish(model, layout).items()}
    del state["head.linear.bias"]
    with pytest.raises(ImporterError, match=r"missing \(1\):\n    head\.linear\.bias \[6\]"):
        load_weights(model, layout, state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
