from typing import Any

import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.huggingface_autoformer import (
    HuggingFaceAutoformer,
    HuggingFaceAutoformerConfig,
)
from foretell.models.attention.evidence import Circulant
from foretell.models.forecaster import Inputs
from tests.checkpoints import HOURLY, randomised

SIZES: dict[str, Any] = {
    "channels": 3,
    "context": 27,
    "horizon": 5,
    "value_lags": (2, 9, 3),
    "label": 6,
    "moving_average": 5,
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
}


def make(**changes: object) -> HuggingFaceAutoformer:
    model = randomised(HuggingFaceAutoformerConfig.model_validate(SIZES | changes))
    assert isinstance(model, HuggingFaceAutoformer)
    return model


def test_the_evidence_is_of_encoder_and_decoder() -> None:
    model = make(decoder_heads=4)
    seen = model.explain(torch.randn(2, 27, 3)).attention
    assert list(seen) == [stage.name for stage in model.stages]
    for name, length in {"encoder.1.self": 18, "decoder.1.self": 11, "decoder.1.cross": 11}.items():
        found = seen[name]
        assert isinstance(found, Circulant)
        assert found.correlation.shape == (2, length)


def test_level_and_scale_are_those_of_the_encoders_steps() -> None:
    """Without lagged values a forecast depends on these alone."""
    model, history = make(scaling="mean"), torch.randn(1, 27, 3)
    for embedding in (model.encoder_embedding, model.decoder_embedding):
        torch.nn.init.zeros_(embedding.value.weight[:, :9])
    for head in model.heads:
        torch.nn.init.zeros_(head.weight[:, :9])
    before = model(history)
    for step, is_read in ((8, False), (9, True), (26, True)):
        changed = history.clone()
        changed[:, step] += 5
        assert torch.allclose(model(changed), before) != is_read


@pytest.mark.parametrize(
    ("changes", "steps"),
    [({}, 18), ({"scaling": None}, 27), ({"window_norm": "mean"}, None)],
)
def test_values_are_needed_where_a_window_is_scaled(
    changes: dict[str, Any], steps: int | None
) -> None:
    model, history = make(**changes), torch.randn(1, 27, 3)
    history[0, 9:26] = torch.nan
    assert model.config.observed_steps == steps
    assert model(history).isfinite().all() == (steps is not None)


def test_what_is_read_begins_with_the_largest_lag() -> None:
    model, history = make(), torch.randn(1, 27, 3)
    before = model(history)
    history[:, 0] += 5
    assert not torch.allclose(model(history), before)


def test_the_trend_begins_with_the_mean_and_the_calendar_of_the_horizon() -> None:
    """That is what is left without layers' trends and seasonal part."""
    model = make(calendar=HOURLY, scaling=None, static_features=1)
    for layer in model.decoder_layers:
        torch.nn.init.zeros_(layer.trend_projection.convolution.weight)
    torch.nn.init.zeros_(model.projection.weight)
    torch.nn.init.zeros_(model.projection.bias)
    torch.nn.init.constant_(model.static, 7.0)
    history, past, future = torch.randn(1, 27, 3), torch.rand(1, 27, 4), torch.rand(1, 5, 4)
    lagged = torch.stack([history[:, 9 - lag : 27 - lag].mean(dim=1) for lag in (2, 9, 3)], dim=2)
    told = torch.cat([lagged.flatten(1), torch.tensor([[7.0, 0, 0, 0, 0, 0, 0]])], dim=1)
    rows = torch.cat([told[:, None].expand(-1, 5, -1), future], dim=2)
    torch.testing.assert_close(model(history, past, future), model.heads[0](rows))


def test_the_calendar_is_read_of_the_steps_themselves() -> None:
    model, history = make(calendar=HOURLY), torch.randn(1, 27, 3)
    past, future = torch.zeros(1, 27, 4), torch.zeros(1, 5, 4)
    before = model(history, past, future)
    for step, is_read in ((8, False), (9, True), (26, True)):
        changed = past.clone()
        changed[:, step] = 0.5
        assert torch.allclose(model(history, changed, future), before) != is_read
    moved = model(history, past, future + 0.5) - before
    assert (moved.abs().amax(dim=2) > 1e-6).all()


@pytest.mark.parametrize("head", ["student-t", "quantiles"])
def test_distributions_follow_a_window(head: str) -> None:
    """Those of what is scaled twice, by itself and by a norm around it, too."""
    levels = (0.1, 0.5, 0.9) if head == "quantiles" else None
    for norm in (None, "standard"):
        model = make(scaling="mean", head=head, levels=levels, window_norm=norm)
        told = slice(9, 15)
        # What tells of level and scale would change with them.
        for embedding in (model.encoder_embedding, model.decoder_embedding):
            torch.nn.init.zeros_(embedding.value.weight[:, told])
        for each in model.heads:
            torch.nn.init.zeros_(each.weight[:, told])
        history = torch.randn(2, 27, 3)
        found, moved = (model.explain(rows).distribution for rows in (history, history * 7 + 100))
        assert found is not None
        assert moved is not None
        loc, scale = (0, 1) if head == "quantiles" else (1, 2)
        torch.testing.assert_close(moved[..., loc], found[..., loc] * 7 + 100, atol=1e-2, rtol=0)
        shift = 100 if head == "quantiles" else 0
        torch.testing.assert_close(
            moved[..., scale], found[..., scale] * 7 + shift, atol=1e-2, rtol=0
        )


def test_it_learns() -> None:
    model = make(head="normal", static_features=2, calendar=HOURLY).train()
    inputs = Inputs(torch.randn(4, 27, 3), torch.rand(4, 27, 4), torch.rand(4, 5, 4))
    said, _ = model.forecast_to_learn(inputs, torch.zeros(4, 5, 3), 0.0)
    assert model.head is not None
    model.head.loss(said, torch.zeros(4, 5, 3)).backward()
    for name, weight in model.named_parameters():
        # What is added to all lags alike.
        if weight.requires_grad and not name.endswith(("key.bias", "query.bias")):
            assert weight.grad is not None, name
            assert weight.grad.any(), name


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"label": 19}, "label: 19 steps are more than the 18 of the encoder"),
        ({"label": 0}, "greater than or equal to 1"),
        ({"moving_average": 4}, "moving_average: expected an odd number, got 4"),
        ({"value_lags": (27,)}, "value_lags: 27 steps leave none of the context 27"),
        ({"decoder_heads": 3}, "3 heads do not divide d_model 8"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**changes)
