"""What is written beside a time is no offset, and 24:00 is the next midnight.

ENTSO-E's intervals (lksy-hash/ai-for-energy, franrolotti/volatility-spillovers), ERCOT's 24:00
(AdeleEleda/Capstone-Project), and epochs of two units (binance/binance-public-data#386).
"""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.reading import Reading, read
from tests.reported.following import flags, follow

HOUR = pd.Timedelta(1, "h")
HOURS = pd.date_range("2024-03-14", periods=72, freq="h")


def written(folder: Path, texts: list[str], name: str = "MTU (CET/CEST)") -> Path:
    path = folder / "data.csv"
    pd.DataFrame({name: texts, "load": np.arange(len(texts)) / 4}).to_csv(path, index=False)
    return path


INTERVALS: dict[str, Callable[[pd.Timestamp, pd.Timestamp], str]] = {
    "slashes": lambda a, b: f"{a:%d/%m/%Y %H:%M:%S} - {b:%d/%m/%Y %H:%M:%S}",
    "dots": lambda a, b: f"{a:%d.%m.%Y %H:%M} - {b:%d.%m.%Y %H:%M}",
    "zones": lambda a, b: f"{a:%d/%m/%Y %H:%M:%S} (CET) - {b:%d/%m/%Y %H:%M:%S} (CET)",
    "long dash": lambda a, b: f"{a:%d.%m.%Y %H:%M} \u2013 {b:%d.%m.%Y %H:%M}",
    "no spaces": lambda a, b: f"{a:%d.%m.%Y %H:%M}-{b:%d.%m.%Y %H:%M}",
    "ISO 8601": lambda a, b: f"{a:%Y-%m-%dT%H:%MZ}/{b:%Y-%m-%dT%H:%MZ}",
    "to": lambda a, b: f"{a:%Y-%m-%d %H:%M} to {b:%Y-%m-%d %H:%M}",
    "pandas": lambda a, b: f"({a}, {b}]",
    "one date": lambda a, b: f"{a:%Y-%m-%d %H:%M} - {b:%H:%M}",
    "like an offset": lambda a, b: f"{a:%Y-%m-%d %H:%M}-{b:%H:%M}",
    "to 24:00": lambda a, _: f"{a:%Y-%m-%d %H:%M}-{a.hour + 1:02d}:00",
    "dots like an offset": lambda a, b: f"{a:%d.%m.%Y %H:%M}-{b:%H:%M}",
    "hours": lambda a, _: f"{a:%Y-%m-%d} {a.hour}-{a.hour + 1}",
    "a dash before the clocks": lambda a, b: f"{a:%d/%m/%Y} - {a:%H:%M} - {b:%H:%M}",
    "a length": lambda a, _: f"{a:%Y-%m-%dT%H:%MZ}/PT1H",
}


@pytest.mark.parametrize("name", INTERVALS)
@pytest.mark.parametrize("column", ["date", "MTU (CET/CEST)"])
def test_intervals_are_read_by_their_starts(tmp_path: Path, name: str, column: str) -> None:
    texts = [INTERVALS[name](hour, hour + HOUR) for hour in HOURS]
    panel = read(written(tmp_path, texts, column))
    assert panel.tables[0].timestamps.tolist() == HOURS.to_pydatetime().tolist()
    assert "times are intervals, and are read by their starts" in panel.notes


CLOCKS = {
    "a comma, AM and PM": "{:%m/%d/%Y, %I:%M:%S %p}",
    "a month, AM and PM": "{:%B %d, %Y %I:%M %p}",
    "at": "{:%B %d, %Y at %I:%M %p}",
    "a dash": "{:%d/%m/%Y - %H:%M}",
    "a long dash": "{:%d.%m.%Y \u2013 %H:%M}",
    "German comma": "{:%d.%m.%Y, %H:%M}",
    "Uhr": "{:%d.%m.%Y %H:%M Uhr}",
    "um Uhr": "{:%d.%m.%Y um %H Uhr}",
    "an offset's look": "{:%Y-%m-%d-%H:%M}",
    "an offset's hours": "{:%Y-%m-%d-%H}",
    "an offset's digits": "{:%Y-%m-%d-%H%M}",
    "hyphens": "{:%Y-%m-%d-%H-%M-%S}",
    "hyphens after T": "{:%Y-%m-%dT%H-%M}",
    "underscore": "{:%Y-%m-%d_%H:%M}",
    "slash": "{:%Y-%m-%d/%H:%M}",
    "digits and a colon": "{:%Y%m%d:%H%M}",
    "digits and a hyphen": "{:%Y%m%d-%H%M%S}",
    "a server's log": "{:%d/%b/%Y:%H:%M:%S}",
    "SAS": "{:%d%b%Y:%H:%M:%S}",
    "pictures": "{:%Y:%m:%d %H:%M:%S}",
    "Oracle": "{:%d-%b-%y %I.%M.%S.000000 %p}",
    "C": "{:%a %b %d %H:%M:%S %Y}",
    "clock first": "{:%H:%M %d/%m/%Y}",
    "p. m.": "{:%d/%m/%Y %I:%M:%S %p}",
}


@pytest.mark.parametrize("name", CLOCKS)
@pytest.mark.parametrize("column", ["date", "MTU (CET/CEST)"])
def test_a_date_and_a_clock_are_no_interval_and_no_offset(
    tmp_path: Path, name: str, column: str
) -> None:
    texts = [CLOCKS[name].format(hour) for hour in HOURS]
    if name == "p. m.":
        texts = [text.replace("AM", "a. m.").replace("PM", "p. m.") for text in texts]
    panel = read(written(tmp_path, texts, column))
    assert panel.tables[0].timestamps.tolist() == HOURS.to_pydatetime().tolist()
    assert (panel.tables[0].utc_offset, panel.notes) == (None, ())


OFFSETS = {
    "e-mail": "{:%a, %d %b %Y %H:%M:%S} +0100",
    "a server's log": "{:%d/%b/%Y:%H:%M:%S} +0100",
    "a browser": "{:%a %b %d %Y %H:%M:%S} GMT+0100 (Central European Standard Time)",
    "a name in brackets": "{:%Y-%m-%d %H:%M:%S} (UTC+01:00)",
    "Go": "{:%Y-%m-%d %H:%M:%S} +0100 CET",
    "American": "{:%m/%d/%Y %H:%M} +01:00",
}


@pytest.mark.parametrize("name", OFFSETS)
def test_offsets_in_other_forms(tmp_path: Path, name: str) -> None:
    (table,) = read(written(tmp_path, [OFFSETS[name].format(hour) for hour in HOURS])).tables
    assert table.timestamps.tolist() == HOURS.to_pydatetime().tolist()
    assert str(table.utc_offset) == "1:00:00"


@pytest.mark.parametrize("form", ["%Y-%m-%d-%H:%M", "%Y-%m-%d-%H%M"])
def test_a_time_of_every_day_that_may_be_an_offset_is_asked_about(
    tmp_path: Path, form: str
) -> None:
    days = pd.date_range("2024-03-01T05:00", periods=40)
    path = written(tmp_path, [f"{day:{form}}" for day in days])
    with pytest.raises(ValueError, match="as %Y-%m-%d%z, an offset from UTC") as raised:
        read(path)
    told = re.findall(r"--date-format (%\S+)", str(raised.value))
    clock, offset = (read(path, Reading(date_format=form)).tables[0] for form in told)
    assert clock.timestamps.tolist() == days.to_pydatetime().tolist()
    assert offset.timestamps.tolist() == days.normalize().to_pydatetime().tolist()
    assert str(offset.utc_offset) == "-1 day, 19:00:00"


MONTHS = {
    "German": ("{}. {} 2024", ["Januar", "Februar", "M\u00e4rz", "April"]),
    "short German": ("{:02d}. {} 2024", ["Jan.", "Feb.", "M\u00e4rz", "Apr."]),
    "French": ("{} {} 2024", ["janv.", "f\u00e9vr.", "mars", "avr."]),
    "Spanish": ("{} de {} de 2024", ["enero", "febrero", "marzo", "abril"]),
    "short Spanish": ("{:02d}-{}-24", ["ene", "feb", "mar", "abr"]),
    "Dutch": ("{} {} 2024", ["januari", "februari", "maart", "april"]),
}


@pytest.mark.parametrize("name", MONTHS)
def test_months_in_other_languages(tmp_path: Path, name: str) -> None:
    days = pd.date_range("2024-01-01", periods=120)
    form, names = MONTHS[name]
    panel = read(written(tmp_path, [form.format(day.day, names[day.month - 1]) for day in days]))
    assert panel.tables[0].timestamps.tolist() == days.to_pydatetime().tolist()


def test_offsets_are_still_offsets(tmp_path: Path) -> None:
    (table,) = read(written(tmp_path, [f"{hour:%Y-%m-%d %H:%M}-05:00" for hour in HOURS])).tables
    assert str(table.utc_offset) == "-1 day, 19:00:00"
    days = [f"2024-03-{day:02d} 00:00-0{4 + (day < 10)}:00" for day in range(1, 31)]
    assert len(read(written(tmp_path, days)).tables[0]) == 30


def test_intervals_over_a_change_of_the_clock(tmp_path: Path) -> None:
    hours = pd.date_range("2024-10-25", periods=80, freq="h", tz="Europe/Berlin")

    def label(hour: pd.Timestamp) -> str:
        is_twice = hour.day == 27 and hour.hour == 2
        return f"{hour:%d/%m/%Y %H:%M:%S}" + (f" ({hour.tzname()})" if is_twice else "")

    texts = [f"{label(hour)} - {label(hour + HOUR)}" for hour in hours]
    panel, options = follow(written(tmp_path, texts))
    assert options == {"time_zone": "Europe/Berlin"}
    assert (len(panel), str(panel.frequency)) == (80, "h")


def test_days_and_months_of_intervals_are_asked_about(tmp_path: Path) -> None:
    hours = pd.date_range("2024-03-01", periods=72, freq="h")
    texts = [INTERVALS["slashes"](hour, hour + HOUR) for hour in hours]
    path = written(tmp_path, texts)
    with pytest.raises(ValueError, match=r"can be read as %m/%d/%Y.* and as %d/%m/%Y") as raised:
        read(path)
    assert "date_format" in flags(str(raised.value))
    panel = read(path, Reading(date_format="%d/%m/%Y %H:%M:%S"))
    assert panel.tables[0].timestamps.tolist() == hours.to_pydatetime().tolist()


ENDS = {
    "ISO": "{:%Y-%m-%d} {:02d}:00",
    "T and Z": "{:%Y-%m-%d}T{:02d}:00:00Z",
    "offset": "{:%Y-%m-%d}T{:02d}:00:00+01:00",
    "American": "{:%m/%d/%Y} {}:00",
    "dots": "{:%d.%m.%Y} {:02d}:00:00",
    "digits": "{:%Y%m%d}{:02d}",
    "more digits": "{:%Y%m%d}{:02d}00",
    "compact": "{:%Y%m%d}T{:02d}00",
    "points": "{:%d/%m/%Y} {:02d}.00",
}


@pytest.mark.parametrize("name", ENDS)
def test_24_is_the_next_midnight(tmp_path: Path, name: str) -> None:
    texts = [ENDS[name].format(hour, hour.hour + 1) for hour in HOURS]
    (table,) = read(written(tmp_path, texts, "date")).tables
    assert table.timestamps.tolist() == (HOURS + HOUR).to_pydatetime().tolist()


@pytest.mark.parametrize("start", ["2024-03-01 00:00:04", "2027-05-13 00:00:04"])
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_epochs_that_end_in_24_are_no_midnights(tmp_path: Path, start: str, unit: str) -> None:
    times = pd.date_range(start, periods=2000, freq="10s")
    texts = [str(int(time.as_unit(unit).asm8.astype(int))) for time in times]
    (table,) = read(written(tmp_path, texts, "timestamp")).tables
    assert table.timestamps.tolist() == times.to_pydatetime().tolist()


def test_what_is_later_than_24_is_no_time(tmp_path: Path) -> None:
    texts = [f"{hour:%Y-%m-%d %H:%M}" for hour in HOURS]
    texts[5] = "2024-03-14 24:30"
    with pytest.raises(ValueError, match="line 7, column 'date': '2024-03-14 24:30'"):
        read(written(tmp_path, texts, "date"))


@pytest.mark.parametrize("units", [("s", "ms"), ("ms", "us"), ("us", "ns")])
def test_epochs_of_two_units_are_read_by_their_sizes(
    tmp_path: Path, units: tuple[str, str]
) -> None:
    texts = [str(int(hour.as_unit(units[i > 40]).asm8.astype(int))) for i, hour in enumerate(HOURS)]
    path = written(tmp_path, texts, "open_time")
    panel = read(path)
    assert panel.tables[0].timestamps.tolist() == HOURS.to_pydatetime().tolist()
    assert panel.notes == (f"the times are epochs of {units[0]} and {units[1]}, by their sizes",)
    message = f"is no number of {units[0]} but, by its size, of {units[1]}; leave the format out"
    with pytest.raises(ValueError, match=message):
        read(path, Reading(date_format=units[0]))
