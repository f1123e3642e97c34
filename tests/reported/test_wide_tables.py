"""Tables with several times in a row are refused with what makes long ones; ordinary ones are read.

NASA's GISTEMP (`Year,Jan,...,Dec`), load profiles (`date,HE1,...,HE24`), Met Office (`Year,Month,1`
to `31`), gauges numbered by station (`2001`), flows (`Q1`).
"""

import re
import shlex
from contextlib import chdir
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from foretell.data.reading import Reading, read, read_frame
from tests.reported.following import follow

HOURS = pd.date_range("2024-02-20", periods=40 * 24, freq="h")
HALVES = pd.date_range("2024-02-20", periods=40 * 48, freq="30min")
MONTHS = pd.date_range("1990-01-01", periods=240, freq="MS")
QUARTERS = pd.date_range("1990-01-01", periods=120, freq="QS")
DAYS = pd.date_range("2023-01-01", "2024-12-31")
HOUR = pd.Timedelta(1, "h")
# Times, the names of columns of the first rows, and what columns are called.
Wide = tuple[pd.DatetimeIndex, list[tuple[str, str]], list[str]]


def dates(times: pd.DatetimeIndex) -> list[tuple[str, str]]:
    return [("date", f"{day:%Y-%m-%d}") for day in times.normalize().unique()]


def years(times: pd.DatetimeIndex, name: str = "Year") -> list[tuple[str, str]]:
    return [(name, str(year)) for year in times.year.unique()]


GERMAN = "Januar Februar M\u00e4rz April Mai Juni Juli August September Oktober November Dezember"
WIDE: dict[str, Wide] = {
    "months": (MONTHS, years(MONTHS), [f"{month:%b}" for month in MONTHS[:12]]),
    "MONTHS": (MONTHS, years(MONTHS, "YEAR"), [f"{month:%B}".upper() for month in MONTHS[:12]]),
    "Monate": (MONTHS, years(MONTHS, "Jahr"), GERMAN.split()),
    "numbers of months": (MONTHS, years(MONTHS), [str(month) for month in range(1, 13)]),
    "quarters": (QUARTERS, years(QUARTERS), ["Q1", "Q2", "Q3", "Q4"]),
    "clocks": (HOURS, dates(HOURS), [f"{hour:02d}:00" for hour in range(24)]),
    "ends of hours": (HOURS + HOUR, dates(HOURS), [f"{hour:02d}:00" for hour in range(1, 25)]),
    "HE": (HOURS + HOUR, dates(HOURS), [f"HE{hour}" for hour in range(1, 25)]),
    "h": (HOURS + HOUR, dates(HOURS), [f"h{hour}" for hour in range(1, 25)]),
    "Hour": (HOURS, dates(HOURS), [f"Hour {hour}" for hour in range(24)]),
    "0 to 23": (HOURS, dates(HOURS), [str(hour) for hour in range(24)]),
    "1 to 24": (HOURS + HOUR, dates(HOURS), [str(hour) for hour in range(1, 25)]),
    "0000 to 2300": (HOURS, dates(HOURS), [f"{hour:02d}00" for hour in range(24)]),
    "0000 to 2330": (HALVES, dates(HALVES), [f"{i // 2:02d}{i % 2 * 30:02d}" for i in range(48)]),
    "P": (HALVES + HOUR / 2, dates(HALVES), [f"P{i}" for i in range(1, 49)]),
}


def written(folder: Path, wide: Wide, more: str = "") -> Path:
    _, rows, names = wide
    lines = [f"{rows[0][0]},{','.join(names)}"]
    for i, (_, row) in enumerate(rows):
        values = range(i * len(names), (i + 1) * len(names))
        lines.append(f"{row},{','.join(str(value / 4) for value in values)}")
    if more:
        lines = [f"{line},{more if i == 0 else i / 8}" for i, line in enumerate(lines)]
    path = folder / "data.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def made_long(path: Path) -> Path:
    """Run the command that is told."""
    with pytest.raises(ValueError, match="expected a row for each time") as raised:
        read(path)
    code = told(str(raised.value))
    with chdir(path.parent):
        exec(code, {})
    return path.parent / "long.csv"


def told(message: str) -> str:
    """The Python of the command that a message names."""
    command = re.search(r"python -c ('.*') writes them to long\.csv", message)
    assert command
    return shlex.split(command[1])[0]


@pytest.mark.parametrize("more", ["", "Annual"])
@pytest.mark.parametrize("name", WIDE)
def test_the_command_that_is_told_gives_each_time_a_row(
    tmp_path: Path, name: str, more: str
) -> None:
    path = written(tmp_path, WIDE[name], more)
    (table,) = read(made_long(path)).tables
    assert table.timestamps.tolist() == WIDE[name][0].to_pydatetime().tolist()
    assert (table.channels, table.values[:, 0].tolist()) == (
        ("y",),
        (np.arange(len(table)) / 4).tolist(),
    )
    names = tuple(WIDE[name][2][:2])
    assert read(path, Reading(channels=names)).channels == names


def test_days_of_months(tmp_path: Path) -> None:
    frame = pd.DataFrame({"Year": DAYS.year, "Month": DAYS.month, "day": DAYS.day, "y": DAYS.day})
    wide = frame.pivot(index=["Year", "Month"], columns="day", values="y")
    wide.to_csv(tmp_path / "data.csv")
    (table,) = read(made_long(tmp_path / "data.csv")).tables
    assert table.timestamps.tolist() == DAYS.to_pydatetime().tolist()
    assert table.values[:, 0].tolist() == DAYS.day.tolist()


def test_hours_of_several_places(tmp_path: Path) -> None:
    frame = pd.DataFrame({"date": HOURS.strftime("%Y-%m-%d"), "hour": HOURS.hour + 1})
    both = pd.concat([frame.assign(site=site, y=np.arange(len(frame)) + site) for site in (7, 8)])
    wide = both.pivot(index=["site", "date"], columns="hour", values="y")
    wide.add_prefix("h").to_csv(tmp_path / "data.csv")
    panel, options = follow(made_long(tmp_path / "data.csv"))
    assert options == {"id_column": "site"}
    assert [table.values[0, 0] for table in panel.tables] == [7, 8]
    assert list(panel.rows.values()) == [960, 960]


def test_a_frame_whose_names_are_numbers() -> None:
    frame = pd.DataFrame(np.arange(240).reshape(20, 12), columns=range(1, 13))
    frame.insert(0, "Year", range(1990, 2010))
    with pytest.raises(ValueError, match="are months of Year") as raised:
        read_frame(frame)
    code = told(str(raised.value)).removesuffix(".to_csv('long.csv', index=False)")
    made: dict[str, object] = {"frame": frame}
    exec(code.replace("frame.rename", "made = frame.rename"), made)
    (table,) = read_frame(made["made"]).tables  # type: ignore[arg-type]
    assert table.timestamps.tolist() == MONTHS.to_pydatetime().tolist()


@pytest.mark.parametrize("unit", ["h", "d", "w", "m"])
def test_steps_are_those_of_their_names(tmp_path: Path, unit: str) -> None:
    names = [f"{unit}{i}" for i in range(1, 31)]
    values = ",".join(str(i) for i in range(30))
    (tmp_path / "data.csv").write_text(f"id,{','.join(names)}\na,{values}\nb,{values}\n")
    panel = read(made_long(tmp_path / "data.csv"))
    assert list(panel.rows.values()) == [30, 30]
    assert str(panel.frequency) == {"h": "h", "d": "D", "w": "W-MON", "m": "MS"}[unit]
    assert panel.tables[0].timestamps[0] == np.datetime64("2024-01-01")


@pytest.mark.parametrize(
    "names",
    [
        ["t1", "t2", "t3"],
        ["Q1", "Q2", "Q3", "Q4"],
        ["d_1", "d_2", "d_3"],
        ["2001", "2002", "2003"],
        ["2001", "2007"],
        ["101", "102", "205"],
        [f"h{i}" for i in range(1, 25)],
        [f"{i:02d}:00" for i in range(24)],
        ["May", "June", "April"],
        [f"x{i}" for i in range(1, 25)],
    ],
)
def test_channels_of_any_name_beside_times(tmp_path: Path, names: list[str]) -> None:
    values = np.arange(50 * len(names)).reshape(50, -1) / 4
    frame = pd.DataFrame(values, columns=names)
    frame.insert(0, "date", HOURS[:50])
    frame.to_csv(tmp_path / "data.csv", index=False)
    panel = read(tmp_path / "data.csv")
    assert panel.channels == tuple(names)
    np.testing.assert_array_equal(panel.tables[0].values, values)


def test_data_without_names_is_still_told(tmp_path: Path) -> None:
    rows = "".join(f"2024-01-{day:02d},{day * 7},{day * 3}\n" for day in range(1, 31))
    (tmp_path / "data.csv").write_text(rows)
    with pytest.raises(ValueError, match="no names of columns but data"):
        read(tmp_path / "data.csv")
