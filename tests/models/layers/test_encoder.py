"""Layers one after another: what training keeps of them, and what it computes again."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.attending import AttendingConfig
from foretell.models.forecaster import ARCHITECTURES, Forecaster
from foretell.models.layers.encoder import Encoder

SIZES = {"channels": 2, "context": 48, "horizon": 12, "d_model": 8, "heads": 2, "d_ff": 16}


def encoder_of(model: Forecaster) -> Encoder:
    (encoder,) = (module for module in model.modules() if isinstance(module, Encoder))
    return encoder


def learned(model: Forecaster, *, recomputes: bool) -> tuple[Tensor, dict[str, Tensor], int]:
    """The forecast, all gradients and buffers after a step, and how often the first layer ran."""
    encoder, calls = encoder_of(model), []
    encoder.recomputes = recomputes
    hook = encoder[0].register_forward_pre_hook(lambda *_: calls.append(1))
    torch.manual_seed(1)
    history = torch.randn(5, 48, 2, requires_grad=True)
    forecast: Tensor = model(history, None, None)
    forecast.square().mean().backward()
    hook.remove()
    found = {name: each.grad for name, each in model.named_parameters() if each.grad is not None}
    assert history.grad is not None
    return forecast, {**found, **dict(model.named_buffers()), "history": history.grad}, len(calls)


@pytest.mark.parametrize(
    "own",
    [
        {"norm": "batch", "attention": "residual-softmax"},
        # Centres move in training, and hashes are drawn.
        {"attention": "routing"},
        {"attention": "reformer"},
        {"architecture": "transformer", "calendar": None, "attention": "linear"},
        {"architecture": "autoformer", "calendar": None},
        {"architecture": "itransformer", "calendar": None},
    ],
)
def test_what_is_computed_again_is_the_same(own: dict[str, object]) -> None:
    config = ARCHITECTURES.read({"architecture": "patchtst", "dropout": 0.2, **SIZES, **own})
    assert isinstance(config, AttendingConfig)
    torch.manual_seed(0)
    models = [config.build().train() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    (kept, found, once), (again, same, twice) = (
        learned(model, recomputes=recomputes)
        for model, recomputes in zip(models, (False, True), strict=True)
    )
    assert (once, twice) == (1, 2)
    assert torch.equal(kept, again)
    assert found.keys() == same.keys()
    for name, each in found.items():
        assert torch.equal(each, same[name]), name


def test_nothing_is_kept_of_the_inside_of_a_layer() -> None:
    sizes = {**SIZES, "d_model": 64, "d_ff": 256, "encoder_layers": 3}
    model = PatchTSTConfig(**sizes, attention="residual-softmax").build().train()

    def kept(*, recomputes: bool) -> int:
        encoder_of(model).recomputes = recomputes
        numbers = 0

        def note(tensor: Tensor) -> Tensor:
            nonlocal numbers
            numbers += tensor.numel() * (not isinstance(tensor, nn.Parameter))
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            model(torch.randn(5, 48, 2), None, None)
        return numbers

    assert kept(recomputes=True) < 0.3 * kept(recomputes=False)


def test_what_needs_no_gradients_runs_once() -> None:
    model = PatchTSTConfig(**SIZES).build().eval()
    encoder, calls = encoder_of(model), []
    encoder.recomputes = True
    encoder[0].register_forward_hook(lambda *_: calls.append(1))
    history = torch.randn(1, 48, 2)
    with torch.inference_mode():
        assert model.explain(history, None, None).attention
        model(history, None, None)
    assert len(calls) == 2
