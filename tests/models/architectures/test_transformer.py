import math
from typing import Literal

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from foretell.models.architectures.transformer import Transformer, TransformerConfig
from foretell.models.attention.mechanism import MECHANISMS, Attended, MechanismConfig, Site
from foretell.models.inputs import Inputs
from foretell.models.layers.decoding import off_diagonal
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

HOURLY = Frequency.parse("h")
SIZES = {
    "channels": 3,
    "context": 24,
    "horizon": 10,
    "label": 8,
    "d_model": 8,
    "heads": 2,
    "d_ff": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "calendar": Calendar.for_frequency(HOURLY, "scaled"),
}


def make(**changes: object) -> Transformer:
    torch.manual_seed(0)
    return Transformer(TransformerConfig.model_validate(SIZES | changes)).eval()


def batch(size: int = 2) -> tuple[torch.Tensor, ...]:
    torch.manual_seed(1)
    return torch.randn(size, 24, 3), torch.rand(size, 24, 4), torch.rand(size, 10, 4)


def test_a_decoder_that_is_not_causal_looks_ahead() -> None:
    for causal in (True, False):
        weights = make(causal=causal).explain(*batch()).attention["decoder.1.self"].weights  # type: ignore[union-attr]
        assert bool((weights.triu(1) > 0).any()) != causal


def test_a_step_of_the_horizon_does_not_see_later_ones() -> None:
    model, (history, past, future) = make(), batch()
    changed = future.clone()
    changed[:, 6] += 1
    before, after = model(history, past, future), model(history, past, changed)
    torch.testing.assert_close(before[:, :6], after[:, :6])
    assert not torch.allclose(before[:, 6:], after[:, 6:])


CHUNKED = {"decoding": "autoregressive", "decoding_chunk": 4}


def learn(model: Transformer, target: torch.Tensor, progress: float = 0.0) -> torch.Tensor:
    forecast, _ = model.learn(Inputs(*batch(len(target))), target, progress)
    return forecast


@pytest.mark.parametrize(
    ("chunk", "chunks"),
    [
        (4, [(0, 12), (12, 16), (16, 18)]),
        (5, [(0, 13), (13, 18)]),
        (10, [(0, 18)]),
        (12, [(0, 18)]),
        (1, [(0, 9), *((i, i + 1) for i in range(9, 18))]),
    ],
)
def test_chunks_share_the_horizon(chunk: int, chunks: list[tuple[int, int]]) -> None:
    assert make(**CHUNKED | {"decoding_chunk": chunk}).config.chunks == chunks


@pytest.mark.parametrize("chunk", [1, 3, 4, 10])
def test_the_cache_changes_nothing(chunk: int) -> None:
    """With its own forecast as the target, a model returns the same in one pass, without a
    cache."""
    model = make(**CHUNKED | {"decoding_chunk": chunk})
    explained = model.explain(*batch())
    torch.testing.assert_close(learn(model, explained.forecast), explained.forecast)
    torch.testing.assert_close(model(*batch()), explained.forecast)


def test_chunk_reads_only_earlier_chunks() -> None:
    model, target = make(**CHUNKED), torch.randn(2, 10, 3)
    for end in (4, 8):
        changed = target.clone()
        changed[:, end - 4 :] += 1
        before, after = (learn(model, each) for each in (target, changed))
        assert torch.equal(before[:, :end], after[:, :end])
        assert not torch.isclose(before[:, end:], after[:, end:]).all(dim=-1).any()


def test_evidence_of_chunks_has_rows_of_all_steps() -> None:
    model = make(**CHUNKED)
    found = model.explain(*batch()).attention
    assert [stage.name for stage in model.stages] == list(found)
    for stage in model.stages:
        weights = found[stage.name].weights
        assert weights.shape == (2, 2, stage.query.length, stage.key.length)
        torch.testing.assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))
    assert found["decoder.0.self"].weights.triu(1).count_nonzero() == 0


def test_scheduled_feeding_moves_from_truth_to_forecasts() -> None:
    forced, scheduled = make(**CHUNKED), make(**CHUNKED, feeding="scheduled")
    target = torch.randn(2, 10, 3)
    by_truth = learn(forced, target)
    torch.testing.assert_close(learn(scheduled, target, 0.0), by_truth)
    own = learn(forced, by_truth)
    torch.testing.assert_close(learn(scheduled, target, 1.0), own)
    half = learn(scheduled, target, 0.5)
    assert not torch.allclose(half, own)
    assert not torch.allclose(half, by_truth)


def test_free_running_does_not_read_the_target() -> None:
    model = make(**CHUNKED, feeding="free")
    torch.testing.assert_close(learn(model, torch.randn(2, 10, 3)), model(*batch()))


def test_gradients_reach_the_forecasts_that_were_read() -> None:
    model = make(**CHUNKED, feeding="free")
    history, past, future = batch()
    forecast = model(history, past, future.requires_grad_())
    (gradient,) = torch.autograd.grad(forecast[:, -1].sum(), future)
    assert gradient[:, :4].abs().sum() > 0


def test_a_decoder_layer_may_read_the_encoder_at_its_height() -> None:
    last, same = make(), make(memory="same")
    same.load_state_dict(last.state_dict())
    inputs = batch()
    assert not torch.allclose(last(*inputs), same(*inputs))
    for layer in last.encoder_layers[1:]:
        # Layers after the first one return their input.
        layer.forward = lambda tokens, **_: Attended(tokens)
    for layer in last.decoder_layers[1:]:
        layer.cross_attention.forward = lambda tokens, *_, **__: Attended(torch.zeros_like(tokens))
    for layer in same.decoder_layers[1:]:
        layer.cross_attention.forward = lambda tokens, *_, **__: Attended(torch.zeros_like(tokens))
    torch.testing.assert_close(last(*inputs), same(*inputs))


def test_one_encoder_layer_makes_memory_last_and_same_equal() -> None:
    last, same = (make(memory=memory, encoder_layers=1) for memory in ("last", "same"))
    same.load_state_dict(last.state_dict())
    torch.testing.assert_close(last(*batch()), same(*batch()))


def test_guidance_is_the_weight_far_from_the_diagonal() -> None:
    model, target = make(guidance=2.0), torch.randn(2, 10, 3)
    forecast, penalty = model.learn(Inputs(*batch()), target, 0.0)
    torch.testing.assert_close(forecast, model(*batch()))
    expected = 0.0
    for layer in range(2):
        weights = model.explain(*batch()).attention[f"decoder.{layer}.cross"].weights
        for i in range(18):
            for j in range(24):
                distance_weight = 1 - math.exp(-((i / 17 - j / 23) ** 2) / (2 * 0.2**2))
                expected += 2.0 * weights[:, :, i, j].mean().item() * distance_weight / 18
    assert penalty.item() == pytest.approx(expected, rel=1e-5)
    chunked = make(**CHUNKED, guidance=1.0)
    assert 0 < chunked.learn(Inputs(*batch()), target, 0.0)[1].item() < 2
    assert make(**CHUNKED).learn(Inputs(*batch()), target, 0.0)[1].item() == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {**CHUNKED, "decoding_chunk": 17},
            "decoding_chunk: label and chunk, 8 and 17 steps, are more than .* 24",
        ),
        ({**CHUNKED, "attention": ["softmax"] * 3 + ["no-cache"]}, "no-cache has no cache"),
        ({"guidance": 1.0, "attention": ["softmax"] * 3 + ["no-cache"]}, "guidance: .* no map"),
        (
            {"guidance": 1.0, "attention": ["softmax"] * 3 + ["softmax", "softmax", "linformer"]},
            "guidance: .* no map of steps",
        ),
        (
            {**CHUNKED, "decoding_chunk": 1, "horizon": 70, "label": 0},
            "decoding_chunk: 70 chunks of 1 steps are more than the 64",
        ),
        ({"feeding": "free"}, "feeding: only autoregressive"),
        ({**CHUNKED, "causal": False}, "causal: autoregressive decoding is always causal"),
    ],
)
def test_invalid_decoding_is_refused(
    monkeypatch: pytest.MonkeyPatch, changes: dict[str, object], message: str
) -> None:
    class NoCache(MechanismConfig):
        mechanism: Literal["no-cache"] = "no-cache"
        form = "none"
        has_causal = True

        def build(self, _: Site) -> nn.Module:
            return nn.Identity()

    monkeypatch.setattr(MECHANISMS, "_classes", dict(MECHANISMS.items()))
    MECHANISMS.add(NoCache)
    with pytest.raises(ValidationError, match=message):
        make(**changes)


@pytest.mark.parametrize(
    ("context", "horizon", "label", "chunk"), [(96, 96, 48, 24), (24, 10, 8, 10), (12, 40, 8, 4)]
)
def test_a_chunk_fits_by_itself(context: int, horizon: int, label: int, chunk: int) -> None:
    sizes = {"context": context, "horizon": horizon, "label": label}
    assert make(**sizes, decoding="autoregressive").config.decoding_chunk == chunk


def test_guidance_reaches_groups_of_heads() -> None:
    """Guidance of two groups with one mechanism equals that of all heads together."""
    groups = [{"heads": 1, "attention": "softmax"}] * 2
    attention = ["softmax"] * 3 + [{"mechanism": "mixture", "groups": groups}] + ["softmax"] * 2
    model = make(guidance=1.0, attention=attention)
    maps = model.explain(*batch()).attention
    of_groups = [off_diagonal(maps[f"decoder.0.cross.{i}"].weights) for i in range(2)]
    expected = sum(of_groups) / 2 + off_diagonal(maps["decoder.1.cross"].weights)
    _, penalty = model.learn(Inputs(*batch()), torch.randn(2, 10, 3), 0.0)
    torch.testing.assert_close(penalty, expected)
