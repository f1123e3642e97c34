from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.bundle import calibration, layout
from foretell.bundle.bounds import Bound
from foretell.bundle.calibration import rank
from foretell.bundle.manifest import read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.data.scaler import fit
from foretell.data.splits import Span, Split
from foretell.export import conformal as exported
from foretell.export.conformal import calibrate, errors, roll_forward
from foretell.export.data_windows import split_of, windows_in
from foretell.export.errors import UncalibratedError
from foretell.export.runtime import Graph
from foretell.models.checkpoint import load_info
from foretell.models.inputs import Inputs
from foretell.training.windows import Batch

CONTEXT, HORIZON, CHANNELS = 48, 12, 3


class Repeat:
    """A graph that repeats the last row, times a factor."""

    def __init__(self, factor=1.0):
        self.factor = np.float32(factor)
        self.runs = []

    def forecast(self, inputs):
        history = inputs["history"]
        self.runs.append(len(history))
        with np.errstate(over="ignore"):
            return np.repeat(history[:, -1:] * self.factor, HORIZON, axis=1)


@pytest.fixture
def info(checkpoints):
    return load_info(checkpoints["patchtst"])


@pytest.fixture(scope="module")
def panel(data):
    return reading.read(data)


@pytest.fixture(scope="module")
def table(panel):
    return panel.tables[0]


@pytest.fixture
def split(info, panel):
    return split_of(info, panel)


def span(start, end):
    return (Span(0, start, end),)


@pytest.mark.parametrize("name", ["autoformer", "patchtst", "transformer"])
def test_calibration_counts_its_windows(bundles, name):
    manifest = read(bundles[name])
    report = manifest.calibration
    # The 71 targets of the validation split make 60 windows of one pass and 24 of four.
    assert report.windows == (60, 24, 24, 24)
    assert report.disjoint == (5, 2, 1, 1)
    assert report.steps == 4 * HORIZON
    assert layout.CALIBRATION in manifest.files
    stored = calibration.read(bundles[name], manifest)
    assert (stored.levels[0], stored.levels[-1]) == (1 / 61, 60 / 61)
    measured = {(part.level, part.first_step, part.last_step) for part in report.coverage}
    # 24 windows are too few for an interval of 95%.
    expected = {(0.8, 12 * number + 1, 12 * number + 12) for number in range(4)}
    assert measured == {*expected, (0.95, 1, 12)}
    assert all(0 < part.coverage <= 1 and part.width > 0 for part in report.coverage)
    assert [part.windows for part in report.coverage] == [129, 129, 93, 93, 93]


def test_offsets_are_order_statistics_of_the_errors(info, panel, table, split, bundles):
    graph = Graph(bundles["patchtst"] / layout.FORECAST_GRAPH)
    ((_, start, end),) = split.validation
    values = table.values.astype(np.float32)
    histories = np.stack([values[i : i + CONTEXT] for i in range(start, end - 59)])
    futures = np.stack([values[i + CONTEXT :][:HORIZON] for i in range(start, end - 59)])
    spread = np.maximum(histories.astype(float).std(axis=1), 0.1 * np.array(info.scaler.std))
    scaled = np.sort((futures - graph.forecast({"history": histories})) / spread[:, None], axis=0)
    manifest = read(bundles["patchtst"])
    stored = calibration.read(bundles["patchtst"], manifest)
    for level in (0.1, 0.5, 0.95):
        (place,) = np.flatnonzero(stored.levels == level)
        expected = scaled[rank(level, 60) - 1]
        np.testing.assert_allclose(stored.offsets[place, :HORIZON], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["autoformer", "patchtst"])
def test_passes_read_forecasts_and_the_calendar_of_the_rows(
    name, checkpoints, bundles, panel, table
):
    info = load_info(checkpoints[name])
    graph = Graph(bundles[name] / layout.FORECAST_GRAPH)
    windows = windows_in(info, panel, span(100, 400), 3 * HORIZON)
    chosen = torch.tensor([0, 7, 150])
    found = roll_forward(graph, windows.batch(chosen), HORIZON)
    assert found.shape == (3, 3 * HORIZON, CHANNELS)
    for forecast, first in zip(found, 100 + chosen.numpy(), strict=True):
        rows = table.values[first : first + CONTEXT].astype(np.float32)
        for number in range(3):
            begin = first + number * HORIZON
            times = table.timestamps[begin : begin + CONTEXT + HORIZON]
            inputs = {"history": rows[-CONTEXT:][None]}
            if info.config.calendar is not None:
                encoded = info.config.calendar.encode(times)[None]
                inputs["history_calendar"] = encoded[:, :CONTEXT]
                inputs["future_calendar"] = encoded[:, CONTEXT:]
            rows = np.concatenate([rows, graph.forecast(inputs)[0]])
        np.testing.assert_allclose(forecast, rows[CONTEXT:], rtol=1e-4, atol=1e-3)


def test_a_horizon_longer_than_the_context():
    class Count:
        def forecast(self, inputs):
            history = inputs["history"]
            return history[:, -1:] + np.arange(1, 6, dtype=np.float32)[:, None]

    batch = Batch(Inputs(torch.zeros(2, 3, 1)), *[torch.zeros(2, 15, 1)] * 2)
    found = roll_forward(Count(), batch, 5)
    np.testing.assert_array_equal(found[1, :, 0], np.arange(1, 16))


@pytest.mark.parametrize(
    ("rows", "roll", "passes"),
    # A window of one pass needs 60 rows, and a calibration needs 20 windows.
    [(78, 4, 0), (79, 4, 1), (90, 4, 1), (91, 4, 2), (91, 1, 1), (200, 2, 2), (200, 4, 4)],
)
def test_validation_split_limits_the_passes(info, panel, split, rows, roll, passes):
    short = split._replace(validation=span(300, 300 + rows))
    if not passes:
        with pytest.raises(UncalibratedError, match=r"holds 19 windows, .* at least 20$"):
            calibrate(Repeat(), info, panel, short, roll)
        return
    stored, report = calibrate(Repeat(), info, panel, short, roll)
    assert len(report.windows) == passes
    assert report.steps == stored.offsets.shape[1] == passes * HORIZON
    assert min(report.windows) >= 20


def test_a_short_test_split_measures_less(info, panel, split):
    short = split._replace(test=span(500, 500 + 91))
    _, report = calibrate(Repeat(), info, panel, short, 4)
    assert len(report.windows) == 4
    assert max(part.last_step for part in report.coverage) == 2 * HORIZON
    short = split._replace(test=span(500, 500 + 78))
    _, report = calibrate(Repeat(), info, panel, short, 4)
    assert report.coverage == ()


def test_calibration_needs_a_known_split(info, panel):
    with pytest.raises(UncalibratedError, match="does not name the data"):
        calibrate(Repeat(), info, panel, None, 4)


def test_diverging_model_is_calibrated_for_its_finite_passes(info, panel, split):
    stored, report = calibrate(Repeat(factor=1e13), info, panel, split, 4)
    assert 1 <= len(report.windows) < 4
    assert np.isfinite(stored.offsets).all()
    with pytest.raises(UncalibratedError, match="not finite"):
        calibrate(Repeat(factor=np.inf), info, panel, split, 4)


def test_windows_are_spread_evenly_over_the_split(info, panel, table, monkeypatch):
    monkeypatch.setattr(exported, "WINDOWS", 40)
    monkeypatch.setattr(exported, "ROLLED_WINDOWS", 25)
    graph = Repeat()
    first, second = errors(graph, info, panel, span(0, 400), 2)
    assert sum(graph.runs) == 40 + 2 * 25
    values = table.values.astype(np.float32)
    for part, count, horizon in ((first, 40, HORIZON), (second, 25, 2 * HORIZON)):
        starts = np.linspace(0, 400 - CONTEXT - horizon, count).round().astype(int)
        assert len(part) == count
        target = np.stack([values[i + CONTEXT + horizon - HORIZON :][:HORIZON] for i in starts])
        repeated = np.stack([values[i + CONTEXT - 1] for i in starts])[:, None]
        np.testing.assert_allclose(part.scaled * part.scale, target - repeated, atol=1e-3)


def test_coverage_is_measured_as_served(info, panel, table, split):
    """Half of the values lie on a bound, which no interval goes beyond."""
    random = np.random.default_rng(4)
    values = np.maximum(random.normal(0, 1, (len(panel), CHANNELS)), 0)
    drawn = Panel((replace(table, values=values),))
    scaler = info.scaler.model_copy(update={"std": tuple(values.std(axis=0).tolist())})
    free = info.model_copy(update={"scaler": scaler})
    bounds = {name: Bound(low=0) for name in info.channels}
    (_, wide), (_, narrow) = (
        calibrate(Repeat(factor=0.1), each, drawn, split, 1)
        for each in (free, free.model_copy(update={"bounds": bounds}))
    )
    for before, after in zip(wide.coverage, narrow.coverage, strict=True):
        assert after.coverage == before.coverage
        assert after.width < before.width


def test_windows_of_all_series_count(info, table):
    """No window lies across two series, and each has its own disjoint ones."""
    short = replace(table, timestamps=table.timestamps[:70], values=table.values[:70])
    panel = Panel((replace(table, series="a"), replace(short, series="b")))
    several = (Span(0, 0, 100), Span(1, 0, 70))
    split = Split(train=(), validation=several, test=several)
    _, report = calibrate(Repeat(), info, panel, split, 2)
    assert report.windows == (41 + 11, 29)
    assert report.disjoint == (4 + 1, 2)
    assert [part.windows for part in report.coverage] == [52, 52, 29]


def test_coverage_of_small_series_equals_that_of_large_ones(info, table):
    """Series of noise, one of them hundreds of times the others."""
    random = np.random.default_rng(5)
    rows = 3900
    times = np.datetime64("2020-01-01T00", "us") + np.arange(rows) * np.timedelta64(1, "h")
    sizes = {"small": 1.0, "middle": 2.0, "large": 300.0}
    panel = Panel(
        tuple(
            replace(
                table,
                values=size * random.normal(size=(rows, CHANNELS)),
                timestamps=times,
                series=name,
            )
            for name, size in sizes.items()
        )
    )
    parts = (
        tuple(Span(place, first, first + 1300) for place in range(3)) for first in (0, 1300, 2600)
    )
    split = Split(*parts)
    several = info.model_copy(update={"scaler": fit(panel, split.train)})
    alone = split._replace(test=split.test[:1])
    _, report = calibrate(Repeat(factor=0), several, panel, alone, 1)
    assert report.floor == pytest.approx(0.1 * 2 / (300 / 3**0.5), rel=0.1)
    assert report.coverage[0].coverage == pytest.approx(0.8, abs=0.02)
