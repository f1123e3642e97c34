import numpy as np
import pytest
import torch

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Scaler
from foretell.models.data.errors import DataError
from foretell.models.data.table import Table
from foretell.models.data.windows import Windows

HOUR = Frequency.parse("h")
CALENDAR = Calendar.for_frequency(HOUR, "scaled")
SCALER = Scaler(mean=(1.0, 2.0), std=(2.0, 4.0))


@pytest.fixture
def table() -> Table:
    timestamps = HOUR.steps_from(np.datetime64("2024-01-01T00:00"), 40)
    values = np.random.default_rng(0).normal(size=(40, 2))
    return Table(timestamps, values, ("a", "b"), HOUR)


def test_a_window_is_a_slice_of_the_standardised_table(table: Table) -> None:
    windows = Windows(table, (10, 30), 6, 3, SCALER, CALENDAR)
    window = windows[4]
    scaled = ((table.values - [1, 2]) / [2, 4]).astype(np.float32)
    calendar = CALENDAR.encode(table.timestamps)
    assert window.history_calendar is not None
    assert window.future_calendar is not None
    np.testing.assert_array_equal(window.history, scaled[14:20])
    np.testing.assert_array_equal(window.target, scaled[20:23])
    np.testing.assert_array_equal(window.history_calendar, calendar[14:20])
    np.testing.assert_array_equal(window.future_calendar, calendar[20:23])


def test_a_batch_stacks_windows(table: Table) -> None:
    windows = Windows(table, (0, 40), 6, 3, SCALER, CALENDAR)
    batch = windows.batch(torch.tensor([7, 0, 31]))
    for row, index in enumerate((7, 0, 31)):
        for part, single in zip(batch, windows[index], strict=True):
            torch.testing.assert_close(part[row], single, rtol=0, atol=0)


def test_batches_drop_no_window(table: Table) -> None:
    windows = Windows(table, (0, 40), 6, 3, SCALER)
    assert len(windows) == 32
    batches = list(windows.batches(5))
    assert [len(batch.history) for batch in batches] == [5] * 6 + [2]
    last = table.values[-1]
    np.testing.assert_allclose(batches[-1].target[-1, -1], (last - [1, 2]) / [2, 4], rtol=1e-6)


def test_without_a_calendar_there_is_none(table: Table) -> None:
    window = Windows(table, (0, 9), 6, 3, SCALER)[0]
    assert window.history_calendar is None
    assert window.future_calendar is None


def test_index_out_of_range(table: Table) -> None:
    windows = Windows(table, (0, 10), 6, 3, SCALER)
    assert len(windows) == 2
    with pytest.raises(IndexError, match="window 2 of 2"):
        windows[2]


@pytest.mark.parametrize("rows", [(0, 8), (-1, 20), (30, 41)])
def test_refuses_rows_without_a_window(table: Table, rows: tuple[int, int]) -> None:
    with pytest.raises(DataError, match="hold no window of context 6 and horizon 3"):
        Windows(table, rows, 6, 3, SCALER)
