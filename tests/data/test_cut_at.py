"""Series of different periods, cut at one date."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from foretell.commands.train import command
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.source import DataSource
from foretell.data.splits import Spans, Split, Splits, overlap
from foretell.data.table import Table
from foretell.models.checkpoint import load_info
from foretell.timeaxis.frequency import Frequency
from foretell.training.config import TrainingConfig

DAY = np.timedelta64(1, "D")
START = np.datetime64("2024-01-01", "us")
CONTEXT, HORIZON = 4, 2


def panel(**periods: tuple[int, int]) -> Panel:
    """Series from a day to another of 2024, by name."""
    frequency = Frequency.parse("D")
    tables = []
    for name, (first, last) in periods.items():
        times = START + np.arange(first, last) * DAY
        values = np.sin(np.arange(first, last) / 3)[:, None]
        tables.append(Table(times, values, ("y",), frequency, series=name))
    return Panel(tuple(tables))


def cut(data: Panel, date: str) -> Split:
    splits = Splits(fractions=(0.7, 0.1, 0.2), cut_at=datetime.fromisoformat(date))
    return splits.cut(data, CONTEXT, HORIZON)


def days(data: Panel, spans: Spans, skip: int = 0) -> dict[str, tuple[int, int]]:
    """Of each series, the first and the last day of its spans."""
    found = {}
    for table, start, end in spans:
        times = (data.tables[table].timestamps[start + skip : end] - START) // DAY
        if not len(times):
            continue
        found[data.tables[table].series] = (int(times[0]), int(times[-1]))
    return found


DATA = panel(early=(0, 100), late=(60, 160), before=(0, 40), after=(115, 160), tiny=(0, 3))


def test_all_series_are_cut_at_one_date() -> None:
    split = cut(DATA, "2024-04-20")
    test = (datetime(2024, 4, 20) - datetime(2024, 1, 1)).days
    learnt, chosen = days(DATA, split.train), days(DATA, split.validation, CONTEXT)
    assert set(learnt) == {"early", "late", "before", "tiny"}
    assert max(last for _, last in learnt.values()) < min(first for first, _ in chosen.values())
    assert days(DATA, split.test, CONTEXT) == {
        "late": (test, 159),
        "after": (115 + CONTEXT, 159),
    }
    assert split.trained_on_only == ("early", "before")
    assert split.left_out == ("tiny",)
    assert overlap(DATA, split, CONTEXT) is None


def test_the_overlap_of_shares_is_told_and_the_date_that_is_told_helps() -> None:
    data = panel(a=(0, 100), b=(60, 160), c=(60, 160))
    split = Splits.by_fraction().cut(data, CONTEXT, HORIZON)
    date = overlap(data, split, CONTEXT)
    assert date is not None
    again = cut(data, str(date))
    assert overlap(data, again, CONTEXT) is None


def test_series_of_one_period_do_not_overlap() -> None:
    data = panel(a=(0, 100), b=(0, 100))
    assert overlap(data, Splits.by_fraction().cut(data, CONTEXT, HORIZON), CONTEXT) is None
    assert overlap(panel(a=(0, 100)), cut(panel(a=(0, 100)), "2024-03-20"), CONTEXT) is None


@pytest.mark.parametrize("date", ["2023-12-31", "2024-01-01", "2025-01-01"])
def test_a_date_outside_of_the_data(date: str) -> None:
    with pytest.raises(DataError, match="does not lie within the data, which are from 2024-01-01"):
        cut(DATA, date)


def test_a_date_that_leaves_no_window() -> None:
    with pytest.raises(DataError, match=r"test split: .*or cut at another date than 2024-06-08"):
        cut(DATA, "2024-06-08")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"cut_at": "1.3.2024"}, "expected a date such as 2024-03-01"),
        ({"cut_at": "2024-03-01T00:00+01:00"}, "without an offset"),
        ({"cut_at": 2024}, "without an offset"),
        ({"cut_at": "2024-03-01", "splits": "ett-hourly"}, "has to be three fractions"),
    ],
)
def test_what_is_no_date(given: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        TrainingConfig.model_validate({"arch": "dlinear", "context": 4, "horizon": 2} | given)


def test_the_command_says_and_stores_it(tmp_path: Path) -> None:
    data = panel(a=(0, 100), b=(60, 160))
    lines = ["series,ds,y"]
    for table in data.tables:
        pairs = zip(table.timestamps.astype("M8[D]"), table.values[:, 0], strict=True)
        lines += [f"{table.series},{time},{value}" for time, value in pairs]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    options = ["--arch=dlinear", f"--context={CONTEXT}", f"--horizon={HORIZON}", "--epochs=1"]
    given = [f"--data={tmp_path / 'data.csv'}", *options]
    told = CliRunner().invoke(command, [*given, f"--out={tmp_path / 'a'}"])
    assert told.exit_code == 0, told.output
    assert told.output.count("training rows of one series lie after test rows of another") == 2
    cut = CliRunner().invoke(command, [*given, "--cut-at=2024-03-20", f"--out={tmp_path / 'b'}"])
    assert cut.exit_code == 0, cut.output
    assert "lie after test rows" not in cut.output
    info = load_info(tmp_path / "b")
    source = DataSource.recorded(info.data)
    assert source is not None
    again = source.read(info.channels, data.frequency)
    split = source.splits.cut(again, CONTEXT, HORIZON)
    assert days(again, split.test, CONTEXT)["b"][0] == 79
    assert info.test is not None
    assert info.test.windows == sum(span.windows(CONTEXT, HORIZON) for span in split.test)
