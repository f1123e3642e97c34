from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle import calibration, evaluation, layout
from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.export import scores as measuring
from foretell.export.data_windows import windows_of
from foretell.export.runtime import Graph
from foretell.export.sample import example_of
from foretell.export.scores import evaluate_graph
from foretell.models.checkpoint import load_info


@pytest.fixture
def panel(data) -> Panel:
    return reading.read(data)


def test_errors_are_those_of_the_test_split(bundles, checkpoints, panel):
    bundle = bundles["patchtst"]
    about, info = read(bundle), load_info(checkpoints["patchtst"])
    found = evaluation.read(bundle, about)
    assert found is not None
    assert about.test is not None
    (batch,) = windows_of(info, panel).batches(10**6)
    forecast = Graph(bundle / layout.FORECAST_GRAPH).predict(batch.history, None, None)
    error = (forecast - batch.target.numpy().astype(float)) / np.array(info.target_scaler.std)
    np.testing.assert_allclose(found.mse[0], np.square(error).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.mae[0], np.abs(error).mean(axis=0), rtol=1e-5)
    for name, mse, mae in zip(found.forecasters, found.mse, found.mae, strict=True):
        overall = getattr(about.test, name)
        assert (mse.mean(), mae.mean()) == pytest.approx((overall.mse, overall.mae), rel=1e-4)


@pytest.mark.parametrize("windows", [10**6, 7])
def test_quantiles_are_looked_at_as_they_are_served(
    bundles, checkpoints, panel, monkeypatch, windows
):
    monkeypatch.setattr(measuring, "_WINDOWS", windows)
    bundle = bundles["patchtst"]
    about, info = read(bundle), load_info(checkpoints["patchtst"])
    stored = calibration.read(bundle, about)
    assert stored is not None
    assert about.calibration is not None
    graph = Graph(bundle / layout.FORECAST_GRAPH)
    found = evaluate_graph(graph, info, panel, 5, (stored, about.calibration))
    every = windows_of(info, panel)
    (batch,) = every.batches(10**6)
    some = slice(None, None, -(-len(every) // windows))
    forecast = graph.predict(batch.history, None, None)[some].astype(float)
    floor = about.calibration.floor * np.array(info.target_scaler.std)
    spread = calibration.scale(batch.history.numpy()[some], floor)
    assert 0.5 in found.levels
    target = batch.target.numpy()[some]
    for place, level in enumerate(found.levels):
        edge = forecast + spread * stored.at(np.array([level]), info.config.horizon)[0]
        edge = edge.astype(np.float32)
        np.testing.assert_allclose(found.below[place], (target < edge).mean(axis=(0, 1)))
        np.testing.assert_allclose(found.up_to[place], (target <= edge).mean(axis=(0, 1)))
    assert (np.diff(found.below, axis=0) >= 0).all()


def test_values_on_a_bound_are_at_their_quantiles(bundles, checkpoints, panel):
    bundle = bundles["patchtst"]
    about, info = read(bundle), load_info(checkpoints["patchtst"])
    stored = calibration.read(bundle, about)
    bounded = info.model_copy(update={"bounds": dict.fromkeys(info.targets, Bound(low=0.1))})
    shape = (info.config.horizon, len(info.targets))

    class Low:
        """So far below the bound that all quantiles are on it."""

        def predict(self, history: Tensor, *_: object) -> NDArray[np.float32]:
            return np.full((len(history), *shape), -1e9, np.float32)

    # 0.1 is another number in float32, which is what came.
    for came, up_to in ((0.1, 1), (1.0, 0)):
        tables = (replace(one, values=np.full_like(one.values, came)) for one in panel.tables)
        given = (stored, about.calibration)
        found = evaluate_graph(Low(), bounded, Panel(tuple(tables)), 64, given)
        assert not found.below.any()
        assert (found.up_to == up_to).all()
        assert (found.reached == (found.levels[:, None] if up_to else 0)).all()


def test_targets_are_looked_at_alone(bundles, checkpoints, panel):
    bundle, targets = bundles["patchtst"], [0, 2]
    about, info = read(bundle), load_info(checkpoints["patchtst"])
    stored = calibration.read(bundle, about)
    config = info.config.model_copy(update={"targets": tuple(targets)})
    targeted = info.model_copy(update={"config": config})

    class Last:
        """Repeats the last values of some channels."""

        def __init__(self, at: list[int]) -> None:
            self._at = at

        def predict(self, history: Tensor, *_: object) -> NDArray[np.float32]:
            return history[:, -1:, self._at].numpy().repeat(info.config.horizon, axis=1)

    whole = evaluate_graph(Last([0, 1, 2]), info, panel, 64, (stored, about.calibration))
    fewer = replace(stored, offsets=stored.offsets[..., targets])
    found = evaluate_graph(Last(targets), targeted, panel, 64, (fewer, about.calibration))
    for name in ("mse", "mae", "below", "up_to"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[..., targets])
    carried = example_of(Last(targets), targeted, panel, 64)
    (table,) = panel.tables
    after = np.flatnonzero(table.timestamps > np.datetime64(carried.timestamps[-1]))[:12]
    np.testing.assert_array_equal(carried.actual, table.values[after][:, targets])
    assert carried.history.shape[1] == 3


def test_a_model_without_quantiles_has_errors_alone(bundles, checkpoints, panel):
    graph = Graph(bundles["patchtst"] / layout.FORECAST_GRAPH)
    found = evaluate_graph(graph, load_info(checkpoints["patchtst"]), panel, 64, None)
    assert found.levels.shape == (0,)
    assert found.below.shape == found.up_to.shape == (0, 3)
    assert found.forecasters[0] == "onnx"
