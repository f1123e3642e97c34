"""How a graph is compared with its model, and how much it may err."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args

import numpy as np
import onnx
import pytest
import torch

from foretell.bundle.results import Check, Precision
from foretell.bundle.scaler import Scaler
from foretell.export.choices import Outputs
from foretell.export.comparison import Case, Comparison, Reference
from foretell.export.data_windows import synthetic
from foretell.export.graphs import trace_all
from foretell.export.precision import DTYPES
from foretell.export.reference import PlainModel
from foretell.export.rewrites import inference_form
from foretell.export.rules import RULES
from foretell.export.verification import verify
from foretell.export.window_set import Floats, WindowSet
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.attention.zoo.linear import RandomFeatureAttention
from foretell.models.checkpoint import load
from tests.checkpoints import CONFIGS

WINDOWS = WindowSet("natural", {"history": np.zeros((4, 2, 1), np.float32)})
SIZES: dict[str, Any] = {"channels": 2, "context": 24, "horizon": 6, "d_model": 8, "heads": 2}


class ConstantError:
    """A graph with the same error in every window."""

    def __init__(self, error: float) -> None:
        self.error = error

    def run(self, inputs: Mapping[str, Floats]) -> Outputs:
        return {"forecast": np.full((len(inputs["history"]), 3, 1), 1 + self.error)}


def checks(error: float, of_torch: float | None, precision: Precision = "float32") -> list[Check]:
    graph = ConstantError(error)
    exact = Reference(ConstantError(0).run(WINDOWS.inputs))
    rounded = None if of_torch is None else Reference(ConstantError(of_torch).run(WINDOWS.inputs))
    comparison = Comparison([], np.ones(1), None, precision, graph, graph)
    return comparison.natural(WINDOWS, [Case(WINDOWS, exact, rounded)]).checks


@pytest.mark.parametrize(
    ("error", "of_torch", "passed"),
    [
        (2e-5, None, False),
        (2e-5, 0, False),
        (2e-5, 1e-6, False),
        (2e-5, 3e-6, True),
        # Rounding errors of torch do not allow an error as large as this.
        (2e-4, 1e-4, False),
    ],
)
def test_tolerance_covers_the_errors_of_torch(
    error: float, of_torch: float | None, passed: bool
) -> None:
    assert {check.passed for check in checks(error, of_torch) if check.max_error} == {passed}


def test_tolerance_of_half_precision() -> None:
    found = checks(0.001, 1e-3, "float16")
    assert {check.tolerance for check in found} == {8 * 2.0**-11}


def test_weights_beyond_float32_do_not_refuse_the_export(tmp_path: Path) -> None:
    """The mechanism divides by sums of weights that are near 0."""
    config = PatchTSTConfig(
        **SIZES, patch=4, stride=2, encoder_layers=1, attention="random-features"
    )
    torch.manual_seed(0)
    model = config.build().eval()
    for layer in model.modules():
        if isinstance(layer, RandomFeatureAttention):
            # A narrow kernel: few keys are near a query.
            layer.sigma.data *= 8
    scaler = Scaler.identity(2)
    for file, graph in trace_all(inference_form(model), scaler).items():
        onnx.save(graph, tmp_path / file)
    history = np.random.default_rng(0).normal(size=(64, 24, 2)).astype(np.float32)
    natural = WindowSet("natural", {"history": history})
    verification = verify(model, scaler, tmp_path, natural).verification
    assert verification.passed
    assert max(check.max_error for check in verification.checks) > 1e-5
    # Other weights still fail.
    with torch.no_grad():
        next(w for n, w in model.named_parameters() if "feed_forward.expand" in n).mul_(1.001)
    assert not verify(model, scaler, tmp_path, natural).verification.passed


def test_plain_model_runs_in_float64(checkpoints):
    info, model = load(checkpoints["autoformer"])
    windows = synthetic(info, 70, seed=3)
    found = PlainModel(model, info.scaler)(windows)
    # The graph stores the scaler in float32.
    mean, std = (
        np.float32(part).astype(np.float64) for part in (info.scaler.mean, info.scaler.std)
    )
    history, past, future = (part.astype(np.float64) for part in windows.inputs.values())
    standardised = torch.from_numpy((history - mean) / std)
    with torch.inference_mode():
        expected = (
            load(checkpoints["autoformer"])
            .model.double()
            .explain(standardised, torch.from_numpy(past), torch.from_numpy(future))
        )
    np.testing.assert_allclose(found.forecast, expected.forecast.numpy() * std + mean, rtol=1e-12)
    for stage in model.stages:
        parts = expected.attention[stage.name][: len(stage.outputs)]
        for name, part in zip(stage.output_names, parts, strict=True):
            np.testing.assert_allclose(found.outputs[name], part, rtol=1e-9, atol=1e-12)


def test_plain_model_leaves_the_model_in_float32(checkpoints):
    info, model = load(checkpoints["patchtst"])
    PlainModel(model, info.scaler)(synthetic(info, 2, seed=0))
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


@pytest.mark.parametrize("name", CONFIGS)
def test_plain_model_without_maps_keeps_forecast_and_choices(checkpoints, name):
    info, model = load(checkpoints[name])
    windows = synthetic(info, 3, seed=0)
    whole = PlainModel(model, info.scaler)(windows).without_maps(model.stages)
    found = PlainModel(model, info.scaler, shows=False)(windows).without_maps(model.stages)
    assert found.outputs.keys() == whole.outputs.keys()
    for output, each in whole.outputs.items():
        np.testing.assert_allclose(found.outputs[output], each, rtol=1e-9, atol=1e-9)


def test_plain_model_without_maps_makes_none(checkpoints):
    info, model = load(checkpoints["patchtst"])
    found = PlainModel(model, info.scaler, shows=False)(synthetic(info, 3, seed=0))
    assert list(found.outputs) == ["forecast"]


def test_every_precision_has_rules():
    assert set(RULES) == set(get_args(Precision)) == set(DTYPES)


@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_tolerances_of_half_precision_follow_from_its_digits(precision):
    rules = RULES[precision]
    # The largest error of rounding a number is half of the distance between numbers at 1.
    unit = torch.finfo(DTYPES[precision]).eps / 2
    assert rules.forecast == 8 * unit
    assert rules.attention == 32 * unit
    assert rules.slack == unit / (torch.finfo(torch.float32).eps / 2)
