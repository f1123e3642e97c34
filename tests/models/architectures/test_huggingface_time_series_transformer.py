from typing import Any

import pytest
import torch
from pydantic import ValidationError

from foretell.models.architectures.huggingface_time_series_transformer import (
    HuggingFaceTimeSeriesTransformer,
    HuggingFaceTimeSeriesTransformerConfig,
)
from foretell.models.attention.evidence import Dense
from foretell.models.forecaster import Inputs
from tests.checkpoints import HOURLY, randomised

SIZES: dict[str, Any] = {
    "channels": 3,
    "context": 27,
    "horizon": 5,
    "value_lags": (2, 9, 3),
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "encoder_layers": 2,
    "decoder_layers": 2,
}


def make(**changes: object) -> HuggingFaceTimeSeriesTransformer:
    model = randomised(HuggingFaceTimeSeriesTransformerConfig.model_validate(SIZES | changes))
    assert isinstance(model, HuggingFaceTimeSeriesTransformer)
    return model


def test_a_step_looks_at_no_later_one() -> None:
    model = make(decoder_heads=4)
    seen = model.explain(torch.randn(2, 27, 3)).attention
    assert list(seen) == [stage.name for stage in model.stages]
    shapes = {"encoder.1.self": (2, 2, 18, 18), "decoder.1.self": (2, 4, 5, 5)}
    for name, shape in (shapes | {"decoder.1.cross": (2, 4, 5, 18)}).items():
        found = seen[name]
        assert isinstance(found, Dense)
        assert found.weights.shape == shape
        torch.testing.assert_close(found.weights.sum(-1), torch.ones(shape[:-1]))
        if name == "decoder.1.self":
            assert not found.weights.triu(1).any()


@pytest.mark.parametrize("lags", [(2, 9, 3), (2, 3), (9,)])
def test_what_is_read_begins_with_the_largest_lag(lags: tuple[int, ...]) -> None:
    model, history = make(value_lags=lags), torch.randn(1, 27, 3)
    before = model(history)
    history[:, 0] += 5
    assert not torch.allclose(model(history), before)


def test_only_the_encoders_steps_are_measured() -> None:
    """Without lagged values a forecast depends on the level and the scale of these alone."""
    model, history = make(scaling="mean"), torch.randn(1, 27, 3)
    for embedding in (model.encoder_embedding, model.decoder_embedding):
        torch.nn.init.zeros_(embedding.value.weight[:, :9])
    before = model(history)
    for step, is_read in ((8, False), (9, True), (26, True)):
        changed = history.clone()
        changed[:, step] += 5
        assert torch.allclose(model(changed), before) != is_read


@pytest.mark.parametrize("lag", [1, 3])
def test_a_step_reads_the_forecast_so_many_before_it(lag: int) -> None:
    """What a step is made of then follows its distance from the first that is forecast."""
    model, history = make(value_lags=(lag,), horizon=5), torch.randn(1, 27, 3)
    before = model(history)
    with torch.no_grad():
        model.heads[1].bias += 1.0
    moved = model(history) - before
    spread = history[:, lag:].abs().mean(dim=1)
    is_shifted_alone = [torch.allclose(moved[:, step], spread, atol=1e-5) for step in range(5)]
    assert is_shifted_alone == [step < lag for step in range(5)]


@pytest.mark.parametrize("channels", [1, 3])
def test_paths_are_ranked_and_the_forecast_is_their_mean(channels: int) -> None:
    model = make(samples=6, step_distribution="normal", channels=channels)
    found = model.explain(history := torch.randn(2, 27, channels))
    assert found.distribution is not None
    assert found.distribution.shape == (2, 5, channels, 6)
    assert (found.distribution.diff(dim=-1) >= 0).all()
    torch.testing.assert_close(found.forecast, found.distribution.mean(dim=-1))
    torch.testing.assert_close(model(history), found.forecast)
    for stage in model.stages:
        maps = found.attention[stage.name]
        assert isinstance(maps, Dense)
        assert maps.weights.shape == (2, 2, stage.query.length, stage.key.length)
        torch.testing.assert_close(maps.weights.sum(-1), torch.ones(maps.weights.shape[:-1]))


def test_paths_of_no_width_are_the_path_of_the_means() -> None:
    """No path reads another, and each reads its own values."""
    plain, drawn = make(value_lags=(1, 3)), make(value_lags=(1, 3), samples=4)
    drawn.load_state_dict(plain.state_dict())
    torch.nn.init.zeros_(drawn.heads[2].weight)
    torch.nn.init.constant_(drawn.heads[2].bias, -1e6)
    found = drawn.explain(history := torch.randn(2, 27, 3)).distribution
    assert found is not None
    for path in found.unbind(-1):
        torch.testing.assert_close(path, plain(history), atol=1e-4, rtol=1e-4)


def test_paths_of_the_first_step_are_quantiles_of_its_distribution() -> None:
    model, history = make(samples=50, step_distribution="normal"), torch.randn(1, 27, 3)
    found = model.explain(history).distribution
    assert found is not None
    first = found[0, 0]
    level = torch.distributions.Normal(0.0, 1.0).cdf(
        (first - first.mean(-1, keepdim=True))
        / first.diff(dim=-1)[:, 24:25]
        * (torch.distributions.Normal(0.0, 1.0).icdf(torch.tensor(0.51)) * 2)
    )
    torch.testing.assert_close(level, torch.arange(0.01, 1, 0.02).expand(3, -1), atol=1e-3, rtol=0)


def test_it_learns_the_spread_of_paths() -> None:
    model = make(value_lags=(1,), samples=4)
    said, _ = model.forecast_to_learn(Inputs(torch.randn(2, 27, 3)), torch.zeros(2, 5, 3), 0.0)
    assert said.shape == (2, 5, 3, 4)
    assert model.head is not None
    model.head.loss(said, torch.zeros(2, 5, 3)).backward()
    assert all(head.bias.grad is not None and head.bias.grad.any() for head in model.heads)


def test_the_calendar_is_read_of_the_steps_themselves() -> None:
    model, history = make(calendar=HOURLY), torch.randn(1, 27, 3)
    past, future = torch.zeros(1, 27, 4), torch.zeros(1, 5, 4)
    before = model(history, past, future)
    for step, is_read in ((8, False), (9, True)):
        changed = past.clone()
        changed[:, step] = 0.5
        assert torch.allclose(model(history, changed, future), before) != is_read
    changed = future.clone()
    changed[:, 3] = 0.5
    moved = (model(history, past, changed) - before).abs().amax(dim=(0, 2)) > 1e-6
    assert moved.tolist() == [False, False, False, True, True]


def test_it_learns_through_its_own_forecasts() -> None:
    model, history = make(value_lags=(1,)), torch.randn(2, 27, 3)
    forecast, _ = model.forecast_to_learn(Inputs(history), torch.zeros(2, 5, 3), 0.0)
    forecast[:, 4].sum().backward()
    weight = model.decoder_embedding.value.weight
    assert weight.grad is not None
    assert weight.grad[:, :3].any()


def test_lags_are_read_of_text() -> None:
    assert make(value_lags="1, 9,2").config.value_lags == (1, 9, 2)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"value_lags": (27,)}, "value_lags: 27 steps leave none of the context 27"),
        ({"value_lags": (0,)}, "greater than or equal to 1"),
        ({"value_lags": "1,x"}, "valid integer"),
        (
            {"horizon": 65},
            "horizon: 65 steps, each of which is decoded by itself, are more than 64",
        ),
        ({"attention": "linear"}, "linear has no cache, which decoding needs"),
        ({"decoder_heads": 3}, "3 heads do not divide d_model 8"),
        ({"samples": 1}, "samples: one path has no quantiles"),
        ({"head": "normal"}, "head: huggingface-time-series-transformer forecasts values alone"),
    ],
)
def test_what_does_not_fit_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(**changes)
