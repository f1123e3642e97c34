from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.gaps import Missing, fill
from foretell.timeaxis.timestamps import Timestamp, day_of_week, parse, render

NAN = np.nan


def at(text: str) -> np.datetime64:
    return np.datetime64(text, "us")


@pytest.mark.parametrize(
    ("text", "wall", "offset"),
    [
        ("2024-03-01", "2024-03-01", None),
        ("2024-03-01T13:00", "2024-03-01T13:00", None),
        ("2024-03-01 13:00:05", "2024-03-01T13:00:05", None),
        ("20240301T130005", "2024-03-01T13:00:05", None),
        ("2024-W09-5", "2024-03-01", None),
        ("2024-03-01T13:00:00.25", "2024-03-01T13:00:00.25", None),
        ("2024-03-01T13:00Z", "2024-03-01T13:00", timedelta(0)),
        ("2024-03-01T13:00+05:30", "2024-03-01T13:00", timedelta(hours=5, minutes=30)),
        ("2024-03-01T13:00-0330", "2024-03-01T13:00", -timedelta(hours=3, minutes=30)),
        ("0001-01-01T00:00:00", "0001-01-01", None),
        ("9999-12-31T23:59:59", "9999-12-31T23:59:59", None),
    ],
)
def test_parse(text: str, wall: str, offset: timedelta | None) -> None:
    assert parse(text) == Timestamp(at(wall), offset)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "2023-02-29",
        "2024-13-01",
        "2024-03-01T25:00",
        "01.03.2024",
        "1709298000",
        "2024-03-01T13:00+25:00",
        "0000-01-01",
        "10000-01-01",
        "2024-03-01T13:00[UTC]",
        "2" * 1000,
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(TimestampError, match="expected an ISO 8601 timestamp") as raised:
        parse(text)
    # A long text is shown in part.
    assert len(str(raised.value)) < 150


@given(
    st.datetimes(
        timezones=st.none()
        | st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
    )
)
def test_rendered_timestamps_parse_back(moment: datetime) -> None:
    wall, offset = at(moment.replace(tzinfo=None).isoformat()), moment.utcoffset()
    [text] = render(np.array([wall]), offset)
    assert parse(text) == Timestamp(wall, offset)
    assert datetime.fromisoformat(text) == moment


@pytest.mark.parametrize(
    ("walls", "offset", "texts"),
    [
        ([], timedelta(hours=1), []),
        (["2024-03-01T13"], None, ["2024-03-01T13:00:00"]),
        (["2024-03-01T13"], timedelta(0), ["2024-03-01T13:00:00+00:00"]),
        (["2024-03-01T13"], timedelta(hours=5, minutes=45), ["2024-03-01T13:00:00+05:45"]),
        (["2024-03-01T13"], -timedelta(hours=9, minutes=30), ["2024-03-01T13:00:00-09:30"]),
        (["2024-03-01T13"], timedelta(minutes=19, seconds=32), ["2024-03-01T13:00:00+00:19:32"]),
        # All texts have the precision that one of them needs.
        (
            ["2024-03-01", "2024-03-01T00:00:00.5"],
            None,
            ["2024-03-01T00:00:00.000000", "2024-03-01T00:00:00.500000"],
        ),
    ],
)
def test_render(walls: list[str], offset: timedelta | None, texts: list[str]) -> None:
    assert render(np.array(walls, "M8[us]"), offset) == texts


@pytest.mark.parametrize("wall", ["0000-12-31T23:59:59.999999", "10000-01-01"])
def test_years_beyond_four_digits(wall: str) -> None:
    with pytest.raises(TimestampError, match="years 1 to 9999"):
        render(np.array([at("2024-01-01"), at(wall)]), None)


@given(st.datetimes())
def test_day_of_week(moment: datetime) -> None:
    assert day_of_week(np.array([at(moment.isoformat())])).tolist() == [moment.weekday()]


@pytest.mark.parametrize(
    ("method", "expected"),
    [("interpolate", [1, 1, 2, 3, 4, 4]), ("ffill", [NAN, 1, 1, 1, 4, 4])],
)
def test_fills_in_place(method: Missing, expected: list[float]) -> None:
    values = np.array([NAN, 1, NAN, NAN, 4, NAN])
    gaps = np.flatnonzero(np.isnan(values))
    fill(values, gaps if method == "interpolate" else gaps[1:], method)
    np.testing.assert_array_equal(values, expected)


def test_leaves_the_gaps_that_are_not_named() -> None:
    values = np.array([1, NAN, 3, NAN, 5])
    fill(values, np.array([3]), "interpolate")
    np.testing.assert_array_equal(values, [1, NAN, 3, 4, 5])
