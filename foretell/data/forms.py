"""Texts of times in common forms."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from itertools import product

import numpy as np
import pandas as pd

from foretell.data.errors import DataError
from foretell.data.moments import Moments
from foretell.data.written import made_plain

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


def read_plain(texts: pd.Series, date_format: str | None) -> Moments:
    """Read texts that are made plain first, in one format or in the one that they show.

    Raises:
        DataError: the texts can be read in several ways, or pandas does not know the format.
    """
    written = made_plain(texts, date_format)
    found = (
        _read_forms(written.texts) if date_format is None else read_as(written.texts, date_format)
    )
    # The end of a day is the start of the next.
    found.walls = found.walls + written.is_end * np.timedelta64(1, "D")
    found.notes = written.notes + found.notes
    return found


def read_as(texts: pd.Series, form: str) -> Moments:
    """Read texts as they are in one format; with `%z` each time has its own offset.

    Raises:
        DataError: pandas does not know the format.
    """
    problem = f"no timestamp of the form {form}; --date-format takes another"
    if "%z" not in form:
        try:
            parsed = pd.to_datetime(texts, format=form, errors="coerce")
        except ValueError as error:
            raise DataError(f"--date-format {form}: {error}") from None
        return Moments(parsed.to_numpy("M8[us]")).checked(problem, texts)
    times = [_strptime(text, form) for text in texts]
    offsets = [timedelta() if time is None else time.utcoffset() for time in times]
    walls = [None if time is None else time.replace(tzinfo=None) for time in times]
    moments = Moments(np.array(walls, "M8[us]"), np.array(offsets, "m8[us]"))
    return moments.checked(problem, texts)


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


def _read_pattern(
    texts: pd.Series, pattern: str, read: Callable[[pd.DataFrame], Moments]
) -> Moments:
    problem = f"no timestamp like {texts.iloc[0]!r}; correct it, or take the row out"
    return read(texts.str.extract(f"^{pattern}$")).checked(problem, texts)


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
    moments = Moments.none(len(months))
    there = months.notna().to_numpy()
    moments.walls[there] = months[there].to_numpy(np.int64).astype("M8[M]")
    return moments


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
        return Moments.none(len(texts)).checked(text, texts)
    readings = [(form, read_as(texts, form)) for form in formats]
    fewest = min(moments.missing for _, moments in readings)
    best = [(form, moments) for form, moments in readings if moments.missing == fewest]
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
