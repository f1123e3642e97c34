"""Splits of a panel, and the time that they cover."""

from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from pydantic import ValidationError

from foretell.commands.train import command
from foretell.data.coverage import covered, learnable
from foretell.data.errors import DataError
from foretell.data.panel import Panel
from foretell.data.source import DataSource
from foretell.data.splits import Span, Spans, Split, Splits, overlap
from foretell.models.checkpoint import load_info
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.data.panels import DAY, panel, table

CONTEXT, HORIZON = 4, 2
START = np.datetime64("2024-01-01", "D")


def test_by_fraction_is_the_published_split() -> None:
    split = Splits.by_fraction().cut(panel(x=1001), context=96, horizon=24)
    assert split == Split(
        train=((0, 0, 700),), validation=((0, 700 - 96, 801),), test=((0, 801 - 96, 1001),)
    )


def test_ett_ranges() -> None:
    split = Splits.ett_hourly().cut(panel(x=17420), context=336, horizon=96)
    assert split[:3] == (
        ((0, 0, 8640),),
        ((0, 8640 - 336, 11520),),
        ((0, 11520 - 336, 14400),),
    )
    assert Splits.ett_minute().ends_of(69680, 96) == (34560, 46080, 57600)
    with pytest.raises(DataError, match="test split: it ends at row 14400, the data has 14399"):
        Splits.ett_hourly().cut(panel(x=14399), context=96, horizon=96)


@pytest.mark.parametrize("fractions", [(0.7, 0.1, 0.1), (0.8, 0.0, 0.2), (1.2, -0.4, 0.2)])
def test_invalid_fractions_are_refused(fractions: tuple[float, float, float]) -> None:
    with pytest.raises(DataError, match="add up to 1"):
        Splits.by_fraction(*fractions)


@pytest.mark.parametrize("text", ["{}", '{"fractions": [0.7, 0.1, 0.2], "ends": [1, 2, 3]}'])
def test_invalid_fields_are_refused(text: str) -> None:
    with pytest.raises(ValidationError):
        Splits.model_validate_json(text)


def test_validation_and_test_are_at_least_a_horizon() -> None:
    assert Splits.by_fraction().ends_of(60, 7) == (41, 48, 60)
    assert Splits.by_fraction().ends_of(60, 20) == (20, 40, 60)
    split = Splits.by_fraction().cut(panel(x=90), context=30, horizon=20)
    assert split[:3] == (((0, 0, 50),), ((0, 20, 70),), ((0, 40, 90),))
    with pytest.raises(DataError, match="train split: rows 0 to 49 hold no window of context 30"):
        Splits.by_fraction().cut(panel(x=89), context=30, horizon=20)


def test_every_series_is_cut_by_its_own_rows() -> None:
    # One window has 25 rows, one in each of three parts 35. Shorter series are only trained on
    # or left out.
    lengths = panel(x=100, y=34, z=24, w=25, v=1000)
    split = Splits.by_fraction().cut(lengths, context=20, horizon=5)
    assert (split.trained_on_only, split.left_out) == (("y", "w"), ("z",))
    assert split.train == ((0, 0, 70), (1, 0, 34), (3, 0, 25), (4, 0, 700))
    assert split.validation == ((0, 50, 80), (4, 680, 800))
    assert split.test == ((0, 60, 100), (4, 780, 1000))


def test_a_series_is_cut_across_its_holes() -> None:
    tables = (table(60, "x"), table(40, "x", "2024-02-01"), table(100, "y"))
    split = Splits.by_fraction().cut(Panel(tables), context=10, horizon=5)
    assert split.train == ((0, 0, 60), (1, 0, 10), (2, 0, 70))
    # Rows before the hole are not context of rows after it.
    assert split.validation == ((1, 0, 20), (2, 60, 80))
    late = Splits(ends=(55, 75, 100)).cut(Panel(tables[:2]), context=10, horizon=5)
    assert late.validation == ((0, 45, 60), (1, 0, 15))
    assert late.test == ((1, 5, 40),)


HOLES = Panel(tuple(table(12, "x", f"2024-0{month}-01") for month in (1, 2, 3)))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (panel(x=20, y=22), "train split: 2 series, the longest of 22 rows, hold no"),
        (panel(x=20, y=30), "validation split: 2 series, the longest of 30 rows, hold"),
        (HOLES, "train split: 3 stretches between holes hold no window"),
    ],
)
def test_a_part_without_any_window_is_refused(data: Panel, message: str) -> None:
    with pytest.raises(DataError, match=message):
        Splits.by_fraction().cut(data, context=20, horizon=5)


def days(**periods: tuple[int, int]) -> Panel:
    """Series by name, from the first to the last day, counted from 1 January 2024."""
    return Panel(
        tuple(
            table(last - first, name, str(START + first), 1, DAY)
            for name, (first, last) in periods.items()
        )
    )


def cut(data: Panel, date: str) -> Split:
    splits = Splits(fractions=(0.7, 0.1, 0.2), cut_at=datetime.fromisoformat(date))
    return splits.cut(data, CONTEXT, HORIZON)


def periods(data: Panel, spans: Spans, skip: int = 0) -> dict[str, tuple[int, int]]:
    """First and last day of the spans of each series."""
    found = {}
    for place, start, end in spans:
        times = (data.tables[place].timestamps[start + skip : end] - START) // np.timedelta64(
            1, "D"
        )
        if len(times):
            found[data.tables[place].series] = (times[0].astype(int), times[-1].astype(int))
    return found


DATA = days(early=(0, 100), late=(60, 160), before=(0, 40), after=(115, 160), tiny=(0, 3))


def test_all_series_are_cut_at_one_date() -> None:
    split = cut(DATA, "2024-04-20")
    test = (datetime(2024, 4, 20) - datetime(2024, 1, 1)).days
    learnt, chosen = periods(DATA, split.train), periods(DATA, split.validation, CONTEXT)
    assert set(learnt) == {"early", "late", "before", "tiny"}
    assert max(last for _, last in learnt.values()) < min(first for first, _ in chosen.values())
    assert periods(DATA, split.test, CONTEXT) == {
        "late": (test, 159),
        "after": (115 + CONTEXT, 159),
    }
    assert split.trained_on_only == ("early", "before")
    assert split.left_out == ("tiny",)
    assert overlap(DATA, split, CONTEXT) is None


def test_the_date_that_is_suggested_ends_an_overlap() -> None:
    data = days(a=(0, 100), b=(60, 160), c=(60, 160))
    date = overlap(data, Splits.by_fraction().cut(data, CONTEXT, HORIZON), CONTEXT)
    assert date is not None
    assert overlap(data, cut(data, str(date)), CONTEXT) is None
    same = days(a=(0, 100), b=(0, 100))
    assert overlap(same, Splits.by_fraction().cut(same, CONTEXT, HORIZON), CONTEXT) is None


@pytest.mark.parametrize(
    ("date", "message"),
    [
        *(
            (date, "does not lie within the data, which are from 2024-01-01")
            for date in ("2023-12-31", "2024-01-01", "2025-01-01")
        ),
        ("2024-06-08", r"test split: .*or cut at another date than 2024-06-08"),
    ],
)
def test_a_date_that_leaves_no_window_is_refused(date: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        cut(DATA, date)


def test_train_cuts_at_a_date_and_stores_it(tmp_path: Path) -> None:
    data = days(a=(0, 100), b=(60, 160))
    lines = ["series,ds,y"]
    for one in data.tables:
        pairs = zip(one.timestamps.astype("M8[D]"), one.values[:, 0], strict=True)
        lines += [f"{one.series},{time},{value}" for time, value in pairs]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    options = ["--arch=dlinear", f"--context={CONTEXT}", f"--horizon={HORIZON}", "--epochs=1"]
    given = [f"--data={tmp_path / 'data.csv'}", *options]
    plain = CliRunner().invoke(command, [*given, f"--out={tmp_path / 'a'}"])
    assert plain.exit_code == 0, plain.output
    assert plain.output.count("training rows of one series lie after test rows of another") == 2
    dated = CliRunner().invoke(command, [*given, "--cut-at=2024-03-20", f"--out={tmp_path / 'b'}"])
    assert dated.exit_code == 0, dated.output
    assert "lie after test rows" not in dated.output
    info = load_info(tmp_path / "b")
    source = DataSource.recorded(info.data)
    assert source is not None
    again = source.read(info.channels, DAY)
    split = source.splits.cut(again, CONTEXT, HORIZON)
    assert periods(again, split.test, CONTEXT)["b"][0] == 79


def test_time_covered_by_several_series_counts_once() -> None:
    late = table(30, "late", "2024-01-02T00:00")
    data = Panel((table(40, "a"), late, table(10, "b", "2024-03-01"), table(5, "c")))
    spans = [Span(0, 0, 40), Span(1, 0, 30), Span(2, 0, 10), Span(3, 1, 5)]
    # The second table has the hours 24 to 53; the last one is within the first.
    assert covered(data, spans) == timedelta(hours=53 + 9)
    assert covered(data, spans[::-1]) == timedelta(hours=53 + 9)
    assert covered(data, [Span(0, 10, 15)]) == timedelta(hours=4)


@pytest.mark.parametrize(
    ("frequency", "days", "features"),
    [
        ("h", 1, ()),
        ("h", 10, ("hour",)),
        ("h", 28, ("hour", "day_of_week")),
        ("h", 255, ("hour", "day_of_week")),
        ("h", 360, ("hour", "day_of_week", "day_of_month")),
        ("h", 730, ("hour", "day_of_week", "day_of_month", "day_of_year")),
        ("MS", 690, ()),
        ("MS", 720, ("month",)),
    ],
)
def test_calendar_leaves_features_of_few_cycles_out(
    frequency: str, days: int, features: tuple[str, ...]
) -> None:
    calendar = Calendar.for_frequency(Frequency.parse(frequency), "scaled")
    found = learnable(calendar, timedelta(days=days))
    assert (found.features if found else ()) == features
