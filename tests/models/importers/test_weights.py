import pytest
import torch

from foretell.models.architectures import build
from foretell.models.forecaster import Forecaster
from foretell.models.importers.errors import ImporterError
from foretell.models.importers.layouts import Layout
from foretell.models.importers.weights import fill
from tests.models.importers import published

POSITIONS = "patch_embedding.position_embedding.pe"
SCALE = "model.backbone.encoder.layers.{}.self_attn.sdp_attn.scale"


def filled(model: Forecaster, layout: Layout, state: dict[str, torch.Tensor]) -> Forecaster:
    torch.manual_seed(99)
    other = build(model.config).eval()
    fill(other, layout, state)
    return other


def inputs(model: Forecaster) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    history = torch.randn(2, model.config.context, model.config.channels)
    if model.config.calendar is None:
        return (history,)
    return history, torch.rand(2, model.config.context, 4), torch.rand(2, model.config.horizon, 4)


@pytest.mark.parametrize("form", ["autoformer", "transformer", "patchtst", "official"])
def test_all_weights_arrive(form: str) -> None:
    source, architecture = ("patchtst",) * 2 if form == "official" else ("tslib", form)
    layout = published.layout(source, architecture)  # type: ignore[arg-type]
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


@pytest.mark.parametrize("form", ["patchtst", "learned"])
def test_table_of_positions(form: str) -> None:
    layout = published.layout("tslib", "patchtst", final_norm="batch")
    learned = form == "learned"
    model = published.make("patchtst", positions="learned" if learned else "sinusoidal")
    state = published.publish(model, layout)
    table = torch.randn(1, 5000, 8)
    if learned:
        table[0, :8] = state[POSITIONS]
    other = filled(model, layout, state | {POSITIONS: table})
    assert torch.equal(other(*inputs(model)), model(*inputs(model)))


@pytest.mark.parametrize("factor", [1.0, 0.7, 2.0])
def test_trained_attention_scale_is_folded_into_the_query(factor: float) -> None:
    layout = published.layout("patchtst", "patchtst")
    model = published.make("official")
    state = published.publish(model, layout)
    for i in range(2):
        state[SCALE.format(i)] = torch.tensor(4**-0.5 * factor)
    other = filled(model, layout, state)
    for layer in model.branches[0].layers:  # type: ignore[union-attr, index]
        layer.attention.query.weight.data *= factor
        layer.attention.query.bias.data *= factor
    torch.testing.assert_close(other(*inputs(model)), model(*inputs(model)))


def test_refuses_before_it_fills() -> None:
    layout = published.layout("tslib", "patchtst", final_norm="batch")
    model = published.make("patchtst")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state = {key: tensor + 1 for key, tensor in published.publish(model, layout).items()}
    del state["head.linear.bias"]
    with pytest.raises(ImporterError, match=r"missing \(1\):\n    head\.linear\.bias \[6\]"):
        fill(model, layout, state)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
