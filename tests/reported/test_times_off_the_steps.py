"""Times that are off their steps: what is told helps.

Local midnights in UTC: unit8co/darts#980. Seconds off: Azure/MachineLearningNotebooks#1377,
Nixtla/nixtla#655.
"""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.models.data.reading import read
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
