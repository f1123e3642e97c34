"""Columns of times of the day, in common forms."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.missing import MISSING
from foretell.data.numbers import is_text
from foretell.data.written import HOUR_WORD, OFFSET, ZONE

Spans = NDArray[np.timedelta64]

# With points there are seconds: 5.50 is a number.
_MINUTE = r" ?(?:[:h]|\.(?=\d\d\.))(?P<minute>\d\d)(?: ?[:.m](?P<second>\d\d(?:[.,]\d+)?) ?s?)?"
_TIME = (
    rf"T?(?P<hour>\d{{1,2}})(?:{_MINUTE}| ?h)? ?(?P<half>[ap]\.? ?(?:m\.?)?)?"
    rf"(?: ?{HOUR_WORD}|{OFFSET})?"
)
# Words before a number.
_HOUR = re.compile(r"^(?:HE|H|Hr|Hour|Hour ending)[ _-]?(?=\d{1,3}$)", re.IGNORECASE)
# A suffix of four digits: 1300 UTC.
_ZONED = re.compile(rf"^(\d{{4}}) ?(?:UTC|GMT|Z|{HOUR_WORD})$", re.IGNORECASE)
_NOON = {"noon": 12, "midnight": 0}
_DASH = " ?(?:-|\u2013|\u2014|to|/) ?"
_FORM = re.compile(_TIME, re.IGNORECASE)
_RANGE = re.compile(rf"(.+?){_DASH}(.+)", re.IGNORECASE)
_CALLED = re.compile(
    r"hour|time|clock|hhmm|uhr|zeit|stunde|heure|hora|period|interval|slot"
    r"|\b(?:h|hh|hr|hrs|he|sp|ora|ore|tijd|uur)\b",
    re.IGNORECASE,
)
_DAY = 24 * 60 * 60 * 1_000_000
# Number of cells of a long column that are tried first.
_SAMPLE = 1000
# Numbers of parts of a day that a column may count.
_PARTS = (24, 48, 96)


def read_clock(cells: pd.Series) -> Spans | None:
    """The time since midnight of each cell; NaT where it is missing or not a time of the day.

    Whole numbers are hours, digits (`1830`), or counts of 48 or 96 parts of a day. Counts from 0
    mean the start of a part, counts from 1 its end, so that hour 24 is the next midnight. A day may
    have one hour more, where a clock changes. An interval (`00:00-01:00`) means its start.

    Args:
        cells: The column.

    Returns:
        `[rows]` timedelta64[us]; None if no cell is a time of the day.
    """
    if pd.api.types.is_bool_dtype(cells) or pd.api.types.is_datetime64_any_dtype(cells):
        return None
    codes, distinct = pd.factorize(cells)
    known = pd.Series(distinct, dtype=cells.dtype if cells.dtype.kind in "iuf" else object)
    texts = _texts_of(known)
    there = ~texts.isin(MISSING).to_numpy()
    spans = np.full(len(known) + 1, "NaT", "m8[us]")
    numbers = _numbers_of(texts[there], may_have_points=not is_text(cells))
    if numbers is not None:
        found = _of_numbers(numbers)
    else:
        found = np.array([_of_text(text) for text in texts[there]], "m8[us]")
    if found is None or np.isnat(found).all():
        return None
    spans[:-1][there] = found
    # Missing cells have code -1.
    return spans[codes]


def part_counted(cells: pd.Series) -> np.timedelta64 | None:
    """The length of the parts of a day that a column counts; None if it holds anything else."""
    texts = _texts_of(cells.dropna().drop_duplicates())
    texts = texts[~texts.isin(MISSING)]
    numbers = _numbers_of(texts, may_have_points=not is_text(cells))
    if numbers is None or not len(numbers) or (numbers % 1 != 0).any() or numbers.min() < 0:
        return None
    parts = _parts_of(numbers)
    return None if parts is None else np.timedelta64(_DAY // parts, "us")


def _texts_of(known: pd.Series) -> pd.Series:
    texts = known.map(str).astype("str").str.strip()
    texts = texts.str.removeprefix("0 days ").str.replace(ZONE, "", regex=True)
    return texts.str.replace(_HOUR, "", regex=True).str.replace(_ZONED, r"\1", regex=True)


def _numbers_of(texts: pd.Series, *, may_have_points: bool) -> NDArray[np.float64] | None:
    """Texts as numbers, if all are numbers."""
    if not may_have_points and not texts.str.fullmatch(r"\d+").all():
        return None
    return pd.to_numeric(texts).to_numpy(np.float64)


def _of_numbers(values: NDArray[np.float64]) -> Spans | None:
    if not len(values) or values.min() < 0 or values.max() > 240_000:
        return None
    if (values != np.floor(values)).any():
        return _of_fractions(values)
    numbers = values.astype(np.int64)
    minutes, seconds = numbers % 100, numbers // 100 % 100
    most = int(numbers.max())
    found: NDArray[np.int64] | None = None
    parts = _parts_of(values)
    if parts is not None:
        found = numbers * (_DAY // parts)
    elif most <= 2400 and (minutes < 60).all():
        found = (numbers // 100 * 60 + minutes) * 60_000_000
    elif most < 1440:
        found = numbers * 60_000_000
    elif most <= 240_000 and (minutes < 60).all() and (seconds < 60).all():
        found = (numbers // 10_000 * 3600 + seconds * 60 + minutes) * 1_000_000
    return None if found is None else found.astype("m8[us]")


def _parts_of(numbers: NDArray[np.float64]) -> int | None:
    """The number of parts of a day that distinct numbers count, if they do."""
    most = numbers.max()
    for parts in _PARTS:
        # One hour more, on a day when a clock changes; then all other numbers must occur.
        if most <= parts or (most <= parts * 25 // 24 and len(np.unique(numbers)) >= parts):
            return parts
    return None


def _of_fractions(values: NDArray[np.float64]) -> Spans | None:
    """Read hours with minutes (18.15, 18.3) or fractions (18.25, 18.5) after the point."""
    parts = np.round(values % 1 * 100).astype(np.int64)
    if values.max() > 24 or np.abs(values % 1 * 100 - parts).max() > 1e-6:
        return None
    if set(parts) <= {0, 15, 30, 45}:
        minutes = parts
    elif set(parts) <= {0, 25, 50, 75}:
        minutes = parts * 60 // 100
    else:
        return None
    return (np.floor(values).astype(np.int64) * 60 + minutes).astype("m8[m]").astype("m8[us]")


def _of_text(text: str) -> np.timedelta64 | None:
    if text.lower() in _NOON:
        return np.timedelta64(_NOON[text.lower()] * 3_600_000_000, "us")
    found = _FORM.fullmatch(text)
    if found is None:
        parts = _RANGE.fullmatch(text)
        ends = [_of_text(part.strip()) for part in parts.groups()] if parts else [None]
        return None if None in ends else ends[0]
    named = found.groupdict()
    hour, minute = int(named["hour"]), int(named.get("minute") or 0)
    second = float((named.get("second") or "0").replace(",", "."))
    if half := named.get("half"):
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + 12 * (half[0] in "pP")
    span = round(((hour * 60 + minute) * 60 + second) * 1_000_000)
    if minute > 59 or second >= 60 or span > _DAY:
        return None
    return np.timedelta64(span, "us")


def is_clock(cells: pd.Series) -> bool:
    """Whether a column holds times of the day alone."""
    known = cells.dropna().drop_duplicates()
    if len(known) > _SAMPLE and not is_clock(known.iloc[:_SAMPLE]):
        return False
    spans = read_clock(known) if len(known) else None
    return spans is not None and not np.isnat(spans).any()


def has_clock_name(name: str) -> bool:
    """Whether the name of a column means times of the day."""
    return _CALLED.search(name.replace("_", " ")) is not None


def has_clock_form(cells: pd.Series) -> bool:
    """Whether times of the day are written in a form that is not a number."""
    if not is_text(cells) or pd.api.types.is_datetime64_any_dtype(cells):
        return False
    return not cells.dropna().map(str).astype("str").str.strip().str.fullmatch(r"\d+").all()


def counts_a_day(cells: pd.Series) -> bool:
    """Whether whole numbers cover all hours, or all 48 or 96 parts, of a day."""
    if is_text(cells) or (spans := read_clock(cells)) is None or np.isnat(spans).any():
        return False
    counts = cells.value_counts()
    # Days that are an hour longer are rare.
    known = np.sort(counts.index[2 * counts > counts.max()].to_numpy())
    counted = len(known) in _PARTS and known[0] in (0, 1) and known[-1] - known[0] < len(known)
    has_minutes = (known % 100 < 60).all() and known[-1] > _PARTS[-1]
    return bool(counted or (len(known) >= _PARTS[0] and has_minutes))
