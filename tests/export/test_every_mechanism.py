"""Graphs of a PatchTST with every form of mechanism equal torch in float64, also in batches.

tests/foretell/test_every_mechanism.py exports Transformers with all mechanisms.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import torch

from foretell.bundle.scaler import Scaler
from foretell.export.adversarial import adversarial
from foretell.export.graphs import trace_all
from foretell.export.operators import without_kernel
from foretell.export.rewrites import inference_form
from foretell.export.verification import verify
from foretell.export.window_set import WindowSet
from foretell.models.architectures.patchtst import PatchTSTConfig
from tests.models.attention.places import default

SCALER = Scaler(mean=(0.5, -1.0), std=(2.0, 0.5))
SIZES: dict[str, Any] = {"channels": 2, "context": 24, "horizon": 6, "d_model": 8, "heads": 2}


def test_the_graphs_are_right(tmp_path: Path) -> None:
    """One mechanism of each form of evidence, and one that chooses."""
    attention = [default(name) for name in ("fourier", "local", "probsparse", "softmax")]
    config = PatchTSTConfig(**SIZES, patch=8, stride=4, encoder_layers=4, attention=attention)
    torch.manual_seed(0)
    model = config.build().eval()
    form = inference_form(model)
    for file, graph in trace_all(form, SCALER).items():
        assert without_kernel(graph) == []
        onnx.save(graph, tmp_path / file)
    torch.manual_seed(2)
    history = torch.randn(64, SIZES["context"], SIZES["channels"]).numpy()
    windows = WindowSet("natural", {"history": history})
    extreme = adversarial(windows.take(slice(4)), SCALER, seed=0)
    verified = verify(model, SCALER, tmp_path, windows, extreme)
    checks = {check.name: check for check in verified.verification.checks}
    assert verified.verification.passed, checks
    compared = {part for name in checks for part in name.split(", ")}
    assert {"batch 1", "batch 3", "batch 64"} <= compared
    assert verified.largest_error <= 1e-5
