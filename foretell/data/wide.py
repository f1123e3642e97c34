"""Wide tables, whose columns are times, with several times in each row."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from foretell.bundle.nearness import listed
from foretell.data.apart import has_clock, holds_times, repeats
from foretell.data.cells import Cells
from foretell.data.clock import read_clock
from foretell.data.errors import DataError
from foretell.data.months import month_of
from foretell.data.numbers import is_text
from foretell.data.parts import find_parts, part_called
from foretell.data.timestamps import looks_like_timestamp

_YEAR = re.compile(r"[Xx]?((?:1[6-9]|20)\d\d)(?: \[YR\d{4}\])?")
_COUNTED = re.compile(
    r"(?i)(d|day|t|w|wk|week|m|month|q|h|he|hr|hour|step|p|sp|period|value)?[ _]?(\d{1,4})"
)
# Aliases of pandas for the counted units.
_UNITS = {"w": "W", "m": "M", "q": "Q", "h": "h"}
_HOURLY = ("", "h", "he", "hr", "hour", "p", "sp", "period")
_DAILY = ("", "d", "day", "value")
_CLOCK = re.compile(r"\d\d?[:.h]\d\d(?:[:.]\d\d)?.*")
_DAY = np.timedelta64(1, "D")
# Least number of columns that are times, of days in a month, and of hours in a day.
_LEAST, _DAYS, _HOURS = 3, 28, 24
# Number of names that are tried first.
_SAMPLE = 20
_MONTHS, _QUARTERS = 12, ("q1", "q2", "q3", "q4")


class _Wide(NamedTuple):
    """Columns that are times.

    Attributes:
        kind: Kind of the columns, such as `years`.
        times: Names of the columns.
        name: Name of the long column; `ds` if it holds whole times.
        beside: Columns that form one time with it.
    """

    kind: str
    times: list[str]
    name: str = "ds"
    beside: tuple[str, ...] = ()


def may_be_times(names: Sequence[str]) -> bool:
    """Whether the names include years, or numbers that count from 0 or 1."""
    numbers = [int(name) for name in names[1:] if name.isdigit()]
    steps = set(np.diff(numbers).tolist())
    counts = steps == {1} or steps in ({30, 70}, {100})
    is_first = bool(numbers) and (numbers[0] in (0, 1, 30, 100) or _YEAR.fullmatch(names[-1]))
    return len(numbers) >= _LEAST and counts and bool(is_first)


def refuse_wide(cells: Cells) -> None:
    """Refuse a wide table; the message has code that makes a long one.

    Args:
        cells: The table.

    Raises:
        DataError: the table is wide.
    """
    frame = cells.frame
    found = _find(frame)
    if found is None:
        return
    kind, times, name, beside = found
    others = [each for each in frame.columns if each and each not in times]
    code = f"import pandas as pd; {cells.read}"
    if cells.read.startswith("read_table"):
        code = f"from foretell.data.files import read_table; {code}"
    if name == "ds":
        what = "are times, and each row is a series"
        code += f".melt({others!r}, var_name='ds', value_name='y').dropna(subset='y')"
    else:
        is_panel = repeats(frame, beside)
        kept = [each for each in others if each in beside or is_panel or is_text(frame[each])]
        shown = "times of the day" if kind == "parts" else kind
        what = f"are {shown} of {listed(beside)}, and each row holds several times"
        code += f".melt({kept!r}, {times!r}, {name!r}, 'y').dropna(subset='y')"
    remark = ""
    if kind == "steps":
        match = _COUNTED.fullmatch(times[0])
        unit = _UNITS.get(((match and match[1]) or "")[:1].lower(), "D")
        remark = "; the one with number 1 stands for 2024-01-01"
        code += (
            ".assign(ds=lambda t: pd.PeriodIndex.from_ordinals(t.ds.str.extract('([0-9]+)$')[0]"
            f".astype(int) + pd.Period('2024-01-01', {unit!r}).ordinal - 1, freq={unit!r})"
            ".to_timestamp())"
        )
    elif kind in ("years", "parts", "days"):
        digits = "([0-9]{4})" if kind == "years" else "([0-9]+)$"
        code += f".assign({name}=lambda t: t[{name!r}].astype(str).str.extract({digits!r})[0])"
    code += ".to_csv('long.csv', index=False)"
    raise DataError(
        f"{cells.problems.name}: the columns {times[0]!r} to {times[-1]!r} {what}; expected a row "
        f"for each time: python -c {shlex.quote(code)} writes them to long.csv{remark}; if they "
        "are channels, name them with --channels"
    )


def _maybe_times(names: list[str]) -> list[str]:
    """Names that are times; empty if a sample has none, since each test is slow."""
    sample = names[:: max(1, len(names) // _SAMPLE)]
    if not any(looks_like_timestamp(name) for name in sample):
        return []
    return [name for name in names if looks_like_timestamp(name)]


def _find(frame: pd.DataFrame) -> _Wide | None:
    names = [str(name) for name in frame.columns]
    years = [name for name in names if _YEAR.fullmatch(name)]
    counted = [
        name for name in names if (match := _COUNTED.fullmatch(name)) and match[1] is not None
    ]
    whole = [name for name in _maybe_times(names) if name not in years]
    if _are_most(whole, names):
        return _Wide("times", whole)
    if (found := _parts_of_times(frame, names)) is not None:
        return found
    kind, times = max((("years", years), ("steps", counted)), key=lambda each: len(each[1]))
    others = [name for name in names if name not in times]
    if not others or not _are_most(times, names) or _hold_times(frame, others):
        return None
    months = [name for name in others if part_called(name) in ("month", "quarter")]
    if kind == "years" and months:
        return _Wide(kind, times, "year", (months[0],))
    return _Wide(kind, times)


def _are_most(found: Sequence[str], names: Sequence[str]) -> bool:
    return len(found) >= _LEAST and 2 * len(found) > len(names)


def _hold_times(frame: pd.DataFrame, names: Sequence[str]) -> bool:
    return bool(find_parts(frame, names)) or any(
        holds_times(frame[name], named=False)
        or (part_called(name) == "year" and not is_text(frame[name]))
        or name.lower() in ("date", "time", "timestamp", "datetime", "ds")
        for name in names
    )


def _parts_of_times(frame: pd.DataFrame, names: list[str]) -> _Wide | None:
    """Columns that form times with another column: months, hours, days or quarters."""
    months = [name for name in names if not name.isdigit() and month_of(name)]
    year = next((name for name in names if part_called(name) == "year"), None)
    numbers = [name for name in names if name.isdigit()]
    if year is not None and not any(holds_times(frame[name], named=False) for name in names):
        month = next((name for name in names if part_called(name) == "month"), None)
        days = [name for name in names if _is_counted(name, _DAILY)]
        if month is not None and _counts(days, _DAYS, 31):
            return _Wide("days", days, "day", (year, month))
        if month is None and {month_of(name) for name in months} == set(range(1, _MONTHS + 1)):
            return _Wide("months", months, "month", (year,))
        if month is None and _counts(numbers, _MONTHS, _MONTHS):
            return _Wide("months", numbers, "month", (year,))
        quarters = [name for name in names if name.lower() in _QUARTERS]
        if len(quarters) == len(_QUARTERS) and frame[year].is_unique:
            return _Wide("quarters", quarters, "quarter", (year,))
    hours = [name for name in names if _CLOCK.fullmatch(name) or _is_counted(name, _HOURLY)]
    if len(hours) < _HOURS or not _cover_a_day(hours):
        return None
    date = next((name for name in names if name not in hours and _are_days(frame[name])), None)
    if date is None:
        return None
    match = _COUNTED.fullmatch(hours[0])
    is_number = match is not None and (match[1] or "").lower()[:1] != "h"
    return _Wide("parts" if is_number else "times of the day", hours, "time", (date,))


def _is_counted(name: str, before: Sequence[str]) -> bool:
    match = _COUNTED.fullmatch(name)
    return match is not None and (match[1] or "").lower() in before


def _counts(names: Sequence[str], least: int, most: int) -> bool:
    """Whether the numbers at the ends of names count from 1."""
    numbers = [int(found[0]) for name in names if (found := re.search(r"\d+$", name))]
    return least <= len(names) <= most and numbers == list(range(1, len(names) + 1))


def _cover_a_day(names: Sequence[str]) -> bool:
    """Whether names are times of a whole day at equal steps."""
    plain = [name if _CLOCK.fullmatch(name) else re.sub(r"^\D+", "", name) for name in names]
    spans = read_clock(pd.Series(plain))
    if spans is None or np.isnat(spans).any():
        return False
    steps = np.unique(np.diff(np.unique(spans)))
    return len(steps) == 1 and bool(len(np.unique(spans)) * steps[0] == _DAY)


def _are_days(cells: pd.Series) -> bool:
    named = str(cells.name).lower() in ("date", "day", "ds", "time")
    return holds_times(cells, named=named) and not has_clock(cells)
