"""The published outputs, through the exported graphs."""

import numpy as np
import onnx
import pytest

from foretell.bundle.manifest import Scaler
from foretell.export.graphs import trace
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from tests import golden


@pytest.mark.parametrize("name", golden.FORECASTERS)
def test_forecast_graph(name, tmp_path):
    case = golden.case(name)
    channels = case.model.config.channels
    scaler = Scaler(mean=(0.0,) * channels, std=(1.0,) * channels)
    onnx.save(
        trace(ServingForm(inference_form(case.model), scaler, "forecast")), tmp_path / "graph.onnx"
    )
    graph = Graph(tmp_path / "graph.onnx")
    for file in ("io", "io_edge"):
        found = graph.forecast(*(tensor.numpy() for tensor in case.inputs(file)))
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
