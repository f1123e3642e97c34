"""Models of transformers, except for their forecasts (`tests/importers/test_conformance.py`)."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from foretell.bundle.covariates import Covariate, Covariates
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from tests.checkpoints import HOURLY, randomised

SMALL: dict[str, Any] = {
    "channels": 3,
    "context": 27,
    "horizon": 5,
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "encoder_layers": 2,
}
LAGS = SMALL | {"value_lags": (2, 9, 3), "decoder_layers": 2}
SIZES = {
    "patchtst": SMALL | {"patch": 6, "stride": 4},
    "time-series-transformer": LAGS,
    "autoformer": LAGS | {"label": 6, "moving_average": 5},
}


def make(kind: str, **changes: object) -> Forecaster:
    fields = {"architecture": f"huggingface-{kind}", **SIZES[kind], **changes}
    return randomised(ARCHITECTURES.read(fields))


@pytest.mark.parametrize("classed", [False, True])
def test_stages_describe_patches_and_channels(classed: bool) -> None:
    model = make("patchtst", class_token=classed, channel_attention=True)
    names = [stage.name for stage in model.stages]
    assert names == [f"encoder.{i}.{kind}" for i in (0, 1) for kind in ("self", "channels")]
    own, between = model.stages[:2]
    # Six patches take the last 26 of 27 steps: -26 to -20, …, -6 to 0.
    assert (own.key.start, own.key.stride, own.key.width) == (-26, 4, 6)
    assert (own.key.length, own.key.padding) == (6 + classed, int(classed))
    assert own.per_channel
    assert (between.key.of, between.key.length, between.per_channel) == ("channels", 3, False)
    seen = model.explain(torch.randn(2, 27, 3)).attention
    for stage, shape in ((own, (2, 3, 2, 6 + classed, 6 + classed)), (between, (2, 2, 3, 3))):
        weights = seen[stage.name].weights
        torch.testing.assert_close(weights.sum(-1), torch.ones(shape[:-1]))


def test_a_decoder_step_looks_at_no_later_one() -> None:
    seen = make("time-series-transformer", decoder_heads=4).explain(torch.randn(2, 27, 3))
    shapes = {"encoder.1.self": (2, 18, 18), "decoder.1.self": (4, 5, 5)}
    for name, shape in (shapes | {"decoder.1.cross": (4, 5, 18)}).items():
        weights = seen.attention[name].weights
        assert weights.shape[1:] == shape
        torch.testing.assert_close(weights.sum(-1), torch.ones(2, *shape[:-1]))
    assert not seen.attention["decoder.1.self"].weights.triu(1).any()


@pytest.mark.parametrize(
    ("kind", "changes", "steps"),
    [
        *(("patchtst", {"window_norm": norm}, 27) for norm in ("mean", "magnitude", None)),
        ("patchtst", {"window_norm": "robust"}, None),
        ("autoformer", {}, 18),
        ("autoformer", {"scaling": None}, 27),
        ("autoformer", {"window_norm": "mean"}, None),
    ],
)
def test_gaps_need_a_norm_that_reads_them(
    kind: str, changes: dict[str, Any], steps: int | None
) -> None:
    model, history = make(kind, **changes), torch.randn(2, 27, 3)
    history[0, 9:26] = torch.nan
    assert model.config.observed_steps == steps
    assert model(history).isfinite().all() == (steps is not None)


@pytest.mark.parametrize("norm", [None, "standard"])
@pytest.mark.parametrize("head", ["student-t", "quantiles"])
def test_distributions_follow_a_window(head: str, norm: str | None) -> None:
    """Some models scale twice: the model itself, and a norm around it."""
    levels = (0.1, 0.5, 0.9) if head == "quantiles" else None
    model = make("autoformer", scaling="mean", head=head, levels=levels, window_norm=norm)
    # Inputs of level and scale would change with the window.
    for layer in (model.encoder_embedding.value, model.decoder_embedding.value, *model.heads):
        nn.init.zeros_(layer.weight[:, 9:15])
    history = torch.randn(2, 27, 3)
    found, moved = (model.explain(rows).distribution for rows in (history, history * 7 + 100))
    loc, scale = (0, 1) if head == "quantiles" else (1, 2)
    shift = 100 if head == "quantiles" else 0
    torch.testing.assert_close(moved[..., loc], found[..., loc] * 7 + 100, atol=1e-2, rtol=0)
    torch.testing.assert_close(moved[..., scale], found[..., scale] * 7 + shift, atol=1e-2, rtol=0)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("autoformer", {"head": "normal", "static_features": 2, "calendar": HOURLY}),
        ("time-series-transformer", {"value_lags": (1,), "samples": 4}),
    ],
)
def test_all_parameters_get_gradients(kind: str, changes: dict[str, Any]) -> None:
    model = make(kind, **changes).train()
    calendars = torch.rand(4, 27, 4), torch.rand(4, 5, 4)
    inputs = Inputs(torch.randn(4, 27, 3), *(calendars if model.config.calendar else ()))
    parameters, _ = model.forecast_to_learn(inputs, torch.zeros(4, 5, 3), 0.0)
    assert model.head is not None
    model.head.loss(parameters, torch.zeros(4, 5, 3)).backward()
    for name, weight in model.named_parameters():
        # Constants added to all lags or keys.
        if weight.requires_grad and not name.endswith(("key.bias", "query.bias")):
            assert weight.grad is not None, name
            assert weight.grad.any(), name


def test_gradients_flow_through_own_forecasts() -> None:
    model = make("time-series-transformer", value_lags=(1,))
    inputs = Inputs(torch.randn(2, 27, 3))
    forecast, _ = model.forecast_to_learn(inputs, torch.zeros(2, 5, 3), 0.0)
    forecast[:, 4].sum().backward()
    assert model.decoder_embedding.value.weight.grad[:, :3].any()


def test_category_that_training_rows_lack_is_embedded_as_zeros() -> None:
    region = Covariate(name="region", type="category", categories=("north", "south"), other=True)
    covariates = Covariates(static=(region,))
    model = make("time-series-transformer", value_lags=(1,), covariates=covariates).train()
    codes = torch.tensor([[0.0], [2.0]])
    inputs = Inputs(torch.randn(2, 27, 3), static_covariates=codes)
    forecast, _ = model.forecast_to_learn(inputs, torch.zeros(2, 5, 3), 0.0)
    forecast.sum().backward()
    weight = model.static_embeddings[0].weight
    assert [row.any().item() for row in weight] == [True, True, False]
    assert weight.grad is not None
    assert [row.any().item() for row in weight.grad] == [True, False, False]


def test_lags_are_parsed_from_text() -> None:
    model = make("time-series-transformer", value_lags="1, 9,2")
    assert model.config.value_lags == (1, 9, 2)


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        ("patchtst", {"patch": 28}, "patch: 28 steps are more than the context 27"),
        (
            "patchtst",
            {"class_token": True, "pooling": "max"},
            "pooling: the head reads the class token alone",
        ),
        (
            "patchtst",
            {"channel_attention": True, "attention": "linear"},
            "channel_attention: needs softmax",
        ),
        (
            "patchtst",
            {"calendar": {"encoding": "scaled", "features": ["hour"]}},
            "reads no calendar features",
        ),
        ("time-series-transformer", {"value_lags": (27,)}, "27 steps leave none of"),
        ("time-series-transformer", {"value_lags": (0,)}, "greater than or equal to 1"),
        ("time-series-transformer", {"value_lags": "1,x"}, "valid integer"),
        (
            "time-series-transformer",
            {"horizon": 65},
            "horizon: 65 steps, which are decoded one by one, are more than the 64",
        ),
        ("time-series-transformer", {"attention": "linear"}, "linear has no cache, which decoding"),
        ("time-series-transformer", {"decoder_heads": 3}, "3 heads do not divide d_model 8"),
        ("time-series-transformer", {"samples": 1}, "samples: one path has no quantiles"),
        (
            "time-series-transformer",
            {"head": "normal"},
            "head: huggingface-time-series-transformer forecasts values alone",
        ),
        ("autoformer", {"label": 19}, "label: 19 steps are more than the 18 of the encoder"),
        ("autoformer", {"label": 0}, "greater than or equal to 1"),
        ("autoformer", {"moving_average": 4}, "moving_average: expected an odd number, got 4"),
    ],
)
def test_refuses(kind: str, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make(kind, **changes)
