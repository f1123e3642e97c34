"""Times in several columns: parts of a date, or a date and a time of the day."""

from __future__ import annotations

import re
from collections.abc import Sequence
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.clock import is_clock, part_counted, read_clock
from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.data.months import month_of
from foretell.data.numbers import is_text, read_numbers
from foretell.data.timestamps import read_timestamps
from foretell.data.written import OFFSET
from foretell.timeaxis.timestamps import Timestamps

# Names of columns for each part, in lower case; the first name identifies the part.
_NAMES = (
    (
        "year",
        "yr",
        "yyyy",
        "yy",
        "y",
        "jahr",
        "annee",
        "ann\u00e9e",
        "a\u00f1o",
        "ano",
        "anno",
        "jaar",
    ),
    ("quarter", "qtr", "quartal", "trimestre", "trimester"),
    ("month", "mon", "mo", "mm", "mnth", "m", "monat", "mois", "mes", "mese", "maand"),
    ("week", "wk", "kw", "woche", "semaine", "semana", "isoweek"),
    ("day", "dy", "dd", "d", "tag", "jour", "dia", "d\u00eda", "giorno", "dag"),
    ("day of year", "doy", "dayofyear", "yday", "jday", "julian day", "ddd", "day"),
    ("hour", "hours", "hr", "hh", "h", "stunde", "heure", "hora", "ora", "uur"),
    ("minute", "minutes", "min", "mi", "mn", "mm"),
    ("second", "seconds", "sec", "ss"),
)
PARTS = tuple(names[0] for names in _NAMES)
# Names that mean a part in any table.
_PLAIN = {"year", "quarter", "month", "day", "hour", "minute", "second"}
_PART = {"hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_AN_HOUR = np.timedelta64(_PART["hour"], "us")
# Hours, minutes and seconds may be counted through a year.
_YEAR = 366 * 24 * _PART["hour"]
_NO_YEAR = np.datetime64("10000-01-01", "us")
_RANGES = {
    "year": (1, 9999),
    "quarter": (1, 4),
    "month": (1, 12),
    "week": (0, 53),
    "day": (1, 31),
    "day of year": (1, 366),
    **{name: (0, _YEAR // unit) for name, unit in _PART.items()},
}
# M01, Q1, KW 5, HE01, 1Q.
_NUMBERED = r"^[^\W\d_]{0,4}[ .-]?(\d{1,4})\.?[^\W\d_]{0,2}$"
_PERIODS = {12: "month", 4: "quarter"}


def find_parts(frame: pd.DataFrame, names: Sequence[str]) -> dict[str, str]:
    """The columns of each part of a date; empty if they do not make a date together."""
    found: dict[str, str] = {}
    for name in names:
        called = _normalised(name)
        for part, *others in _NAMES:
            # `min` may mean minimum, so minutes and seconds need a column of hours before.
            may_be = part not in ("minute", "second") or "hour" in found
            is_so = called == part or (called in others and may_be)
            if is_so and part not in found and _holds(frame[name], part):
                found[part] = name
                break
    if "year" not in found:
        return {}
    if not found.keys() & {"quarter", "month", "week", "day of year"}:
        period = next((name for name in names if _normalised(name) == "period"), None)
        counted = None if period is None else _period(frame[period])
        if period is None or counted is None:
            return found if len(found) > 1 and "day" not in found else {}
        found[counted] = period
    return {part: found[part] for part in PARTS if part in found}


def are_dates(parts: dict[str, str]) -> bool:
    """Whether parts make a day without a time."""
    return "hour" not in parts and bool(parts.keys() & {"day", "day of year"})


def is_part(cells: pd.Series) -> bool:
    """Whether a column has the name and the cells of a part of a time."""
    called = _normalised(str(cells.name))
    return any(called in names and len(called) > 1 and _holds(cells, names[0]) for names in _NAMES)


def part_called(name: str) -> str | None:
    """The part of a time that the name of a column means."""
    called = _normalised(name)
    return next((names[0] for names in _NAMES if called in names and len(called) > 1), None)


def beside(names: Sequence[str], clock: str) -> tuple[str, ...]:
    """The columns of minutes and seconds that belong to a column of hours."""
    found: list[str] = []
    for part in _NAMES[-2:]:
        more = [name for name in names if _normalised(name) in part and name not in (clock, *found)]
        if not more:
            break
        found.append(more[0])
    return tuple(found)


def repeats_times(cells: pd.Series, walls: Timestamps) -> bool:
    """Whether a column only repeats a part of the times of its rows."""
    called = _normalised(str(cells.name))
    if called in _PLAIN:
        return True
    there = ~np.isnat(walls) & cells.notna().to_numpy()
    if not there.any():
        return False
    times = pd.Series(walls[there]).dt
    known = {
        "year": times.year,
        "quarter": times.quarter,
        "month": times.month,
        "day": times.day,
        "week": times.isocalendar().week,
        "day of year": times.day_of_year,
        "hour": times.hour,
        "minute": times.minute,
        "second": times.second,
    }
    for part, *others in _NAMES:
        if called == part or called in others:
            numbers = _numbers(cells[there], part)
            if np.array_equal(numbers, known[part].to_numpy(np.float64)):
                return True
    return False


def _normalised(name: str) -> str:
    return name.lower().replace("_", " ").strip("# ")


def _numbers(cells: pd.Series, part: str) -> NDArray[np.float64]:
    """The numbers in cells such as 5, M05, Q1 or May; NaN where there is no number."""
    if not is_text(cells) or part in ("year", "day", "day of year"):
        return read_numbers(cells, ".").values
    texts = cells.map(str, na_action="ignore").astype("str").str.strip()
    found = pd.to_numeric(texts.str.extract(_NUMBERED)[0], errors="coerce").to_numpy(np.float64)
    if part == "month":
        named = np.array([month_of(text) or np.nan for text in texts.fillna("")], np.float64)
        found = np.where(np.isnan(found), named, found)
    return found


def _holds(cells: pd.Series, part: str) -> bool:
    """Whether at least half of the cells may be this part."""
    if pd.api.types.is_datetime64_any_dtype(cells) or isinstance(cells.dtype, pd.PeriodDtype):
        return False
    there = cells.dropna()
    numbers = _numbers(there, part)
    low, high = _RANGES[part]
    fits = (numbers >= low) & (numbers <= high) & (numbers == np.floor(numbers))
    return bool(len(there) and 2 * np.count_nonzero(fits) >= len(there))


def _period(cells: pd.Series) -> str | None:
    """The part that a column named period counts, by its letter or its largest number."""
    there = cells.dropna().drop_duplicates()
    if is_text(cells):
        letters = set(there.map(str).str[:1].str.upper())
        return {"M": "month", "Q": "quarter", "W": "week"}.get("".join(letters))
    return _PERIODS.get(int(there.max())) if len(there) and there.min() == 1 else None


def assemble(
    columns: pd.DataFrame, date_format: str | None = None, zone: ZoneInfo | None = None
) -> Moments:
    """One time from several columns: parts of a date, or a date and a time of the day.

    Args:
        columns: The columns.
        date_format: Format of the dates, or of date and time with a space between them.
        zone: Time zone of the clock, for the length of days whose hours are counted.

    Raises:
        DataError: the columns are neither.
    """
    names = [str(name) for name in columns.columns]
    parts = find_parts(columns, names)
    if parts and len(parts) == len(names):
        return _of_parts(columns, parts, zone)
    first = list(parts.values()) if are_dates(parts) else names[:1]
    rest = [name for name in names if name not in first]
    if not rest or rest[1:] != list(beside(rest[1:], rest[0])):
        raise DataError(f"expected columns of {', '.join(PARTS)}, or a date and a time")
    is_turned = not parts and len(rest) == 1 and is_clock(columns[first[0]])
    if is_turned and not is_clock(columns[rest[0]]):
        first, rest = rest, first
    clocks = [columns[name] for name in rest]
    clock = clocks[0].map(str).str.strip()
    dates = columns[first[0]]
    if parts:
        moments = _of_parts(columns, parts, zone)
    elif date_format is not None and re.search(r"%[HIpMSfcXzZ]", date_format):
        return read_timestamps(
            (dates.map(str).str.strip() + " " + clock).astype("str"), date_format
        )
    else:
        moments = read_timestamps(dates, date_format)
    if clock.str.fullmatch(rf".*{OFFSET}").all() and not moments.wrong:
        days = pd.Series(moments.walls.astype("M8[D]").astype(str), clock.index)
        return read_timestamps((days + " " + clock).astype("str"))
    return _with_clock(moments, clocks, zone)


def _with_clock(moments: Moments, clocks: list[pd.Series], zone: ZoneInfo | None) -> Moments:
    spans = read_clock(clocks[0])
    if spans is None:
        spans = np.full(len(clocks[0]), "NaT", "m8[us]")
    for more, unit in zip(clocks[1:], ("minute", "second"), strict=False):
        counted = read_numbers(more, ".").values * _PART[unit]
        spans = spans + counted.astype("m8[us]")
    part = part_counted(clocks[0]) if len(clocks) == 1 and moments.offsets is None else None
    if part is None:
        moments.walls = moments.walls + spans
    else:
        moments = moments.counted(spans, part, zone)
    wrong = np.flatnonzero(np.isnat(spans))
    if len(wrong):
        cell = str(clocks[0].iloc[wrong[0]])[:60]
        moments.wrong.append(
            (f"{cell!r}: no time of the day; correct it, or take the row out", wrong)
        )
    return moments


def _of_parts(columns: pd.DataFrame, parts: dict[str, str], zone: ZoneInfo | None) -> Moments:
    numbers = {part: _numbers(columns[name], part) for part, name in parts.items()}
    walls = _days(numbers, len(columns))
    spans = [np.round(numbers[name] * unit) for name, unit in _PART.items() if name in numbers]
    known = ~np.isnat(walls)
    for span in spans:
        known &= (span >= 0) & (span <= _YEAR)
    walls[~known] = "NaT"
    moments = Moments(walls)
    part = part_counted(columns[parts["hour"]]) if len(spans) == 1 and "hour" in parts else None
    if part == _AN_HOUR:
        hours = np.where(known, spans[0], np.nan)
        moments = moments.counted(hours.astype("m8[us]"), part, zone)
    else:
        for span in spans:
            walls[known] += span[known].astype("m8[us]")
    moments.walls[moments.walls >= _NO_YEAR] = "NaT"
    wrong = np.flatnonzero(np.isnat(moments.walls))
    if len(wrong):
        message = f"no time of {', '.join(parts.values())}; correct it, or take the row out"
        moments.wrong.append((message, wrong))
    return moments


def _days(numbers: dict[str, NDArray[np.float64]], count: int) -> Timestamps:
    """The days of years and their parts; NaT where a day does not exist."""
    one = np.ones(count)
    years = numbers["year"]
    if (years[~np.isnan(years)] < 100).all():
        # Years of two digits, as in POSIX.
        years = years + np.where(years < 69, 2000, 1900)
    walls = np.full(count, "NaT", "M8[us]")
    known = (years >= 1) & (years <= 9999)
    if "week" in numbers and "month" not in numbers:
        weeks, form = numbers["week"], "%G-%V-%u"
        known &= (weeks >= 1) & (weeks <= 53)
        texts = [f"{year:04.0f}-{week:02.0f}-1" for year, week in zip(years, weeks, strict=True)]
    elif "day of year" in numbers and "month" not in numbers:
        days, form = numbers["day of year"], "%Y-%j"
        known &= (days >= 1) & (days <= 366)
        texts = [f"{year:04.0f}-{day:03.0f}" for year, day in zip(years, days, strict=True)]
    else:
        months = numbers.get("month", numbers.get("quarter", one) * 3 - 2)
        table = pd.DataFrame({"year": years, "month": months, "day": numbers.get("day", one)})
        walls[known] = pd.to_datetime(table[known], errors="coerce").to_numpy("M8[us]")
        return walls
    given = pd.Series(texts, dtype="str")[known]
    walls[known] = pd.to_datetime(given, format=form, errors="coerce").to_numpy("M8[us]")
    return walls
