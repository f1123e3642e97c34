from functools import cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from foretell.bundle.bounds import Bound, limits
from foretell.bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH
from foretell.export.adversarial import adversarial
from foretell.export.clipping import without_bounds
from foretell.export.data_windows import synthetic
from foretell.export.graphs import FILES, trace, trace_all
from foretell.export.operators import devices_of
from foretell.export.precision import reduce_precision
from foretell.export.rewrites import inference_form
from foretell.export.runtime import Graph
from foretell.export.serving_form import ServingForm
from foretell.export.verification import verify
from foretell.models.checkpoint import load
from tests.checkpoints import CONFIGS

CHANNELS = ("load", "price", "wind")
BOUNDS = {"load": Bound(low=850.0, high=950.0), "wind": Bound(low=0.0)}


def save(graphs, folder):
    for file, graph in graphs.items():
        onnx.save(graph, folder / file)


@pytest.fixture(scope="module")
def traced(checkpoints):
    """Traces the graphs of a checkpoint with bounds, once."""

    @cache
    def of(name, precision):
        loaded = load(checkpoints[name])
        form = inference_form(loaded.model)
        reduce_precision(form, precision)
        return trace_all(form, loaded.info.scaler, limits(BOUNDS, CHANNELS))

    return of


@pytest.fixture
def graphs(traced, tmp_path):
    """Writes the graphs of a checkpoint with bounds, and returns the limits."""

    def write(name, precision="float32"):
        save(traced(name, precision), tmp_path)
        return limits(BOUNDS, CHANNELS)

    return write


def windows_of(loaded, count):
    windows = synthetic(loaded.info, count, seed=1)
    return windows, list(adversarial(windows.take(slice(4)), loaded.info.scaler, seed=1))


@pytest.mark.parametrize("name", CONFIGS)
def test_graph_keeps_the_bounds_on_every_device(bundles, checkpoints, graphs, tmp_path, name):
    loaded = load(checkpoints[name])
    within = graphs(name)
    windows, _ = windows_of(loaded, 16)
    free = Graph(bundles[name] / FORECAST_GRAPH).run(windows.inputs)["forecast"]
    expected = within.apply(free)
    assert (expected != free).any()
    for file in FILES.values():
        found = Graph(tmp_path / file).run(windows.inputs)["forecast"]
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert (found[..., 0] >= 850).all()
        assert (found[..., 0] <= 950).all()
        assert (found[..., 2] >= 0).all()
    assert devices_of([onnx.load(tmp_path / file) for file in FILES.values()]) == ("cuda", "cpu")


def test_nan_forecast_is_not_clipped(checkpoints, graphs, tmp_path):
    loaded = load(checkpoints["patchtst"])
    graphs("patchtst")
    windows, _ = windows_of(loaded, 2)
    windows.history[0] = np.nan
    found = Graph(tmp_path / FORECAST_GRAPH).forecast(windows.inputs)
    assert np.isnan(found[0]).all()
    assert np.isfinite(found[1]).all()


@pytest.mark.parametrize("precision", ["float32", "float16"])
def test_graph_without_bounds_has_no_clipping(checkpoints, graphs, tmp_path, precision):
    loaded = load(checkpoints["patchtst"])
    graphs("patchtst", precision)
    windows, _ = windows_of(loaded, 8)
    form = inference_form(loaded.model)
    reduce_precision(form, precision)
    onnx.save(trace(ServingForm(form, loaded.info.scaler, "forecast")), tmp_path / "free.onnx")
    expected = Graph(tmp_path / "free.onnx").forecast(windows.inputs)
    found = Graph(tmp_path / FORECAST_GRAPH, bounded=False).forecast(windows.inputs)
    np.testing.assert_array_equal(found, expected)
    bare = onnx.load(tmp_path / "free.onnx")
    assert without_bounds(bare) == bare


@pytest.mark.parametrize("name", ["patchtst", "autoformer"])
def test_verification_compares_unclipped_forecasts_and_bounds(
    bundles, checkpoints, graphs, tmp_path, name
):
    loaded = load(checkpoints[name])
    within = graphs(name)
    windows, kinds = windows_of(loaded, 16)
    arguments = (loaded.model, loaded.info.scaler)
    free = verify(*arguments, bundles[name], windows, kinds).verification
    verified = verify(*arguments, tmp_path, windows, kinds, limits=within)
    checks = verified.verification.checks
    assert verified.verification.passed
    # All checks of graphs without bounds, and one more for each graph.
    assert [check.name for check in checks] == [
        *(check.name for check in free.checks),
        *(f"{file}, bounds" for file in FILES.values()),
    ]
    assert checks[-1].windows == 16 + 8 * 4
    np.testing.assert_array_equal(verified.forecast, within.apply(verified.forecast))


def test_other_bounds_fail(checkpoints, graphs, tmp_path):
    loaded = load(checkpoints["patchtst"])
    within = graphs("patchtst")
    graph = onnx.load(tmp_path / FORECAST_GRAPH)
    for tensor in graph.graph.initializer:
        values = numpy_helper.to_array(tensor)
        if (values == 850).any():
            changed = np.where(values == 850, np.float32(851), values)
            tensor.CopyFrom(numpy_helper.from_array(changed, tensor.name))
    onnx.save(graph, tmp_path / FORECAST_GRAPH)
    windows, kinds = windows_of(loaded, 8)
    arguments = (loaded.model, loaded.info.scaler, tmp_path, windows, kinds)
    checks = verify(*arguments, limits=within).verification.checks
    assert [check.name for check in checks if not check.passed] == [f"{FORECAST_GRAPH}, bounds"]


def test_a_wrong_model_fails_although_its_forecasts_are_all_at_a_bound(checkpoints, tmp_path):
    loaded = load(checkpoints["patchtst"])
    channels = loaded.info.channels
    info = loaded.info.model_copy(update={"bounds": dict.fromkeys(channels, Bound(high=-1e6))})
    within = limits(info.bounds, channels)
    form = inference_form(loaded.model)
    save(trace_all(form, info.scaler, within), tmp_path)
    weight = next(w for n, w in loaded.model.named_parameters() if "feed_forward.expand" in n)
    weight.data.mul_(1.001)
    windows, _ = windows_of(loaded, 8)
    verified = verify(loaded.model, info.scaler, tmp_path, windows, limits=within)
    assert (verified.forecast == -1e6).all()
    assert not verified.verification.passed


def test_unused_bounds_are_reported(checkpoints, tmp_path):
    loaded = load(checkpoints["patchtst"])
    bounds = {"load": Bound(low=-1e9)}
    within = limits(bounds, loaded.info.channels)
    form = inference_form(loaded.model)
    save(trace_all(form, loaded.info.scaler, within), tmp_path)
    windows, _ = windows_of(loaded, 4)
    checks = verify(
        loaded.model, loaded.info.scaler, tmp_path, windows, limits=within
    ).verification.checks
    assert checks[-1].name == f"{EXPLAIN_GRAPH}, bounds: none reached"
