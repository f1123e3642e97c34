"""Encoders in training: activations that are kept, and layers that are computed again."""

from __future__ import annotations

from itertools import accumulate

import pytest
import torch
from torch import Tensor, nn

from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.attending import AttendingConfig
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.layers.encoder import Encoder

SIZES = {"channels": 2, "context": 48, "horizon": 12, "d_model": 8, "heads": 2, "d_ff": 16}


def encoder_of(model: Forecaster) -> Encoder:
    (encoder,) = (module for module in model.modules() if isinstance(module, Encoder))
    return encoder


def learned(
    model: Forecaster, *, recomputes: bool, parts: int = 1
) -> tuple[Tensor, dict[str, Tensor], int]:
    """The forecast, all gradients and buffers after a step, and how often the first layer ran."""
    encoder, calls = encoder_of(model), []
    encoder.recomputes, encoder.parts = recomputes, parts
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
    ("parts", "own"),
    [
        (1, {"norm": "batch", "attention": "residual-softmax"}),
        # Centres move in training, and hashes are drawn.
        (1, {"attention": "routing"}),
        (1, {"attention": "reformer"}),
        (1, {"architecture": "transformer", "calendar": None, "attention": "linear"}),
        (1, {"architecture": "autoformer", "calendar": None}),
        (1, {"architecture": "itransformer", "calendar": None}),
        # Statistics, centres and lags depend on all rows of the batch, and hashes and keys are
        # drawn for all rows at once.
        (4, {"norm": "batch"}),
        (4, {"attention": "routing"}),
        (4, {"attention": "reformer"}),
        (4, {"attention": "probsparse"}),
        (4, {"architecture": "autoformer", "calendar": None}),
    ],
)
def test_recomputation_gives_the_same_gradients(parts: int, own: dict[str, object]) -> None:
    config = ARCHITECTURES.read({"architecture": "patchtst", "dropout": 0.2, **SIZES, **own})
    assert isinstance(config, AttendingConfig)
    torch.manual_seed(0)
    models = [config.build().train() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    kept, found, once = learned(models[0], recomputes=False)
    again, same, twice = learned(models[1], recomputes=True, parts=parts)
    assert (once, twice) == (1, 2)
    assert torch.equal(kept, again)
    assert found.keys() == same.keys()
    for name, each in found.items():
        assert torch.equal(each, same[name]), name


@pytest.mark.parametrize(
    ("own", "rows"),
    [
        ({}, 10),
        ({"attention": "residual-softmax", "final_norm": None}, 10),
        ({"attention": "rotary"}, 10),
        ({"architecture": "transformer", "calendar": None}, 5),
        ({"architecture": "itransformer", "calendar": None}, 5),
    ],
)
@pytest.mark.parametrize("parts", [3, 64])
def test_parts_of_a_batch_give_the_gradients_of_the_whole(
    own: dict[str, object], rows: int, parts: int
) -> None:
    config = ARCHITECTURES.read({"architecture": "patchtst", "dropout": 0, **SIZES, **own})
    torch.manual_seed(0)
    model = config.build().train()
    whole, found, _ = learned(model, recomputes=False)
    model.zero_grad()
    again, same, often = learned(model, recomputes=True, parts=parts)
    assert often == 2 * len(torch.empty(rows).chunk(parts))
    torch.testing.assert_close(again, whole)
    assert found.keys() == same.keys()
    for name, each in found.items():
        torch.testing.assert_close(same[name], each, msg=name)


def test_recomputed_part_draws_the_same_dropout() -> None:
    model = PatchTSTConfig(**SIZES, dropout=0.5).build().train()
    seen: dict[int, list[Tensor]] = {}
    # A layer is computed again only as far as something of it is needed.
    encoder_of(model)[0].attention.register_forward_hook(
        lambda _, given, made: seen.setdefault(given[0].data_ptr(), []).append(made.output)
    )
    learned(model, recomputes=True, parts=3)
    assert len(seen) == 3
    for pair in seen.values():
        assert torch.equal(*pair)


def test_recomputation_keeps_no_activations_of_a_layer() -> None:
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


def test_activations_of_one_part_exist_at_a_time() -> None:
    sizes = {**SIZES, "d_model": 16, "encoder_layers": 2, "patch": 2, "stride": 2}
    model = PatchTSTConfig(**sizes, dropout=0.1).build().train()
    encoder = encoder_of(model)
    encoder.recomputes = True
    history = torch.randn(64, 48, 2)

    def most(parts: int) -> int:
        """Peak of the bytes that a step allocates."""
        encoder.parts = parts
        with torch.profiler.profile(profile_memory=True) as profile:
            model(history, None, None).square().mean().backward()
        model.zero_grad()
        assert profile.profiler is not None
        events = profile.profiler.kineto_results.events()
        changes = [(one.start_ns(), one.nbytes()) for one in events if one.name() == "[memory]"]
        return max(accumulate(size for _, size in sorted(changes)))

    whole = most(1)
    assert most(8) < 0.5 * whole


def test_inference_is_not_recomputed() -> None:
    model = PatchTSTConfig(**SIZES).build().eval()
    encoder, calls = encoder_of(model), []
    encoder.recomputes = True
    encoder[0].register_forward_hook(lambda *_: calls.append(1))
    history = torch.randn(1, 48, 2)
    with torch.inference_mode():
        assert model.explain(history, None, None).attention
        model(history, None, None)
    assert len(calls) == 2
