"""Files as they come, a kind of mess each: what is said of them, and the remedy."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

HOURS = [str(np.datetime64("2024-01-01T00:00") + np.timedelta64(i, "h")) for i in range(240)]


class Mess(NamedTuple):
    """A file that cannot be read as it is.

    Attributes:
        content: What it holds.
        place: The row and column that are named.
        remedy: What is said to help.
        options: With these it can be read; none where the file has to be mended.
    """

    content: str
    place: str
    remedy: str
    options: tuple[str, ...] = ()


def _rows(header: str, row: str, *, left_out: range = range(0), **changed: str) -> str:
    lines = [row.format(i=i, time=time) for i, time in enumerate(HOURS) if i not in left_out]
    lines[5] = changed.get("fifth", lines[5])
    return "\n".join([header, *lines]) + "\n"


def _of_berlin() -> str:
    """Naive local time over the end of summer."""
    first = np.datetime64("2024-10-20T00:00")
    walls = [first + np.timedelta64(hour - (hour > 170), "h") for hour in range(240)]
    return "date,a\n" + "".join(f"{wall},{i}\n" for i, wall in enumerate(walls))


MESSES = {
    "missing value": Mess(
        _rows("date,a", "{time},{i}", fifth=f"{HOURS[5]},NA"),
        "line 7, column 'a': no value",
        "--missing interpolate",
        ("--missing=interpolate",),
    ),
    "missing rows": Mess(
        _rows("date,a", "{time},{i}", left_out=range(20, 23)),
        "line 22, column 'date': 2024-01-01T23:00:00: rows are missing before it",
        "--missing ffill",
        ("--missing=ffill",),
    ),
    "text among numbers": Mess(
        _rows("date,a", "{time},{i}", fifth=f"{HOURS[5]},broken"),
        "line 7, column 'a': 'broken' is no finite number",
        "leave the cell empty with --missing interpolate",
    ),
    "days or months": Mess(
        "date,a\n" + "".join(f"{i % 12 + 1}/{i // 12 % 12 + 1}/2024,{i}\n" for i in range(140)),
        "column 'date': dates such as '1/1/2024' can be read as %m/%d/%Y and as %d/%m/%Y",
        "--date-format says which",
    ),
    "decimal marks": Mess(
        _rows("date;a", "{time};1,{i:03d}"),
        "numbers such as '1,000' can be read as 1000 and as 1",
        "--decimal",
        ("--decimal=,",),
    ),
    "several series": Mess(
        _rows("shop,date,a", "x,{time},{i}\ny,{time},{i}"),
        "column 'date' repeats its times: several series, told apart by 'shop'",
        "--id-column shop",
        ("--id-column=shop",),
    ),
    "local clock": Mess(
        _of_berlin(),
        "line 173, column 'date': 2024-10-27T02:00:00 has another row, with other values",
        "--time-zone Europe/Berlin",
        ("--time-zone=Europe/Berlin",),
    ),
    "no times": Mess(
        _rows("a,b", "{i},{i}"),
        "no timestamp column",
        "--time-column names it",
    ),
    "dates of another kind": Mess(
        "date,a\n" + "".join(f"w{i},{i}\n" for i in range(240)),
        "column 'date': 'w0': no timestamp",
        "--date-format",
    ),
    "two rows of a time": Mess(
        _rows("date,a", "{time},{i}", fifth=f"{HOURS[4]},77\n{HOURS[5]},5"),
        "line 7, column 'date': 2024-01-01T04:00:00 has another row, with other values",
        "take one of them out",
    ),
    "cells without a column": Mess(
        _rows("date,a", "{time},{i}", fifth=f"{HOURS[5]},1,800.0"),
        "line 7: 3 cells, and there are 2 columns",
        "quote a cell that holds the separator",
    ),
    "no header": Mess(_rows(f"{HOURS[0]},5", "{time},{i}"), "line 1: no names of columns", "add a"),
    "spreadsheet": Mess("PK\x03\x04", "a spreadsheet", "save it as CSV or Parquet"),
}
