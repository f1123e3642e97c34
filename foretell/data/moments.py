"""Columns of timestamps, in common forms."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from itertools import product
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.counted import times_of_counts
from foretell.data.errors import DataError
from foretell.data.missing import MISSING
from foretell.data.numbers import is_text, read_numbers
from foretell.data.written import made_plain
from foretell.timeaxis.timestamps import Offsets, Timestamps

_DATES = (
    *("%Y-%m-%d", "%Y/%m/%d", "%Y.%m.%d", "%m/%d/%Y", "%d/%m/%Y", "%d.%m.%Y", "%m-%d-%Y"),
    *("%d-%m-%Y", "%m/%d/%y", "%d/%m/%y", "%d.%m.%y", "%b %d %Y", "%b %d, %Y", "%d %b %Y"),
    *("%b-%d-%Y", "%d-%b-%Y", "%d-%b-%y", "%d%b%Y", "%d/%b/%Y", "%b %d, %y", "%d %b %y", "%Y%m%d"),
)
_TIMES = (
    "",
    " %H:%M",
    " %H:%M:%S",
    " %H:%M:%S.%f",
    " %I:%M %p",
    " %I:%M:%S %p",
    " %I:%M:%S.%f %p",
    " %I %p",
)
_MONTHS = (
    "%Y-%m",
    "%Y/%m",
    "%m/%Y",
    "%b %Y",
    "%Y %b",
    "%b-%Y",
    "%b-%y",
    "%YM%m",
    "%Y",
    "%G-W%V-%u",
    "%b %d %H:%M:%S %Y",
)
_FORMATS = (*(date + time for date, time in product(_DATES, _TIMES)), *_MONTHS)
_ISO = (
    r"(\d{4}-\d\d-\d\d(?:[T ]\d\d(?::?\d\d(?::?\d\d(?:\.\d+)?)?)?)?|\d{8}T\d{4}(?:\d\d)?)"
    r" ?(Z|UTC|GMT|[+-]\d\d(?::?\d\d(?::\d\d)?)?)?"
)
_WITH_OFFSET = r"(.*(?::\d\d|:\d\d\.\d+|[AP]M)) ?(Z|UTC|GMT|[+-]\d\d:?\d\d)"
_QUARTER = r"(\d{4})[ -]?Q([1-4])"
_QUARTER_FIRST = r"Q([1-4])[ -/]?(\d{4})"
_WEEK = r"(\d{4})-?W(\d\d)"
_DAY_OF_YEAR = r"(\d{4})-(\d{3})"
# Number of cells that select the candidate formats.
_TELLING = 5
_NO_TIMESTAMP = "no timestamp; take the row out"
_EPOCHS = {"s": 1e6, "ms": 1e3, "us": 1.0, "ns": 1e-3}
# The size of an epoch shows its unit, from 1973 to about 5100.
_EPOCH_SIZES = ((1e8, 1e11, "s"), (1e11, 1e14, "ms"), (1e14, 1e17, "us"), (1e17, 1e20, "ns"))
# Dates and times of digits. Digits with hours could also be epochs of other centuries, but these
# are hardly ever valid dates in all rows.
_DIGITS = (
    *((1000, 3000, "%Y"), (1e5, 3e5, "%Y%m"), (1e7, 3e7, "%Y%m%d"), (1.8e9, 2.2e9, "%Y%m%d%H")),
    *((1.8e11, 2.2e11, "%Y%m%d%H%M"), (1.8e13, 2.2e13, "%Y%m%d%H%M%S")),
)
# Largest number that int64 holds, roughly.
_LARGEST = 9e18
# Smallest number that can be a time.
_EPOCH = 1e5
# Number of cells of a long column that are tried first.
_SAMPLE = 1000
# A second column of times lies within a month of the first.
_NEAR = np.timedelta64(31, "D")
_PLAIN_YEARS = (1700, 2200)


@dataclass
class Moments:
    """The times of a column of timestamps.

    Attributes:
        walls: `[time]` datetime64[us], wall-clock times; NaT where a cell is not a time.
        offsets: `[time]`, the UTC offsets, if the times were written with some.
        zone: Name of the column's time zone, if it has one.
        wrong: Messages on what is wrong, with their rows.
        notes: Notes for the reader on how the times were read.
    """

    walls: Timestamps
    offsets: Offsets | None = None
    zone: str | None = None
    wrong: list[tuple[str, NDArray[np.intp]]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def of_rows(self, kept: NDArray[np.bool_]) -> Moments:
        """The times of the kept rows."""
        places = np.cumsum(kept) - 1
        wrong = [(text, places[rows[kept[rows]]]) for text, rows in self.wrong]
        return Moments(
            self.walls[kept],
            None if self.offsets is None else self.offsets[kept],
            self.zone,
            [(text, rows) for text, rows in wrong if len(rows)],
        )

    def counted(
        self, spans: NDArray[np.timedelta64], part: np.timedelta64, zone: ZoneInfo | None
    ) -> Moments:
        """The times of parts that were counted through these days, by `times_of_counts`."""
        found = times_of_counts(self.walls, spans, part, zone)
        return replace(
            self, walls=found.walls, offsets=found.offsets, wrong=[*self.wrong, *found.wrong]
        )


def looks_like_timestamp(cell: str) -> bool:
    """Whether a cell can be read as a timestamp and is not a plain number."""
    if not any(mark.isdigit() for mark in cell) or cell.strip().replace(".", "", 1).isdigit():
        return False
    try:
        return not read_timestamps(pd.Series([cell], dtype="str")).wrong
    except DataError:  # a date with two readings
        return True


def are_times_near(cells: pd.Series, walls: Timestamps) -> bool:
    """Whether numbers are epochs, digits or fractional years near the times of their rows."""
    if not pd.api.types.is_numeric_dtype(cells) or pd.api.types.is_bool_dtype(cells):
        return False
    there = ~np.isnat(walls) & cells.notna().to_numpy()
    if not there.any():
        return False
    numbers, walls = cells[there].to_numpy(np.float64), walls[there]
    if numbers.min() >= _EPOCH:
        if len(numbers) > _SAMPLE and not are_times_near(cells[there][:_SAMPLE], walls[:_SAMPLE]):
            return False
        found = read_timestamps(cells[there])
        return not found.wrong and bool((np.abs(found.walls - walls) <= _NEAR).all())
    years = walls.astype("M8[Y]")
    part = (walls - years) / np.timedelta64(366, "D") + years.astype(np.int64) + 1970
    is_near = np.abs(numbers - part) <= _NEAR / np.timedelta64(366, "D")
    return bool(is_near.all() and (numbers % 1 > 0).any())


def read_timestamps(cells: pd.Series, date_format: str | None = None) -> Moments:
    """Read a column of timestamps, or of whole numbers that are years, dates or epochs.

    Args:
        cells: The column.
        date_format: Format for `strptime`, or the unit of an epoch: `s`, `ms`, `us` or `ns`;
            found if not given.

    Raises:
        DataError: no cell shows the order of day and month.
    """
    if isinstance(cells.dtype, pd.PeriodDtype):
        cells = cells.dt.to_timestamp()
    if isinstance(cells.dtype, pd.DatetimeTZDtype):
        walls = cells.dt.tz_localize(None).to_numpy("M8[us]")
        offsets = walls - cells.dt.tz_convert(None).to_numpy("M8[us]")
        return _checked(Moments(walls, offsets, str(cells.dtype.tz)), _NO_TIMESTAMP)
    if pd.api.types.is_datetime64_dtype(cells):
        return _checked(Moments(cells.to_numpy("M8[us]")), _NO_TIMESTAMP)
    # Series of a long table share their times, so each distinct time is read once.
    codes, distinct = pd.factorize(cells, use_na_sentinel=False)
    moments = _read_distinct(pd.Series(distinct, name=cells.name), date_format)
    back = [(text, np.flatnonzero(np.isin(codes, rows))) for text, rows in moments.wrong]
    offsets = None if moments.offsets is None else moments.offsets[codes]
    return Moments(moments.walls[codes], offsets, None, back, moments.notes)


def _read_distinct(cells: pd.Series, date_format: str | None) -> Moments:
    """Read distinct cells; missing ones are reported as wrong."""
    texts = cells.map(str).astype("str").str.strip()
    missing = (cells.isna() | texts.isin(MISSING)).to_numpy()
    moments = Moments(_none(len(cells)))
    if missing.any():
        moments.wrong.append((_NO_TIMESTAMP, np.flatnonzero(missing)))
    there = np.flatnonzero(~missing)
    if not len(there):
        return moments
    found = _read_present(cells.iloc[there], texts.iloc[there], date_format)
    moments.walls[there] = found.walls
    moments.notes += found.notes
    if found.offsets is not None:
        moments.offsets = np.full(len(cells), "NaT", "m8[us]")
        moments.offsets[there] = found.offsets
    moments.wrong += [(text, there[rows]) for text, rows in found.wrong]
    return moments


def _read_present(cells: pd.Series, texts: pd.Series, date_format: str | None) -> Moments:
    if date_format in _EPOCHS or date_format is None:
        numbers = read_numbers(cells, ".") if not is_text(cells) else None
        if numbers is None and texts.str.fullmatch(r"\d+(\.\d+)?").all():
            numbers = read_numbers(texts, ".")
        if numbers is not None and not numbers.wrong.any():
            return _read_numeric(numbers.values, date_format, str(cells.name))
    if date_format in _EPOCHS:
        return _checked(Moments(_none(len(texts))), f"no number of {date_format}", texts)
    if date_format is None:
        return _read_plain(texts, None)
    texts = _whole(cells, texts, date_format)
    as_given = _read_as(texts, date_format)
    if not as_given.wrong:
        return as_given
    # The format may fit the texts once they are made plain.
    plain = _read_plain(texts, date_format)
    return plain if _count(plain) < _count(as_given) else as_given


def _read_plain(texts: pd.Series, date_format: str | None) -> Moments:
    written = made_plain(texts, date_format)
    found = (
        _read_forms(written.texts) if date_format is None else _read_as(written.texts, date_format)
    )
    # The end of a day is the start of the next.
    found.walls = found.walls + written.is_end * np.timedelta64(1, "D")
    found.notes = written.notes + found.notes
    return found


def _read_forms(texts: pd.Series) -> Moments:
    head = texts.iloc[:_TELLING]
    for pattern, read in (
        (_ISO, _read_iso),
        (_QUARTER, lambda parts: _quarters(parts[0], parts[1])),
        (_QUARTER_FIRST, lambda parts: _quarters(parts[1], parts[0])),
        (_WEEK, _weeks),
        (_DAY_OF_YEAR, _days_of_years),
    ):
        if head.str.fullmatch(pattern).any():
            return _read_pattern(texts, pattern, read)
    return _read_dates(texts)


def _whole(cells: pd.Series, texts: pd.Series, date_format: str) -> pd.Series:
    """The texts of numbers as they were written, without `.0` and with leading zeros."""
    if is_text(cells):
        return texts
    texts = texts.str.removesuffix(".0")
    if date_format and re.fullmatch(r"(?:%[a-zA-Z])+", date_format):
        # Numbers have lost the leading zeros of dates of digits.
        try:
            width = len(datetime(2000, 12, 31).strftime(date_format))
        except ValueError:
            return texts
        return texts.str.zfill(width)
    return texts


def _read_numeric(values: NDArray[np.float64], date_format: str | None, name: str) -> Moments:
    whole = bool((values == np.floor(values)).all())
    if date_format is None and whole and np.abs(values).max() < _LARGEST:
        texts = pd.Series(values.astype(np.int64).astype(str))
        for low, high, form in _DIGITS:
            if form == "%Y" and "year" not in name.lower():
                # In a column with another name, small numbers rather count rows than years.
                low, high = _PLAIN_YEARS
            if ((values >= low) & (values < high)).all():
                found = _read_plain(texts, form) if "%H" in form else _read_as(texts, form)
                if "%H" not in form or 2 * _count(found) < len(texts):
                    return found
    return _read_epochs(values, date_format)


def _read_epochs(values: NDArray[np.float64], date_format: str | None) -> Moments:
    """Read epochs: time since 1970 in the given unit, or each in the unit that its size shows."""
    moments = Moments(_none(len(values)))
    scales = np.full(len(values), np.nan if date_format is None else _EPOCHS[date_format])
    found = []
    for low, high, unit in _EPOCH_SIZES:
        fits = (values >= low) & (values < high)
        if fits.any() and date_format is None:
            scales[fits] = _EPOCHS[unit]
            found.append(unit)
        elif fits.any() and _EPOCHS[unit] < scales[0]:
            text = (
                f"{values[fits][0]:.0f} is no number of {date_format} but, by its size, of {unit}; "
                "leave the format out to read each number by its size"
            )
            moments.wrong.append((text, np.flatnonzero(fits)))
    if moments.wrong:
        return moments
    is_none = np.isnan(scales) | (np.abs(values * scales) > _LARGEST)
    if is_none.any():
        text = (
            f"numbers such as {values[is_none][0]:g} are no timestamps; --date-format "
            "sets their form (%Y, s, ms, us, ns), --time-column another column"
        )
        return _checked(moments, text)
    ticks = np.round(values * scales).astype(np.int64)
    notes = [f"the times are epochs of {' and '.join(found)}, by their sizes"]
    offsets = np.zeros(len(values), "m8[us]")
    return Moments(ticks.astype("M8[us]"), offsets, notes=notes if len(found) > 1 else [])


def _read_pattern(
    texts: pd.Series, pattern: str, read: Callable[[pd.DataFrame], Moments]
) -> Moments:
    problem = f"no timestamp like {texts.iloc[0]!r}; correct it, or take the row out"
    return _checked(read(texts.str.extract(f"^{pattern}$")), problem, texts)


def _read_iso(parts: pd.DataFrame) -> Moments:
    parsed = pd.to_datetime(parts[0], format="ISO8601", errors="coerce")
    codes, names = pd.factorize(parts[1])
    if not len(names):
        return Moments(parsed.to_numpy("M8[us]"))
    known = np.array([_offset(name) for name in names] + [np.timedelta64("NaT")], "m8[us]")
    walls, offsets = parsed.to_numpy("M8[us]"), known[codes]
    odd = ~np.isnat(walls) & np.isnat(offsets)
    wrong = []
    if odd.any():
        text = "it has no UTC offset, and others have; give all of them one, or none"
        wrong.append((text, np.flatnonzero(odd)))
        offsets = np.where(odd, np.timedelta64(0, "us"), offsets)
    return Moments(walls, offsets, wrong=wrong)


def _offset(name: str) -> np.timedelta64:
    if name in ("Z", "UTC", "GMT"):
        return np.timedelta64(0, "us")
    try:
        moment = datetime.fromisoformat(f"2000-01-01T00:00:00{name}")
    except ValueError:
        return np.timedelta64("NaT")
    return np.timedelta64(moment.utcoffset() or timedelta(), "us")


def _quarters(years: pd.Series, quarters: pd.Series) -> Moments:
    months = (pd.to_numeric(years) - 1970) * 12 + (pd.to_numeric(quarters) - 1) * 3
    walls = _none(len(months))
    there = months.notna().to_numpy()
    walls[there] = months[there].to_numpy(np.int64).astype("M8[M]")
    return Moments(walls)


def _weeks(parts: pd.DataFrame) -> Moments:
    """The Mondays of ISO weeks."""
    days = parts[0] + parts[1] + "1"
    return Moments(pd.to_datetime(days, format="%G%V%u", errors="coerce").to_numpy("M8[us]"))


def _days_of_years(parts: pd.DataFrame) -> Moments:
    days = parts[0] + parts[1]
    return Moments(pd.to_datetime(days, format="%Y%j", errors="coerce").to_numpy("M8[us]"))


def _read_dates(texts: pd.Series) -> Moments:
    has_offset = re.compile(_WITH_OFFSET).fullmatch(texts.iloc[0]) is not None
    parts = texts.str.extract(f"^{_WITH_OFFSET}$") if has_offset else None
    if parts is not None and parts[1].notna().all():
        found = _read_dates(parts[0])
        found.offsets = np.array([_offset(name) for name in parts[1]], "m8[us]")
        return found
    formats = [form for form in _FORMATS if _fits(texts.iloc[:_TELLING].tolist(), form)]
    if not formats:
        text = "no timestamp; --date-format says its form, such as %d.%m.%Y"
        return _checked(Moments(_none(len(texts))), text, texts)
    readings = [(form, _read_as(texts, form)) for form in formats]
    fewest = min(_count(moments) for _, moments in readings)
    best = [(form, moments) for form, moments in readings if _count(moments) == fewest]
    (_, first), *others = best
    if any(not np.array_equal(first.walls, one.walls, equal_nan=True) for _, one in others):
        forms = " and as ".join(form for form, _ in best)
        flags = " or ".join(f"--date-format {shlex.quote(form)}" for form, _ in best)
        raise DataError(
            f"dates such as {texts.iloc[0][:60]!r} can be read as {forms}; --date-format "
            f"says which: {flags}"
        )
    return first


def _fits(texts: Sequence[str], form: str) -> bool:
    return any(_strptime(text, form) is not None for text in texts)


def _strptime(text: str, form: str) -> datetime | None:
    try:
        return datetime.strptime(text, form)
    except ValueError:
        return None


def _count(moments: Moments) -> int:
    return int(np.isnat(moments.walls).sum())


def _read_as(texts: pd.Series, form: str) -> Moments:
    """Read texts in one format; with `%z` each time has its own offset."""
    problem = f"no timestamp of the form {form}; --date-format takes another"
    if "%z" not in form:
        try:
            parsed = pd.to_datetime(texts, format=form, errors="coerce")
        except ValueError as error:
            raise DataError(f"--date-format {form}: {error}") from None
        return _checked(Moments(parsed.to_numpy("M8[us]")), problem, texts)
    times = [_strptime(text, form) for text in texts]
    offsets = [timedelta() if time is None else time.utcoffset() for time in times]
    walls = [None if time is None else time.replace(tzinfo=None) for time in times]
    moments = Moments(np.array(walls, "M8[us]"), np.array(offsets, "m8[us]"))
    return _checked(moments, problem, texts)


def _none(count: int) -> Timestamps:
    return np.full(count, "NaT", "M8[us]")


def _checked(moments: Moments, problem: str, texts: pd.Series | None = None) -> Moments:
    """Report rows without a time as wrong; the message quotes the first of their texts."""
    known = [rows for _, rows in moments.wrong]
    rows = np.setdiff1d(np.flatnonzero(np.isnat(moments.walls)), np.concatenate([*known, []]))
    if len(rows):
        cell = "" if texts is None else f"{texts.iloc[rows[0]][:60]!r}: "
        moments.wrong.append((cell + problem, rows))
    return moments
