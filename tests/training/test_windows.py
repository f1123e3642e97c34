from dataclasses import replace

import numpy as np
import pytest
import torch

from foretell.bundle.covariates import Covariate, Covariates
from foretell.bundle.scaler import Scaler
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.splits import Span
from foretell.timeaxis.calendar import Calendar
from foretell.training.windows import Windows
from tests.data.panels import HOUR, table

CALENDAR = Calendar.for_frequency(HOUR, "scaled")
SCALER = Scaler(mean=(1.0, 2.0), std=(2.0, 4.0))


def span(start: int, end: int) -> list[Span]:
    return [Span(0, start, end)]


@pytest.fixture
def panel() -> Panel:
    return Panel((table(40),))


def test_windows_are_slices_of_standardised_spans() -> None:
    panel = Panel((table(20, "x"), table(11, "x", "2024-03-01"), table(8, "y"), table(12, "z")))
    # The third is too short for a window.
    spans = [Span(0, 2, 20), Span(1, 0, 11), Span(2, 0, 8), Span(3, 1, 10)]
    windows = Windows(panel, spans, 6, 3, SCALER, CALENDAR)
    expected = [(0, first) for first in range(2, 12)]
    expected += [(1, 0), (1, 1), (1, 2), (3, 1)]
    assert len(windows) == len(expected)
    (batch,) = windows.batches(100)
    past, ahead = batch.inputs.history_calendar, batch.inputs.future_calendar
    assert past is not None
    assert ahead is not None
    for index, (place, first) in enumerate(expected):
        assert windows.span(index) == Span(place, first, first + 9)
        one = panel.tables[place]
        scaled = ((one.values - [1, 2]) / [2, 4]).astype(np.float32)
        np.testing.assert_array_equal(batch.history[index], scaled[first : first + 6])
        np.testing.assert_array_equal(batch.target[index], scaled[first + 6 : first + 9])
        times = CALENDAR.encode(one.timestamps[first : first + 9])
        np.testing.assert_array_equal(past[index], times[:6])
        np.testing.assert_array_equal(ahead[index], times[6:])


def test_a_batch_stacks_windows(panel: Panel) -> None:
    windows = Windows(panel, span(0, 40), 6, 3, SCALER, CALENDAR)
    batch = windows.batch(torch.tensor([7, 0, 31]))
    for row, index in enumerate((7, 0, 31)):
        one = windows[index]
        pairs = zip((*batch.inputs[:3], *batch[1:3]), (*one.inputs[:3], *one[1:3]), strict=True)
        for part, single in pairs:
            torch.testing.assert_close(part[row], single, rtol=0, atol=0)


def test_batches_drop_no_window(panel: Panel) -> None:
    windows = Windows(panel, span(0, 40), 6, 3, SCALER)
    assert len(windows) == 32
    batches = list(windows.batches(5))
    assert [len(batch.history) for batch in batches] == [5] * 6 + [2]
    last = panel.tables[0].values[-1]
    np.testing.assert_allclose(batches[-1].target[-1, -1], (last - [1, 2]) / [2, 4], rtol=1e-6)


def test_windows_cut_covariates_with_the_series() -> None:
    random = np.random.default_rng(0)
    tables = [
        replace(
            table(rows, name),
            covariates=random.normal(size=(rows, 2)),
            static=random.normal(size=3),
        )
        for name, rows in (("x", 20), ("y", 15))
    ]
    covariates = Covariates(
        future=(Covariate(name="a"), Covariate(name="b")),
        static=tuple(Covariate(name=name) for name in "cde"),
    )
    panel = Panel(tuple(tables), covariates=covariates)
    windows = Windows(panel, [Span(0, 2, 20), Span(1, 0, 15)], 6, 3, SCALER)
    (batch,) = windows.batches(100)
    history, future, static = batch.inputs[3:]
    assert history is not None
    assert future is not None
    assert static is not None
    for index in range(len(windows)):
        place, first, _ = windows.span(index)
        codes = np.float32(tables[place].covariates)
        np.testing.assert_array_equal(history[index], codes[first : first + 6])
        np.testing.assert_array_equal(future[index], codes[first + 6 : first + 9])
        np.testing.assert_array_equal(static[index], np.float32(tables[place].static))


def test_targets_of_all_that_followed(panel: Panel) -> None:
    whole = Windows(panel, span(0, 40), 6, 3, SCALER)
    some = Windows(panel, span(0, 40), 6, 3, SCALER, targets=(1,))
    (all_targets,), (batch,) = whole.batches(100), some.batches(100)
    np.testing.assert_array_equal(batch.history, all_targets.history)
    np.testing.assert_array_equal(batch.future, all_targets.target)
    np.testing.assert_array_equal(batch.target, all_targets.target[..., 1:])
    assert all_targets.future.shape[-1] == 2


def test_windows_take_the_memory_of_the_rows() -> None:
    panel = Panel(tuple(table(30, name) for name in "xyz"))
    windows = Windows(panel, [Span(place, 0, 30) for place in range(3)], 6, 3, SCALER)
    assert windows.values.shape == (90, 2)


def test_windows_without_a_calendar_end_with_the_rows(panel: Panel) -> None:
    windows = Windows(panel, span(0, 10), 6, 3, SCALER)
    assert len(windows) == 2
    assert windows[1].inputs[1:] == (None,) * 5
    with pytest.raises(IndexError, match="window 2 of 2"):
        windows[2]
    with pytest.raises(DataError, match="no window of context 6 and horizon 3"):
        Windows(panel, span(0, 8), 6, 3, SCALER)
