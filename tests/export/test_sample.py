from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from foretell.bundle import example, layout
from foretell.bundle.manifest import read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.export import sample as choice
from foretell.export.data_windows import split_of, windows_of
from foretell.export.runtime import Graph
from foretell.export.sample import example_of
from foretell.models.checkpoint import load_info
from tests.checkpoints import CONFIGS


@pytest.fixture
def info(checkpoints):
    return load_info(checkpoints["patchtst"])


@pytest.fixture
def bare(info):
    """Of a model whose data is not known."""
    return info.model_copy(update={"data": None})


@pytest.fixture
def graph(bundles):
    return Graph(bundles["patchtst"] / layout.FORECAST_GRAPH)


@pytest.fixture
def panel(data):
    return reading.read(data)


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


def test_its_error_is_the_median(info, graph, panel, monkeypatch):
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
