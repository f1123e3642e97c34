from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle import calibration, evaluation, example, layout
from foretell.bundle.bounds import Bound
from foretell.bundle.manifest import read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.export import sample as choice
from foretell.export import scores as measuring
from foretell.export.data_windows import split_of, windows_of
from foretell.export.runtime import Graph
from foretell.export.sample import example_of
from foretell.export.scores import evaluate_graph
from foretell.models.checkpoint import load_info
from tests.checkpoints import CONFIGS


@pytest.fixture
def panel(data) -> Panel:
    return reading.read(data)


@pytest.fixture
def info(checkpoints):
    return load_info(checkpoints["patchtst"])


@pytest.fixture
def bare(info):
    """A checkpoint's record without its data source."""
    return info.model_copy(update={"data": None})


@pytest.fixture
def graph(bundles):
    return Graph(bundles["patchtst"] / layout.FORECAST_GRAPH)


@pytest.fixture
def about(bundles):
    return read(bundles["patchtst"])


@pytest.fixture
def quantiles(bundles, about):
    """The stored calibration, and its report."""
    return calibration.read(bundles["patchtst"], about), about.calibration


def test_errors_are_of_the_test_split(bundles, about, info, graph, panel):
    found = evaluation.read(bundles["patchtst"], about)
    (batch,) = windows_of(info, panel).batches(10**6)
    forecast = graph.predict(batch.history, None, None)
    error = (forecast - batch.target.numpy().astype(float)) / np.array(info.target_scaler.std)
    np.testing.assert_allclose(found.mse[0], np.square(error).mean(axis=0), rtol=1e-5)
    np.testing.assert_allclose(found.mae[0], np.abs(error).mean(axis=0), rtol=1e-5)
    for name, mse, mae in zip(found.forecasters, found.mse, found.mae, strict=True):
        overall = getattr(about.test, name)
        assert (mse.mean(), mae.mean()) == pytest.approx((overall.mse, overall.mae), rel=1e-4)


@pytest.mark.parametrize("windows", [10**6, 7])
def test_quantiles_are_scored_as_served(info, graph, panel, quantiles, monkeypatch, windows):
    monkeypatch.setattr(measuring, "_WINDOWS", windows)
    stored, report = quantiles
    found = evaluate_graph(graph, info, panel, 5, quantiles)
    all_windows = windows_of(info, panel)
    (batch,) = all_windows.batches(10**6)
    some = slice(None, None, -(-len(all_windows) // windows))
    forecast = graph.predict(batch.history, None, None)[some].astype(float)
    floor = report.floor * np.array(info.target_scaler.std)
    spread = calibration.scale(batch.history.numpy()[some], floor)
    assert 0.5 in found.levels
    target = batch.target.numpy()[some]
    for place, level in enumerate(found.levels):
        edge = forecast + spread * stored.at(np.array([level]), info.config.horizon)[0]
        edge = edge.astype(np.float32)
        np.testing.assert_allclose(found.below[place], (target < edge).mean(axis=(0, 1)))
        np.testing.assert_allclose(found.up_to[place], (target <= edge).mean(axis=(0, 1)))
    assert (np.diff(found.below, axis=0) >= 0).all()


def test_values_on_a_bound_are_at_their_quantiles(info, panel, quantiles):
    bounded = info.model_copy(update={"bounds": dict.fromkeys(info.targets, Bound(low=0.1))})
    shape = (info.config.horizon, len(info.targets))

    class FarBelow:
        """Forecasts so far below the bound that all quantiles are clipped to it."""

        def predict(self, history: Tensor, *_: object) -> NDArray[np.float32]:
            return np.full((len(history), *shape), -1e9, np.float32)

    # Values are float32, in which 0.1 is another number.
    for value, up_to in ((0.1, 1), (1.0, 0)):
        tables = (replace(one, values=np.full_like(one.values, value)) for one in panel.tables)
        found = evaluate_graph(FarBelow(), bounded, Panel(tuple(tables)), 64, quantiles)
        assert not found.below.any()
        assert (found.up_to == up_to).all()
        assert (found.reached == (found.levels[:, None] if up_to else 0)).all()


def test_only_targets_are_scored(info, panel, quantiles):
    targets, (stored, report) = [0, 2], quantiles
    config = info.config.model_copy(update={"targets": tuple(targets)})
    targeted = info.model_copy(update={"config": config})

    class LastValues:
        """Repeats the last values of some channels."""

        def __init__(self, at: list[int]) -> None:
            self._at = at

        def predict(self, history: Tensor, *_: object) -> NDArray[np.float32]:
            return history[:, -1:, self._at].numpy().repeat(info.config.horizon, axis=1)

    whole = evaluate_graph(LastValues([0, 1, 2]), info, panel, 64, quantiles)
    fewer = replace(stored, offsets=stored.offsets[..., targets])
    found = evaluate_graph(LastValues(targets), targeted, panel, 64, (fewer, report))
    for name in ("mse", "mae", "below", "up_to"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name)[..., targets])
    carried = example_of(LastValues(targets), targeted, panel, 64)
    (table,) = panel.tables
    after = np.flatnonzero(table.timestamps > np.datetime64(carried.timestamps[-1]))[:12]
    np.testing.assert_array_equal(carried.actual, table.values[after][:, targets])
    assert carried.history.shape[1] == 3


def test_model_without_quantiles_has_only_errors(info, graph, panel):
    found = evaluate_graph(graph, info, panel, 64, None)
    assert found.levels.shape == (0,)
    assert found.below.shape == found.up_to.shape == (0, 3)
    assert found.forecasters[0] == "onnx"


@pytest.mark.parametrize("name", CONFIGS)
def test_a_bundle_carries_rows_of_the_test_split(bundles, info, panel, name):
    found = example.read(bundles[name], read(bundles[name]))
    (table,) = panel.tables
    ((_, start, end),) = split_of(info, panel).test
    (last,) = np.flatnonzero(table.timestamps == np.datetime64(found.timestamps[-1]))
    origin = last + 1
    assert start + 48 <= origin <= end - 12
    # Four contexts are fewer than 512 rows.
    rows = slice(origin - min(512, origin), origin)
    np.testing.assert_array_equal(found.history, table.values[rows])
    np.testing.assert_array_equal(found.timestamps.astype("M8[us]"), table.timestamps[rows])
    np.testing.assert_array_equal(found.actual, table.values[origin : origin + 12])
    assert found.series == ""


def test_example_has_the_median_error(info, graph, panel, monkeypatch):
    monkeypatch.setattr(choice, "_WINDOWS", 10**6)
    windows = windows_of(info, panel)
    (batch,) = windows.batches(len(windows))
    forecast = graph.predict(batch.history, None, None)
    scaled = (forecast - batch.target.numpy()) / np.array(info.scaler.std)
    (middle,) = np.flatnonzero(
        np.argsort(np.argsort(np.square(scaled).mean(axis=(1, 2)))) == len(windows) // 2
    )
    found = example_of(graph, info, panel, batch=7)
    np.testing.assert_allclose(found.history[-48:], batch.history[middle], rtol=1e-6)


def test_many_channels_have_few_rows_and_no_fewer_than_a_context(graph, bare, panel, monkeypatch):
    for values, rows in ((3 * 60, 60), (3 * 5, 48)):
        monkeypatch.setattr(choice, "_VALUES", values)
        assert len(example_of(graph, bare, panel, 64).history) == rows


def test_the_series_of_a_panel_is_named(graph, bare, panel):
    (table,) = panel.tables
    one = replace(table, series="one", timestamps=table.timestamps[:50], values=table.values[:50])
    other = replace(table, series="other")
    assert example_of(graph, bare, Panel((one, other)), 64).series == "other"


@pytest.mark.parametrize("changes", [False, True])
def test_offsets_are_written_where_they_change(graph, bare, panel, changes):
    (table,) = panel.tables
    offset = timedelta(hours=1)
    if changes:
        offset = np.full(len(table), 3600, "m8[s]").astype("m8[us]")
    found = example_of(graph, bare, Panel((replace(table, utc_offset=offset),)), 64)
    assert {text.endswith("+01:00") for text in found.timestamps} == {changes}
