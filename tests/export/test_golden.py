"""The published outputs, of forecasters and of single layers, through exported graphs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from foretell.bundle.attention import Axis
from foretell.bundle.scaler import Scaler
from foretell.export.graphs import OPSET, trace
from foretell.export.operators import without_kernel
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.models.attention.mechanism import MECHANISMS, Site
from foretell.models.inputs import Inputs
from tests import golden
from tests.models.attention.published import aft, croco


@pytest.mark.parametrize("name", golden.FORECASTERS)
def test_graph_equals_the_published_forecast(name, tmp_path):
    case = golden.case(name)
    channels = case.model.config.channels
    scaler = Scaler(mean=(0.0,) * channels, std=(1.0,) * channels)
    onnx.save(
        trace(ServingForm(inference_form(case.model), scaler, "forecast")), tmp_path / "graph.onnx"
    )
    graph = Graph(tmp_path / "graph.onnx")
    for file in ("io", "io_edge"):
        found = graph.predict(*case.inputs(file))
        expected = case.arrays(file)["out"]
        assert np.isfinite(found).all()
        if file == "io":
            atol = case.tolerance["recommended_atol"]
            np.testing.assert_allclose(found, expected, rtol=0, atol=atol)
            continue
        for row, kind in enumerate(case.arrays(file)["kind"]):
            tolerance = case.tolerance["edge"][kind]
            if tolerance["comparable"]:
                atol = tolerance["recommended_atol"]
                np.testing.assert_allclose(found[row], expected[row], rtol=0, atol=atol)


@dataclass(frozen=True)
class Published:
    """The layer of foretell that corresponds to a case."""

    mechanism: str
    names: Callable[[Mapping[str, Tensor]], dict[str, Tensor]]
    settings: dict[str, Any] = field(default_factory=dict)
    inputs: str = "io"

    @property
    def files(self) -> tuple[str, ...]:
        return ("io", "io_edge") if self.inputs == "io" else (self.inputs,)

    def layer(self, case: golden.Case) -> nn.Module:
        weights = self.names(torch.load(case.checkpoint, weights_only=True))
        config, length = case.description["config"], case.arrays("io")["x"].shape[1]
        axis = Axis(of="channels", length=length)
        width = config.get("hidden_dim")
        site = Site(config["dim"], config.get("num_heads", 1), axis, axis, width=width)
        layer = MECHANISMS.read({"mechanism": self.mechanism, **self.settings}).build(site)
        if "bias" in weights:
            weights["bias"] = weights["bias"][:length, :length]
        layer.load_state_dict(weights)
        return layer.eval()


CASES = {
    "croco_attention_norope": [Published("softmax", croco)],
    # A line is a grid of one row.
    "croco_attention_rope": [
        Published("rotary", croco, {"base": 100, "grid_columns": columns}, inputs)
        for columns, inputs in ((6, "io"), (24, "io_1d"))
    ],
    "aft_full": [Published("aft-full", aft)],
    "aft_local": [Published("aft-local", aft, {"window": 8})],
    "aft_simple": [Published("aft-simple", aft)],
}
EACH = [(name, one) for name, several in CASES.items() for one in several]


class LayerModel(nn.Module):
    """A layer that attends to its own tokens, as a model that can be exported."""

    window_norm = None

    def __init__(self, layer: nn.Module, tokens: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self._tokens = tokens

    def example_inputs(self, batch: int, dtype: torch.dtype) -> Inputs:
        return Inputs(self._tokens[:batch].to(dtype))

    def forward(self, tokens: Tensor, *_: object) -> tuple[Tensor, Tensor]:
        attended = self.layer(tokens, tokens, explain=True)
        return attended.output, attended.evidence.weights

    explain = forward


@pytest.mark.parametrize(("name", "published"), EACH)
def test_graph_equals_the_published_layer(name: str, published: Published, tmp_path: Path) -> None:
    case = golden.case(name)
    tokens = torch.from_numpy(case.arrays(published.inputs)["x"])
    model = LayerModel(published.layer(case), tokens)
    path = tmp_path / "layer.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            inference_form(model),
            (tokens[:2],),
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=({0: Dim("batch", min=1)},),
            verbose=False,
        )
    program.save(path)
    assert not without_kernel(program.model_proto)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    for file in published.files:
        arrays = case.arrays(file)
        output, weights = session.run(None, {given.name: arrays["x"]})
        close(case, file, arrays, output, weights)


@pytest.mark.parametrize(("name", "published"), EACH)
def test_layer_equals_the_published_layer(name: str, published: Published) -> None:
    case = golden.case(name)
    layer = published.layer(case)
    for file in published.files:
        arrays = case.arrays(file)
        tokens = torch.from_numpy(arrays["x"])
        for explain in (False, True):
            found = layer(tokens, tokens, explain=explain)
            weights = found.evidence.weights.detach().numpy() if explain else None
            close(case, file, arrays, found.output.detach().numpy(), weights)


def close(
    case: golden.Case,
    file: str,
    arrays: dict[str, np.ndarray],
    output: np.ndarray,
    weights: np.ndarray | None,
) -> None:
    if file != "io_edge":
        atol = case.tolerance["recommended_atol"]
        np.testing.assert_allclose(output, arrays["out"], rtol=0, atol=atol)
        if "attn_0" in arrays and weights is not None:
            np.testing.assert_allclose(weights, arrays["attn_0"], rtol=0, atol=atol)
        return
    for row, kind in enumerate(arrays["kind"]):
        tolerance = case.tolerance["edge"][kind]
        if tolerance["comparable"]:
            atol = tolerance["recommended_atol"]
            np.testing.assert_allclose(output[row], arrays["out"][row], rtol=0, atol=atol)
        else:
            # The published code overflows: compare with a stable form in float64.
            stable = arrays["out_stable_f64"][row]
            atol = 1e-6 * np.abs(stable).max()
            np.testing.assert_allclose(output[row], stable, rtol=0, atol=atol)
