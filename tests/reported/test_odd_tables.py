"""Odd tables are read or refused in plain words, and never end in a traceback."""

import random
from pathlib import Path

import pytest

from foretell.data.errors import DataError
from foretell.data.reading import Reading, read

ODD = [
    # Dates in a column called as those of hours are.
    "hour,unique_id,y\n"
    + "".join(f"2024-01-{1 + i // 2:02d},{'ab'[i % 2]},{i}\n" for i in range(20)),
    # One word in each of two columns, of which one has commas and one points.
    "ds;a;b\n2024-01-01;0,5;0.25\n2024-01-02;x;0.5\n2024-01-03;0,75;y\n",
    "shop,id,ds,Minute\nB,,,0.25\n00:00,1711929600,,1 000\n",
    "y;year\ntrue;02/27/2024\nFalse;03/01/2024\ntrue;03/01/2024\n",
    "load|ds|_time|timestamp\n99999999999999999999|# x|1708992000|0\n99999999999999999999|x|1|1\n",
    "period,TIME,Date\nNA,,5.754\nx y,,99999999999999999999\n",
    "Minute;year;month\n1.770;-1;NA\n2;99999;5\n",
    "ds,y\n280777401,1\n685474248,2\n",
    "ds,y\n2024-01-01 00:00-24:00,1\n2024-01-02 00:00-25:00,2\n",
    "ds,unique_id,y\n2024-01-01,,1\n2024-01-02,,2\n2024-01-03,,3\n",
    "#\n#,#\n#,#,#\n",
    '"ds,y\n2024-01-01,1\n2024-01-02,2\n',
    # Years of which nanoseconds are out of bounds, and what goes beyond the last.
    "year,second,y\n" + "".join(f"1000,{i / 2},{i}\n" for i in range(5)),
    "year,second,y\n2262,0.5,1\n2262,1e9,2\n2262,1e300,3\n",
    "year,month,day,hour,y\n" + "".join(f"9999,12,31,{i},{i}\n" for i in range(22, 26)),
]


def read_or_refused(path: Path, how: Reading) -> None:
    try:
        message = f"{path}: {len(read(path, how))} rows"
    except DataError as error:
        message = str(error)
    assert message.startswith(f"{path}: ")


@pytest.mark.parametrize("content", ODD)
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_an_odd_table_is_read_or_refused(tmp_path: Path, content: str, zone: str | None) -> None:
    path = tmp_path / "data.csv"
    path.write_text(content)
    read_or_refused(path, Reading(time_zone=zone, missing="ffill"))


def test_commas_and_points_beside_words_are_told_by_cell(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text(ODD[1])
    with pytest.raises(DataError, match="line 4, column 'b': 'y' is no finite number"):
        read(path)


def test_parts_of_a_year_far_from_1970_are_one_time(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_text("year,hour,y\n" + "".join(f"1000,{i / 2},{i}\n" for i in range(5)))
    times = read(path).tables[0].timestamps.astype(str).tolist()
    assert times[:2] == ["1000-01-01T00:00:00.000000", "1000-01-01T00:30:00.000000"]


@pytest.mark.parametrize("unit", ["hour", "minute", "second"])
def test_a_negative_part_is_no_time(tmp_path: Path, unit: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(f"year,{unit},y\n" + "".join(f"2024,{i},{i}\n" for i in range(-1, 5)))
    with pytest.raises(DataError, match=f"line 2, column 'year,{unit}': no time of year, {unit}"):
        read(path)


@pytest.mark.parametrize("minute", ["Minute", "min"])
@pytest.mark.parametrize("form", ["{date},{hour},{i}", "{hour},{date},{i}"])
def test_dates_in_a_column_of_minutes_are_taken_once(
    tmp_path: Path, minute: str, form: str
) -> None:
    hours = [(f"2024-01-{1 + i // 8:02d}", i % 8, i) for i in range(40)]
    # The last hour is there twice.
    rows = [form.format(date=date, hour=hour, i=i) for date, hour, i in [*hours, hours[-1]]]
    names = form.format(date=minute, hour="hour", i="y")
    path = tmp_path / "data.csv"
    path.write_text("\n".join([names, *rows]))
    read_or_refused(path, Reading())


CELLS = (
    *("", "x", "NA", "0", "7", "-1", "0.5", "0,5", "1,500", "1e400", "$3", "true", "#1", "24:00"),
    *("13:00", "HE05", "2024", "2024-03", "2024-03-01", "3/4/2024", "1709251200", "1709251200000"),
    *("2024-03-01 05:00", "2024-03-01T05:00Z", "2024-03-01 05:00-06:00", "2024Q1", "a - b"),
)
NAMES = ("date", "time", "hour", "ds", "year", "month", "y", "id", "shop", "load", "", "#", "2020")


@pytest.mark.parametrize("seed", range(40))
def test_tables_of_anything_are_read_or_refused(tmp_path: Path, seed: int) -> None:
    drawn = random.Random(seed)
    width, count = drawn.randint(2, 5), drawn.choice([1, 3, 12])
    columns = [
        [drawn.choice(CELLS)] * count if drawn.random() < 0.3 else drawn.choices(CELLS, k=count)
        for _ in range(width)
    ]
    rows = [";".join(cells) for cells in zip(*columns, strict=True)]
    path = tmp_path / "data.csv"
    path.write_text("\n".join([";".join(drawn.sample(NAMES, width)), *rows]))
    read_or_refused(path, Reading(missing=drawn.choice(["error", "interpolate"])))
