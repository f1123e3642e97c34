from datetime import datetime, timedelta, timezone

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.timeaxis.errors import TimestampError
from foretell.timeaxis.timestamps import Timestamp, day_of_week, parse, render


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
    ],
)
def test_parse_refuses(text: str) -> None:
    with pytest.raises(TimestampError, match="expected an ISO 8601 timestamp"):
        parse(text)


def test_a_refused_text_is_shown_in_part() -> None:
    with pytest.raises(TimestampError) as raised:
        parse("2" * 10_000)
    assert len(str(raised.value)) < 150


@given(
    st.datetimes(
        timezones=st.none()
        | st.integers(-86399, 86399).map(lambda seconds: timezone(timedelta(seconds=seconds)))
    )
)
def test_what_is_written_reads_back(moment: datetime) -> None:
    wall, offset = at(moment.replace(tzinfo=None).isoformat()), moment.utcoffset()
    [text] = render(np.array([wall]), offset)
    assert parse(text) == Timestamp(wall, offset)
    assert datetime.fromisoformat(text) == moment


@pytest.mark.parametrize(
    ("offset", "text"),
    [
        (None, "2024-03-01T13:00:00"),
        (timedelta(0), "2024-03-01T13:00:00+00:00"),
        (timedelta(hours=5, minutes=45), "2024-03-01T13:00:00+05:45"),
        (-timedelta(hours=9, minutes=30), "2024-03-01T13:00:00-09:30"),
        (timedelta(minutes=19, seconds=32), "2024-03-01T13:00:00+00:19:32"),
    ],
)
def test_render(offset: timedelta | None, text: str) -> None:
    assert render(np.array([at("2024-03-01T13:00")]), offset) == [text]


def test_all_texts_have_the_precision_that_one_of_them_needs() -> None:
    walls = np.array([at("2024-03-01"), at("2024-03-01T00:00:00.5")])
    assert render(walls, None) == ["2024-03-01T00:00:00.000000", "2024-03-01T00:00:00.500000"]


def test_render_nothing() -> None:
    assert render(np.array([], "M8[us]"), timedelta(hours=1)) == []


@pytest.mark.parametrize("wall", ["0000-12-31T23:59:59.999999", "10000-01-01"])
def test_years_beyond_four_digits(wall: str) -> None:
    with pytest.raises(TimestampError, match="years 1 to 9999"):
        render(np.array([at("2024-01-01"), at(wall)]), None)


@given(st.datetimes())
def test_day_of_week(moment: datetime) -> None:
    assert day_of_week(np.array([at(moment.isoformat())])).tolist() == [moment.weekday()]
