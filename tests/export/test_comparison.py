"""How much a graph may err on natural windows, by what torch's own float32 errs by."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch

from foretell.bundle.manifest import Check, Precision, Scaler
from foretell.export.choices import Outputs
from foretell.export.comparison import Case, Comparison, Reference
from foretell.export.graphs import trace_all
from foretell.export.rewrites import inference_form
from foretell.export.verification import verify
from foretell.export.window_set import Floats, WindowSet
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.attention.zoo.linear import RandomFeatureAttention

WINDOWS = WindowSet("natural", np.zeros((4, 2, 1), np.float32), None, None)
SIZES: dict[str, Any] = {"channels": 2, "context": 24, "horizon": 6, "d_model": 8, "heads": 2}


class Wrong:
    """A graph that is wrong by the same in every window."""

    def __init__(self, error: float) -> None:
        self.error = error

    def run(self, inputs: Sequence[Floats | None]) -> Outputs:
        history = inputs[0]
        assert history is not None
        return {"forecast": np.full((len(history), 3, 1), 1 + self.error)}


def checks(error: float, of_torch: float | None, precision: Precision = "float32") -> list[Check]:
    graph = Wrong(error)
    exact = Reference(Wrong(0).run(WINDOWS.inputs))
    rounded = None if of_torch is None else Reference(Wrong(of_torch).run(WINDOWS.inputs))
    comparison = Comparison([], np.ones(1), None, precision, graph, graph)
    return comparison.natural(WINDOWS, [Case(WINDOWS, exact, rounded)]).checks


@pytest.mark.parametrize(
    ("error", "of_torch", "passed"),
    [
        (2e-5, None, False),
        (2e-5, 0, False),
        (2e-5, 1e-6, False),
        (2e-5, 3e-6, True),
        # So much is no rounding, whatever torch does.
        (2e-4, 1e-4, False),
    ],
)
def test_a_graph_may_err_as_torch_does(error: float, of_torch: float | None, passed: bool) -> None:
    assert {check.passed for check in checks(error, of_torch) if check.max_error} == {passed}


def test_half_precision_may_err_by_no_more() -> None:
    found = checks(0.001, 1e-3, "float16")
    assert {check.tolerance for check in found} == {8 * 2.0**-11}


def test_weights_that_no_float32_tells_refuse_no_export(tmp_path: Path) -> None:
    """Sums of weights that are near 0, and by which these are divided."""
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
    natural = WindowSet("natural", history, None, None)
    verification = verify(model, scaler, tmp_path, natural).verification
    assert verification.passed
    assert max(check.max_error for check in verification.checks) > 1e-5
    # Another model is as wrong as ever.
    with torch.no_grad():
        next(w for n, w in model.named_parameters() if "feed_forward.expand" in n).mul_(1.001)
    assert not verify(model, scaler, tmp_path, natural).verification.passed
