"""Every mechanism through the graphs: equal to torch in float64, alone and in batches.

By itself, where it can be in a PatchTST; those of a Transformer have stages of all of them in
`tests/foretell/test_every_mechanism.py`, whose exports verify as much.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest
import torch

from foretell.bundle.manifest import Scaler
from foretell.export.adversarial import adversarial
from foretell.export.graphs import trace_all
from foretell.export.operators import without_kernel
from foretell.export.rewrites import inference_form
from foretell.export.verification import verify
from foretell.export.window_set import WindowSet
from foretell.models.attention.mechanism import MECHANISMS, Site
from foretell.models.forecaster import ARCHITECTURES
from tests.models.attention.places import PLACES, allowed, default

SCALER = Scaler(mean=(0.5, -1.0), std=(2.0, 0.5))
SIZES: dict[str, Any] = {"channels": 2, "context": 24, "horizon": 6, "d_model": 8, "heads": 2}
OWN: dict[str, dict[str, Any]] = {
    "transformer": {"label": 8},
    "patchtst": {"patch": 8, "stride": 4},
}
# Whose operators have no kernel on CUDA, and why, is in docs/mechanisms.md.
CPU_ALONE: set[str] = set()


def attention_of(architecture: str, name: str) -> list[object]:
    """The mechanism wherever it may be, and softmax elsewhere."""
    fields = {"architecture": architecture, **SIZES, **OWN[architecture]}
    sites = ARCHITECTURES.read({**fields, "encoder_layers": 1}).sites().values()
    by_layer: dict[int, list[Site]] = {}
    for layer, site in sites:
        by_layer.setdefault(layer, []).append(site)
    return [
        default(name if all(allowed(name, each) for each in places) else "softmax")
        for places in by_layer.values()
    ]


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_graphs_are_right(tmp_path: Path, name: str) -> None:
    architecture = "patchtst" if allowed(name, PLACES["patches"]) else "transformer"
    attention = attention_of(architecture, name)
    assert name in {each.mechanism for each in attention}
    fields = {"architecture": architecture, "encoder_layers": 1, "attention": attention}
    torch.manual_seed(0)
    model = ARCHITECTURES.read({**fields, **SIZES, **OWN[architecture]}).build().eval()
    form = inference_form(model)
    for file, graph in trace_all(form, SCALER).items():
        assert bool(without_kernel(graph)) == (name in CPU_ALONE), without_kernel(graph)
        onnx.save(graph, tmp_path / file)
    torch.manual_seed(2)
    history = torch.randn(64, SIZES["context"], SIZES["channels"]).numpy()
    windows = WindowSet("natural", history, None, None)
    far = adversarial(windows.take(slice(4)), SCALER, seed=0)
    verified = verify(model, SCALER, tmp_path, windows, far)
    checks = {check.name: check for check in verified.verification.checks}
    assert verified.verification.passed, checks
    compared = {part for name in checks for part in name.split(", ")}
    assert {"batch 1", "batch 3", "batch 64"} <= compared
    assert verified.largest_error <= 1e-5
