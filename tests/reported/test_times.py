"""Times as tables write them.

Text beside a time is not an offset, and 24:00 is the next midnight.

ENTSO-E's intervals (lksy-hash/ai-for-energy, franrolotti/volatility-spillovers), ERCOT's 24:00
(AdeleEleda/Capstone-Project), and epochs of two units (binance/binance-public-data#386).

Times that are off their steps: the suggestions work.

Local midnights in UTC: unit8co/darts#980. Seconds off: Azure/MachineLearningNotebooks#1377,
Nixtla/nixtla#655.
"""

import re
from datetime import timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from foretell.data import regular
from foretell.data.reading import Reading, read
from foretell.timeaxis.timestamps import Offsets, Timestamps
from foretell.timeaxis.zones import offsets_at
from tests.reported.following import flags, follow, written

HOUR = pd.Timedelta(1, "h")
HOURS = pd.date_range("2024-03-14", periods=72, freq="h")


# Formats of intervals with start, end and hour of the end; the time of a row is the start.
INTERVALS = {
    "slashes": "{:%d/%m/%Y %H:%M:%S} - {:%d/%m/%Y %H:%M:%S}",
    "dots": "{:%d.%m.%Y %H:%M} - {:%d.%m.%Y %H:%M}",
    "zones": "{:%d/%m/%Y %H:%M:%S} (CET) - {:%d/%m/%Y %H:%M:%S} (CET)",
    "long dash": "{:%d.%m.%Y %H:%M} \u2013 {:%d.%m.%Y %H:%M}",
    "no spaces": "{:%d.%m.%Y %H:%M}-{:%d.%m.%Y %H:%M}",
    "ISO 8601": "{:%Y-%m-%dT%H:%MZ}/{:%Y-%m-%dT%H:%MZ}",
    "to": "{:%Y-%m-%d %H:%M} to {:%Y-%m-%d %H:%M}",
    "pandas": "({}, {}]",
    "one date": "{:%Y-%m-%d %H:%M} - {:%H:%M}",
    "like an offset": "{:%Y-%m-%d %H:%M}-{:%H:%M}",
    "to 24:00": "{0:%Y-%m-%d %H:%M}-{2:02d}:00",
    "dots like an offset": "{:%d.%m.%Y %H:%M}-{:%H:%M}",
    "hours": "{0:%Y-%m-%d} {0.hour}-{2}",
    "a dash before the clocks": "{0:%d/%m/%Y} - {0:%H:%M} - {1:%H:%M}",
    "a length": "{:%Y-%m-%dT%H:%MZ}/PT1H",
}
# Forms without intervals and offsets.
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
    "a log": "{:%d/%b/%Y:%H:%M:%S}",
    "SAS": "{:%d%b%Y:%H:%M:%S}",
    "pictures": "{:%Y:%m:%d %H:%M:%S}",
    "Oracle": "{:%d-%b-%y %I.%M.%S.000000 %p}",
    "C": "{:%a %b %d %H:%M:%S %Y}",
    "clock first": "{:%H:%M %d/%m/%Y}",
    "p. m.": "{:%d/%m/%Y %I:%M:%S %p}",
}
OFFSETS = {
    "e-mail": "{:%a, %d %b %Y %H:%M:%S} +0100",
    "a server's log": "{:%d/%b/%Y:%H:%M:%S} +0100",
    "a browser": "{:%a %b %d %Y %H:%M:%S} GMT+0100 (Central European Standard Time)",
    "a name in brackets": "{:%Y-%m-%d %H:%M:%S} (UTC+01:00)",
    "Go": "{:%Y-%m-%d %H:%M:%S} +0100 CET",
    "American": "{:%m/%d/%Y %H:%M} +01:00",
    "no space": "{:%Y-%m-%d %H:%M}+01:00",
}
# Times given by their ends: 24:00 is the next midnight.
ENDS = {
    "ISO": "{0:%Y-%m-%d} {2:02d}:00",
    "T and Z": "{0:%Y-%m-%d}T{2:02d}:00:00Z",
    "offset": "{0:%Y-%m-%d}T{2:02d}:00:00+01:00",
    "slashes to 24": "{0:%m/%d/%Y} {2}:00",
    "dots to 24": "{0:%d.%m.%Y} {2:02d}:00:00",
    "digits": "{0:%Y%m%d}{2:02d}",
    "more digits": "{0:%Y%m%d}{2:02d}00",
    "compact": "{0:%Y%m%d}T{2:02d}00",
    "points": "{0:%d/%m/%Y} {2:02d}.00",
}
READ_BY_STARTS = "times are intervals, and are read by their starts"


@pytest.mark.parametrize("name", INTERVALS | CLOCKS | OFFSETS | ENDS)
def test_times_in_any_form(tmp_path: Path, name: str) -> None:
    form = (INTERVALS | CLOCKS | OFFSETS | ENDS)[name]
    texts = [form.format(hour, hour + HOUR, hour.hour + 1) for hour in HOURS]
    if name == "p. m.":
        texts = [text.replace("AM", "a. m.").replace("PM", "p. m.") for text in texts]
    expected = HOURS + HOUR if name in ENDS else HOURS
    for column in ("date",) if name in ENDS else ("date", "MTU (CET/CEST)"):
        panel = read(written(tmp_path, column, texts))
        (table,) = panel.tables
        assert table.timestamps.tolist() == expected.to_pydatetime().tolist()
        if name in INTERVALS:
            assert READ_BY_STARTS in panel.notes
        if name in CLOCKS:
            assert (table.utc_offset, panel.notes) == (None, ())
        if name in OFFSETS:
            assert str(table.utc_offset) == "1:00:00"


def test_offsets_that_change_are_still_offsets(tmp_path: Path) -> None:
    days = [f"2024-03-{day:02d} 00:00-0{4 + (day < 10)}:00" for day in range(1, 31)]
    (table,) = read(written(tmp_path, "date", days)).tables
    assert table.utc_offset.tolist() == [timedelta(hours=-4 - (day < 10)) for day in range(1, 31)]


@pytest.mark.parametrize("form", ["%Y-%m-%d-%H:%M", "%Y-%m-%d-%H%M"])
def test_ambiguous_time_or_offset_is_refused_with_both_formats(tmp_path: Path, form: str) -> None:
    days = pd.date_range("2024-03-01T05:00", periods=40)
    path = written(tmp_path, "date", [f"{day:{form}}" for day in days])
    with pytest.raises(ValueError, match="as %Y-%m-%d%z, an offset from UTC") as raised:
        read(path)
    formats = re.findall(r"--date-format (%\S+)", str(raised.value))
    clock, offset = (read(path, Reading(date_format=form)).tables[0] for form in formats)
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
    texts = [form.format(day.day, names[day.month - 1]) for day in days]
    panel = read(written(tmp_path, "date", texts))
    assert panel.tables[0].timestamps.tolist() == days.to_pydatetime().tolist()


def test_intervals_over_a_change_of_the_clock(tmp_path: Path) -> None:
    hours = pd.date_range("2024-10-25", periods=80, freq="h", tz="Europe/Berlin")

    def label(hour: pd.Timestamp) -> str:
        is_twice = hour.day == 27 and hour.hour == 2
        return f"{hour:%d/%m/%Y %H:%M:%S}" + (f" ({hour.tzname()})" if is_twice else "")

    texts = [f"{label(hour)} - {label(hour + HOUR)}" for hour in hours]
    panel, options = follow(written(tmp_path, "MTU (CET/CEST)", texts))
    assert options == {"time_zone": "Europe/Berlin"}
    assert (len(panel), str(panel.frequency)) == (80, "h")


def test_ambiguous_day_and_month_of_intervals_is_refused_with_both_formats(tmp_path: Path) -> None:
    hours = pd.date_range("2024-03-01", periods=72, freq="h")
    texts = [INTERVALS["slashes"].format(hour, hour + HOUR) for hour in hours]
    path = written(tmp_path, "date", texts)
    with pytest.raises(ValueError, match=r"can be read as %m/%d/%Y.* and as %d/%m/%Y") as raised:
        read(path)
    assert "date_format" in flags(str(raised.value))
    panel = read(path, Reading(date_format="%d/%m/%Y %H:%M:%S"))
    assert panel.tables[0].timestamps.tolist() == hours.to_pydatetime().tolist()


@pytest.mark.parametrize("start", ["2024-03-01 00:00:04", "2027-05-13 00:00:04"])
@pytest.mark.parametrize("unit", ["s", "ms"])
def test_epochs_that_end_in_24_are_not_midnights(tmp_path: Path, start: str, unit: str) -> None:
    times = pd.date_range(start, periods=2000, freq="10s")
    texts = [str(int(time.as_unit(unit).asm8.astype(int))) for time in times]
    (table,) = read(written(tmp_path, "timestamp", texts)).tables
    assert table.timestamps.tolist() == times.to_pydatetime().tolist()


def test_time_after_24_00_is_refused(tmp_path: Path) -> None:
    texts = [f"{hour:%Y-%m-%d %H:%M}" for hour in HOURS]
    texts[5] = "2024-03-14 24:30"
    with pytest.raises(ValueError, match="line 7, column 'date': '2024-03-14 24:30'"):
        read(written(tmp_path, "date", texts))


@pytest.mark.parametrize("units", [("s", "ms"), ("ms", "us"), ("us", "ns")])
def test_epochs_of_two_units_are_read_by_their_sizes(
    tmp_path: Path, units: tuple[str, str]
) -> None:
    texts = [str(int(hour.as_unit(units[i > 40]).asm8.astype(int))) for i, hour in enumerate(HOURS)]
    path = written(tmp_path, "open_time", texts)
    panel = read(path)
    assert panel.tables[0].timestamps.tolist() == HOURS.to_pydatetime().tolist()
    assert panel.notes == (f"the times are epochs of {units[0]} and {units[1]}, by their sizes",)
    message = (
        f"{texts[41]} is no number of {units[0]} but, by its size, of {units[1]}; "
        "leave the format out"
    )
    with pytest.raises(ValueError, match=message):
        read(path, Reading(date_format=units[0]))


SECOND = pd.Timedelta(1, "s")


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Sydney"])
@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
@pytest.mark.parametrize("frequency", ["D", "W-MON", "MS"])
def test_local_midnights_in_utc(tmp_path: Path, zone: str, form: str, frequency: str) -> None:
    local = pd.date_range("2021-08-01", periods=100, freq=frequency, tz=zone)
    panel, options = follow(written(tmp_path, "ds", local.tz_convert("UTC"), form=form))
    assert options == {"time_zone": zone}
    assert str(panel.frequency) == frequency
    (table,) = panel.tables
    assert table.timestamps.tolist() == local.tz_localize(None).to_pydatetime().tolist()


def utc_of(steps: pd.DatetimeIndex, zone: str) -> pd.DatetimeIndex:
    """UTC times of these local steps."""
    return steps.tz_localize(zone).tz_convert("UTC").tz_localize(None)


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
@pytest.mark.parametrize("frequency", ["D", "W-MON", "MS"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Jerusalem"])
def test_a_local_hour_in_utc(tmp_path: Path, form: str, frequency: str, zone: str) -> None:
    local = pd.date_range("2021-08-01T06:00", periods=100, freq=frequency)
    path = written(tmp_path, "ds", utc_of(local, zone), form=form)
    panel, options = follow(path)
    assert (str(panel.frequency), set(options)) == (frequency, {"time_zone"})
    panel = read(path, Reading(time_zone=zone))
    assert panel.tables[0].timestamps.tolist() == local.to_pydatetime().tolist()


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
@pytest.mark.parametrize("frequency", ["6h", "12h", "8h"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_steps_of_several_local_hours_in_utc(
    tmp_path: Path, form: str, frequency: str, zone: str | None
) -> None:
    local = pd.date_range("2021-08-01", periods=1000, freq=frequency)
    path = written(tmp_path, "ds", utc_of(local, "Europe/Berlin"), form=form)
    with pytest.raises(ValueError, match="by the clock of Europe/Berlin: write what") as raised:
        read(path, Reading(time_zone=zone))
    code = str(raised.value).partition("such as by ")[2].removesuffix(" of pandas")
    frame = pd.read_csv(path).rename(columns={"ds": "date"})
    frame["date"] = eval(code, {"pd": pd, "frame": frame})
    frame.to_csv(path, index=False)
    (table,) = read(path).tables
    assert table.timestamps.tolist() == local.to_pydatetime().tolist()


STRAY = {
    "at the end": ("D", 400, "2034-01-01T12:00"),
    "at the beginning": ("D", 0, "1970-01-01T12:00"),
    "within": ("h", 200, "2024-01-09T08:30"),
    "of months": ("MS", 400, "2084-01-03"),
}


@pytest.mark.parametrize("name", STRAY)
def test_stray_row_is_named_and_others_are_not_filled(tmp_path: Path, name: str) -> None:
    frequency, place, stray = STRAY[name]
    steps = pd.date_range("2024-01-01", periods=400, freq=frequency)
    path = written(tmp_path, "ds", steps.insert(place, pd.Timestamp(stray)))
    with pytest.raises(ValueError, match=rf"line {place + 2}, column") as raised:
        read(path)
    assert str(raised.value).endswith("; correct it, or take the row out")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: place + 1] + lines[place + 2 :]))
    assert len(read(path)) == 400


def test_message_counts_the_rows_to_fill_and_suggests_max_gap(tmp_path: Path) -> None:
    times = pd.DatetimeIndex([day + hour * HOUR for day in DAYS[:20] for hour in (6, 9, 16)])
    path = written(tmp_path, "ds", [*times, *(times + pd.Timedelta(days=4000))])
    with pytest.raises(ValueError, match="which are 87% of all: --frequency h") as raised:
        read(path)
    assert "--max-gap 13" in str(raised.value)
    panel, _ = follow(path)
    assert len(panel.tables) == 2


def test_few_time_zones_are_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def noted(moments: Timestamps, zone: ZoneInfo) -> Offsets:
        looked.append(zone.key)
        return offsets_at(moments, zone)

    monkeypatch.setattr(regular, "offsets_at", noted)
    steps = pd.date_range("2018-01-01T05:00", periods=2000).to_list()
    late = [step + HOUR * int(i > 1990) for i, step in enumerate(steps)]
    with pytest.raises(ValueError, match="no step of frequency D"):
        read(written(tmp_path, "ds", late))
    assert len(looked) < 3


def test_message_names_a_hole_that_is_not_filled(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=100)
    path = written(tmp_path, "ds", days.append(days + pd.Timedelta(days=900)))
    with pytest.raises(ValueError, match=r"more than 12 in a row .* split the series"):
        read(path)
    with pytest.raises(ValueError, match=r"ffill fills them$"):
        read(written(tmp_path, "ds", days.delete(7)))


@pytest.mark.parametrize("frequency", ["5s", "15min", "30min", "h", "D"])
@pytest.mark.parametrize("given", [False, True])
def test_times_a_few_seconds_off_are_moved_to_their_steps(
    tmp_path: Path, frequency: str, given: bool
) -> None:
    steps = pd.date_range("2024-01-01T00:05:00", periods=60, freq=frequency)
    step = min(steps[1] - steps[0], 1200 * SECOND)
    late = np.random.default_rng(0).uniform(-0.02, 0.02, 60) * step
    options = {"frequency": frequency} if given else {}
    panel, _ = follow(written(tmp_path, "ds", (steps + late).round("ms").delete([7, 8])), **options)
    (table,) = panel.tables
    assert table.timestamps.tolist() == steps.to_pydatetime().tolist()
    assert f"s off a step of frequency {frequency} are moved there" in panel.notes[0]


@pytest.mark.parametrize(
    ("frequency", "late", "largest"),
    [
        *((each, "jitter", 10) for each in ("min", "5min", "h")),
        ("15min", "one row", 3),
    ],
)
def test_jitter_is_removed_with_the_suggested_frequency(
    tmp_path: Path, frequency: str, late: str, largest: int
) -> None:
    """Times are up to ten seconds off whole minutes or hours, or one row is three seconds off."""
    steps = pd.date_range("2024-01-01", periods=300, freq=frequency)
    seconds = np.random.default_rng(0).integers(-10, 11, 300)
    if late == "one row":
        seconds = 3 * (np.arange(300) == 30)
    panel, options = follow(written(tmp_path, "ds", steps + pd.to_timedelta(seconds, "s")))
    assert options == ({"frequency": "min"} if frequency == "min" else {})
    assert panel.tables[0].timestamps.tolist() == steps.to_pydatetime().tolist()
    assert panel.notes == (
        f"times up to {largest} s off a step of frequency {frequency} are moved there",
    )


def test_two_rows_are_never_moved_to_one_step(tmp_path: Path) -> None:
    steps = pd.date_range("2024-01-01", periods=60, freq="15min").to_list()
    steps[30] = steps[31] - 3 * SECOND
    with pytest.raises(ValueError, match=r"line 32, column 'ds': .*no step of frequency 15min"):
        read(written(tmp_path, "ds", steps))


def test_regular_times_of_an_unusual_spacing_are_unchanged(tmp_path: Path) -> None:
    steps = pd.date_range("2024-01-01", periods=30, freq="1010ms")
    panel = read(written(tmp_path, "ds", steps))
    assert (str(panel.frequency), panel.notes) == ("1010ms", ())


DAYS = pd.date_range("2024-01-01", periods=400)
CALENDARS = {
    "Monday, Wednesday, Friday": DAYS[DAYS.day_of_week.isin([0, 2, 4])],
    "dekads": DAYS[DAYS.day.isin([1, 11, 21])],
    "eight days from every new year": DAYS[(DAYS.day_of_year - 1) % 8 == 0],
    "days of release": [DAYS[30 * i + 7 * i % 5] for i in range(13)],
    "three hours of a day": [
        day + hour * 3600 * SECOND for day in DAYS[:20] for hour in (6, 9, 18)
    ],
}


@pytest.mark.parametrize("name", CALENDARS)
def test_suggested_frequency_fits_all_rows(tmp_path: Path, name: str) -> None:
    times = pd.DatetimeIndex(CALENDARS[name])
    panel, _ = follow(written(tmp_path, "ds", times))
    (table,) = panel.tables
    values = dict(zip(table.timestamps.tolist(), table.values[:, 0].tolist(), strict=True))
    assert [values[time] for time in times.to_pydatetime()] == (np.arange(len(times)) / 4).tolist()


def test_irregular_rows_are_refused(tmp_path: Path) -> None:
    seconds = np.random.default_rng(0).integers(20, 9000, 80).cumsum()
    path = written(tmp_path, "ds", pd.Timestamp("2024-01-01") + pd.to_timedelta(seconds, "s"))
    with pytest.raises(ValueError, match=r"frame\.resample\('h'\)\.mean\(\)"):
        read(path)
    frame = pd.read_csv(path, parse_dates=["ds"], index_col="ds").resample("h").mean()
    frame.to_csv(path)
    panel, options = follow(path)
    assert (len(panel), set(options) <= {"missing"}) == (len(frame), True)
