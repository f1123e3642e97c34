from datetime import date

import numpy as np
import pandas as pd
import pytest

from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.data.parts import assemble
from foretell.data.timestamps import looks_like_timestamp, read_timestamps


def read(cells: list[object], date_format: str | None = None, dtype: object = "str") -> Moments:
    return read_timestamps(pd.Series(cells, dtype=dtype), date_format)


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        (["2024-03-01", "2024-03-02"], "2024-03-02"),
        (["2024-03-01 00:00:00", "2024-03-01 00:00:01.5"], "2024-03-01T00:00:01.5"),
        (["2024-03-01 00:00", "2024-03-02"], "2024-03-02"),
        (["1990/1/1 0:00", "1990/1/2 0:00"], "1990-01-02"),
        (["3/30/2024", "3/31/2024"], "2024-03-31"),
        (["30/3/2024 5:00", "31/3/2024 6:00"], "2024-03-31T06:00"),
        (["1/12/2024", "1/13/2024"], "2024-01-13"),
        (["1/12/24 1:30 PM", "1/13/24 2:30 PM"], "2024-01-13T14:30"),
        (["30.3.2024", "31.3.2024"], "2024-03-31"),
        (["Jan 1 2000", "Feb 1 2000"], "2000-02-01"),
        (["January 1, 2000", "May 1, 2000"], "2000-05-01"),
        (["1-Jan-2000", "2-Feb-2000"], "2000-02-02"),
        (["2006-01", "2006-02"], "2006-02-01"),
        (["Jan 2006", "Feb 2006"], "2006-02-01"),
        (["1959Q1", "1959Q2"], "1959-04-01"),
        (["1959-Q3", "1959-Q4"], "1959-10-01"),
        (["Q1 1959", "Q2 1959"], "1959-04-01"),
        (["1959", "1960"], "1960-01-01"),
        (["20240301", "20240302"], "2024-03-02"),
        (["2024-03-01T00", "2024-03-01T01"], "2024-03-01T01"),
        (["2024-W05-1", "2024-W06-1"], "2024-02-05"),
        (["2024-W05", "2024-W06"], "2024-02-05"),
        (["2024-3-1", "2024-3-2"], "2024-03-02"),
        (["2024.03.01 05:00", "2024.03.01 06:00"], "2024-03-01T06"),
        (["Mar-1-2024", "Mar-2-2024"], "2024-03-02"),
        (["20240301T0500", "20240301T0600"], "2024-03-01T06"),
    ],
)
def test_usual_forms_are_read(cells: list[object], last: str) -> None:
    moments = read(cells)
    assert moments.walls[-1] == np.datetime64(last)
    assert moments.walls.dtype == np.dtype("M8[us]")
    assert (moments.offsets, moments.zone, moments.wrong) == (None, None, [])


@pytest.mark.parametrize(
    ("cells", "last"),
    [
        ([1959, 1960], "1960-01-01"),
        ([1959.0, 1960.0], "1960-01-01"),
        ([200601, 200602], "2006-02-01"),
        ([20240301, 20240302], "2024-03-02"),
        ([2024030123, 2024030200], "2024-03-02"),
        ([202403012345, 202403020000], "2024-03-02"),
        ([20240301235959, 20240302000000], "2024-03-02"),
    ],
)
def test_reads_whole_numbers(cells: list[object], last: str) -> None:
    moments = read(cells, dtype=None)
    assert moments.walls[-1] == np.datetime64(last)
    assert moments.offsets is None


@pytest.mark.parametrize(("unit", "ticks"), [("s", 1), ("ms", 10**3), ("us", 10**6), ("ns", 10**9)])
def test_epochs_are_moments_in_utc(unit: str, ticks: int) -> None:
    for date_format in (None, unit):
        moments = read([1_577_836_800 * ticks, 1_577_836_801 * ticks], date_format, None)
        assert moments.walls[-1] == np.datetime64("2020-01-01T00:00:01")
        assert moments.offsets is not None
        assert not moments.offsets.astype(int).any()


def test_reads_columns_that_have_a_type() -> None:
    naive = pd.Series(pd.date_range("2024-03-30", periods=3, freq="D"))
    expected = naive.to_numpy("M8[us]")
    for cells in (naive, naive.dt.to_period("D"), pd.Series([date(2024, 3, d) for d in (30, 31)])):
        moments = read_timestamps(cells)
        np.testing.assert_array_equal(moments.walls, expected[: len(cells)])
        assert moments.zone is None
    moments = read_timestamps(naive.dt.tz_localize("Europe/Berlin"))
    np.testing.assert_array_equal(moments.walls, expected)
    assert moments.zone == "Europe/Berlin"
    assert moments.offsets is not None
    assert (moments.offsets / np.timedelta64(1, "h")).tolist() == [1, 1, 2]


def test_keeps_the_offsets_that_were_written() -> None:
    moments = read(["2024-03-31T01:00+01:00", "2024-03-31T03:00+02:00", "2024-03-31T02:00Z"])
    assert moments.offsets is not None
    assert (moments.offsets / np.timedelta64(1, "h")).tolist() == [1, 2, 0]
    assert moments.walls[1] == np.datetime64("2024-03-31T03:00")


@pytest.mark.parametrize(
    ("cells", "date_format"),
    [
        (["1|2|2024", "1|3|2024"], "%d|%m|%Y"),
        (["1/2/2024", "1/3/2024"], "%d/%m/%Y"),
        (["1/2/2024 +0000", "1/3/2024 +0000"], "%d/%m/%Y %z"),
    ],
)
def test_given_format_is_used(cells: list[object], date_format: str) -> None:
    moments = read(cells, date_format)
    assert moments.walls.tolist() == np.array(["2024-02-01", "2024-03-01"], "M8[us]").tolist()
    assert (moments.offsets is None) == ("%z" not in date_format)


def test_invalid_format_is_refused() -> None:
    with pytest.raises(DataError, match="--date-format %Q"):
        read(["1959"], "%Q")


def test_ambiguous_day_and_month_are_refused() -> None:
    with pytest.raises(DataError, match="can be read as %m/%d/%Y and as %d/%m/%Y; --date-format"):
        read(["1/2/2024", "1/3/2024"])


@pytest.mark.parametrize(
    ("cells", "rows", "message"),
    [
        (["2024-03-01", "never", "2024-02-30"], [1, 2], "'never': no timestamp like '2024-03-01'"),
        (["2024-03-01T00:00Z", "2024-03-01T01:00"], [1], "no UTC offset, and others have"),
        (["2024-03-01", "", "NA"], [1, 2], "no timestamp; take the row out"),
        (["1/30/2024", "1/31/2024", "32/1/2024"], [2], "'32/1/2024': .* of the form %m/%d/%Y"),
        (["1959Q1", "1959Q5"], [1], "no timestamp like '1959Q1'"),
        (["soon", "later"], [0, 1], "'soon': no timestamp; --date-format says"),
        (["17", "18"], [0, 1], "numbers such as 17 are no timestamps; --date-format"),
    ],
)
def test_names_all_wrong_rows(cells: list[object], rows: list[int], message: str) -> None:
    moments = read(cells)
    ((problem, found),) = moments.wrong
    assert found.tolist() == rows
    assert pd.Series([problem]).str.contains(message).all(), problem
    assert np.isnat(moments.walls[found]).all() or "offset" in problem


def test_epochs_that_look_like_compact_times_are_epochs() -> None:
    hours = [2_030_000_400 + 3600 * hour for hour in range(48)]
    assert read(hours, dtype=None).walls[-1] == np.datetime64(hours[-1], "s")


def test_repeated_wrong_cells_are_reported_together() -> None:
    moments = read(["2024-03-01", "x", "2024-03-01", "x"])
    assert moments.wrong[0][1].tolist() == [1, 3]
    assert moments.walls[0] == moments.walls[2]


@pytest.mark.parametrize(
    ("columns", "last"),
    [
        ({"year": [1959.0, 1959.0], "quarter": [3.0, 4.0]}, "1959-10-01"),
        ({"Year": [2020, 2021], "Month": [12, 1]}, "2021-01-01"),
        ({"year": [2020, 2020], "month": [2, 3], "day": [9, 8], "hour": [5, 7]}, "2020-03-08T07"),
        ({"day": ["2020-01-01", "2020-01-01"], "at": ["00:00", "01:00"]}, "2020-01-01T01"),
        ({"day": ["2020-01-01", "2020-01-01"], "HE": [1, 24]}, "2020-01-02"),
        ({"day": [pd.Timestamp("2020-01-01")] * 2, "hour": [0.0, 1.0]}, "2020-01-01T01"),
    ],
)
def test_columns_are_assembled_to_times(columns: dict[str, list[object]], last: str) -> None:
    moments = assemble(pd.DataFrame(columns))
    assert moments.walls[-1] == np.datetime64(last)
    assert not moments.wrong


def test_columns_without_times_are_refused() -> None:
    with pytest.raises(DataError, match="expected columns of year, quarter"):
        assemble(pd.DataFrame({"a": [1], "b": [2], "c": [3]}))
    ((problem, rows),) = assemble(pd.DataFrame({"year": [2020, 2020], "month": [12, 13]})).wrong
    assert problem == "no time of year, month; correct it, or take the row out"
    assert rows.tolist() == [1]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        *(("2024-03-01", True), ("1/2/2024", True), ("1959Q1", True), ("Jan 1 2000", True)),
        *(("20240301", False), ("5.8", False), ("x", False), ("sun 5", False), ("May", False)),
    ],
)
def test_texts_that_look_like_timestamps(cell: str, expected: bool) -> None:
    assert looks_like_timestamp(cell) is expected
