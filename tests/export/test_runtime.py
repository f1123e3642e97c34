import numpy as np

from foretell.bundle import layout
from foretell.export.data_windows import synthetic
from foretell.export.runtime import Graph
from foretell.models.checkpoint import load_info


def test_outputs_by_name(bundles, checkpoints):
    info = load_info(checkpoints["autoformer"])
    inputs = synthetic(info, 3, seed=0).inputs
    explain = Graph(bundles["autoformer"] / layout.EXPLAIN_GRAPH)
    outputs = explain.run(inputs)
    assert list(outputs) == explain.outputs
    assert explain.outputs[0] == "forecast"
    assert outputs["encoder.0.self.lags"].dtype == np.int64
    np.testing.assert_array_equal(explain.forecast(*inputs), outputs["forecast"])


def test_a_graph_without_a_calendar_takes_none(bundles, checkpoints):
    windows = synthetic(load_info(checkpoints["patchtst"]), 3, seed=0)
    assert windows.inputs[1:] == (None, None)
    forecast = Graph(bundles["patchtst"] / layout.FORECAST_GRAPH).forecast(*windows.inputs)
    assert forecast.shape == (3, 12, 3)
