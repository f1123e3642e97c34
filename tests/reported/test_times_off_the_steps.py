"""Times that are off their steps: what is told helps.

Local midnights in UTC: unit8co/darts#980. Seconds off: Azure/MachineLearningNotebooks#1377,
Nixtla/nixtla#655.
"""

from pathlib import Path
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest

from foretell.data import regular
from foretell.data.reading import Reading, read
from foretell.timeaxis.timestamps import Offsets, Timestamps
from foretell.timeaxis.zones import offsets_at
from tests.reported.following import follow

SECOND, HOUR = pd.Timedelta(1, "s"), pd.Timedelta(1, "h")


def written(folder: Path, times: object, form: str | None = None) -> Path:
    path = folder / "data.csv"
    frame = pd.DataFrame({"ds": list(times)})  # type: ignore[call-overload]
    frame["y"] = np.arange(len(frame)) / 4
    frame.to_csv(path, index=False, date_format=form)
    return path


@pytest.mark.parametrize("zone", ["America/New_York", "Europe/Berlin", "Australia/Sydney"])
@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
@pytest.mark.parametrize("frequency", ["D", "W-MON", "MS"])
def test_local_midnights_in_utc(tmp_path: Path, zone: str, form: str, frequency: str) -> None:
    local = pd.date_range("2021-08-01", periods=100, freq=frequency, tz=zone)
    panel, options = follow(written(tmp_path, local.tz_convert("UTC"), form))
    assert options == {"time_zone": zone}
    assert str(panel.frequency) == frequency
    (table,) = panel.tables
    assert table.timestamps.tolist() == local.tz_localize(None).to_pydatetime().tolist()


def utc_of(steps: pd.DatetimeIndex, zone: str) -> pd.DatetimeIndex:
    """What UTC shows when a clock that changes shows these steps."""
    return steps.tz_localize(zone).tz_convert("UTC").tz_localize(None)


@pytest.mark.parametrize("form", ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%SZ"])
@pytest.mark.parametrize("frequency", ["D", "W-MON", "MS"])
@pytest.mark.parametrize("zone", ["Europe/Berlin", "Asia/Jerusalem"])
def test_a_local_hour_in_utc(tmp_path: Path, form: str, frequency: str, zone: str) -> None:
    local = pd.date_range("2021-08-01T06:00", periods=100, freq=frequency)
    path = written(tmp_path, utc_of(local, zone), form)
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
    path = written(tmp_path, utc_of(local, "Europe/Berlin"), form)
    with pytest.raises(ValueError, match="by the clock of Europe/Berlin: write what") as told:
        read(path, Reading(time_zone=zone))
    code = str(told.value).partition("such as by ")[2].removesuffix(" of pandas")
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
def test_a_stray_row_is_named_and_no_reason_to_fill_all_others(tmp_path: Path, name: str) -> None:
    frequency, place, stray = STRAY[name]
    steps = pd.date_range("2024-01-01", periods=400, freq=frequency)
    path = written(tmp_path, steps.insert(place, pd.Timestamp(stray)))
    with pytest.raises(ValueError, match=rf"line {place + 2}, column") as told:
        read(path)
    assert str(told.value).endswith("; correct it, or take the row out")
    lines = path.read_text().splitlines()
    path.write_text("\n".join(lines[: place + 1] + lines[place + 2 :]))
    assert len(read(path)) == 400


def test_what_would_be_filled_is_told_and_holes_stay(tmp_path: Path) -> None:
    times = pd.DatetimeIndex([day + hour * HOUR for day in DAYS[:20] for hour in (6, 9, 16)])
    path = written(tmp_path, [*times, *(times + pd.Timedelta(days=4000))])
    with pytest.raises(ValueError, match="which are 87% of all: --frequency h") as told:
        read(path)
    assert "--max-gap 13" in str(told.value)
    panel, _ = follow(path)
    assert len(panel.tables) == 2


def test_few_clocks_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []

    def noted(moments: Timestamps, zone: ZoneInfo) -> Offsets:
        looked.append(zone.key)
        return offsets_at(moments, zone)

    monkeypatch.setattr(regular, "offsets_at", noted)
    steps = pd.date_range("2018-01-01T05:00", periods=2000).to_list()
    late = [step + HOUR * int(i > 1990) for i, step in enumerate(steps)]
    with pytest.raises(ValueError, match="no step of frequency D"):
        read(written(tmp_path, late))
    assert len(looked) < 3


def test_a_hole_that_is_not_filled_is_told(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=100)
    path = written(tmp_path, days.append(days + pd.Timedelta(days=900)))
    with pytest.raises(ValueError, match=r"more than 12 in a row .* split the series"):
        read(path)
    with pytest.raises(ValueError, match=r"ffill fills them$"):
        read(written(tmp_path, days.delete(7)))


@pytest.mark.parametrize("frequency", ["5s", "15min", "30min", "h", "D"])
@pytest.mark.parametrize("given", [False, True])
def test_times_seconds_off_are_moved_to_their_steps(
    tmp_path: Path, frequency: str, given: bool
) -> None:
    steps = pd.date_range("2024-01-01T00:05:00", periods=60, freq=frequency)
    step = min(steps[1] - steps[0], 1200 * SECOND)
    late = np.random.default_rng(0).uniform(-0.02, 0.02, 60) * step
    options = {"frequency": frequency} if given else {}
    panel, _ = follow(written(tmp_path, (steps + late).round("ms").delete([7, 8])), **options)
    (table,) = panel.tables
    assert table.timestamps.tolist() == steps.to_pydatetime().tolist()
    assert f"s off a step of frequency {frequency} are moved there" in panel.notes[0]


@pytest.mark.parametrize("frequency", ["min", "5min", "h"])
def test_jitter_is_moved_to_the_frequency_that_is_told(tmp_path: Path, frequency: str) -> None:
    """Ten seconds about whole minutes and hours."""
    steps = pd.date_range("2024-01-01", periods=300, freq=frequency)
    off = pd.to_timedelta(np.random.default_rng(0).integers(-10, 11, 300), "s")
    panel, options = follow(written(tmp_path, steps + off))
    assert options == ({"frequency": "min"} if frequency == "min" else {})
    assert panel.tables[0].timestamps.tolist() == steps.to_pydatetime().tolist()
    assert panel.notes == (f"times up to 10 s off a step of frequency {frequency} are moved there",)


def test_one_late_row_is_moved(tmp_path: Path) -> None:
    steps = pd.date_range("2024-01-01", periods=60, freq="15min").to_list()
    steps[30] += 3 * SECOND
    panel = read(written(tmp_path, steps))
    assert (len(panel), str(panel.frequency)) == (60, "15min")
    assert panel.notes == ("times up to 3 s off a step of frequency 15min are moved there",)


def test_two_rows_are_never_moved_to_one_step(tmp_path: Path) -> None:
    steps = pd.date_range("2024-01-01", periods=60, freq="15min").to_list()
    steps[30] = steps[31] - 3 * SECOND
    with pytest.raises(ValueError, match=r"line 32, column 'ds': .*no step of frequency 15min"):
        read(written(tmp_path, steps))


def test_regular_times_of_an_unusual_spacing_stay(tmp_path: Path) -> None:
    steps = pd.date_range("2024-01-01", periods=30, freq="1010ms")
    panel = read(written(tmp_path, steps))
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
def test_the_remedy_has_steps_on_which_all_rows_lie(tmp_path: Path, name: str) -> None:
    times = pd.DatetimeIndex(CALENDARS[name])
    panel, _ = follow(written(tmp_path, times))
    (table,) = panel.tables
    values = dict(zip(table.timestamps.tolist(), table.values[:, 0].tolist(), strict=True))
    assert [values[time] for time in times.to_pydatetime()] == (np.arange(len(times)) / 4).tolist()


def test_rows_at_any_time_are_to_be_made_regular(tmp_path: Path) -> None:
    apart = np.random.default_rng(0).integers(20, 9000, 80).cumsum()
    path = written(tmp_path, pd.Timestamp("2024-01-01") + pd.to_timedelta(apart, "s"))
    with pytest.raises(ValueError, match=r"frame\.resample\('h'\)\.mean\(\)"):
        read(path)
    frame = pd.read_csv(path, parse_dates=["ds"], index_col="ds").resample("h").mean()
    frame.to_csv(path)
    panel, options = follow(path)
    assert (len(panel), set(options) <= {"missing"}) == (len(frame), True)
