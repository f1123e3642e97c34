"""Texts of times, made plain: intervals, names of zones, clocks written in other ways."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

# How far a clock is from UTC, and what it is called.
OFFSET = r"(?<=:\d\d) ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)"
ZONE = re.compile(r"(?<=[\dMm]) \(?(?!UTC|GMT|OCT|SEPT|SAT)[A-Z]{1,3}[DS]?T\)?(?= |$)")
# Both ends of an interval; the second may be a time of the day alone.
_BETWEEN = r" (?:-|\u2013|\u2014|to|bis) |\u2013|\u2014|/(?=\d{4}-)|-(?=\d\d?[./]\d\d?[./]\d{4})|, "
_INTERVAL = re.compile(rf"[(\[]?(.{{4,}}?)(?:{_BETWEEN})(.{{2,}}?)[)\]]?")
_HOURS = re.compile(r"(\d.*[./-].*[ T])(\d\d?) ?[-\u2013] ?(\d\d?)(?: ?h)?")
# Those without spaces, which look like offsets from UTC: 00:00-01:00.
_TIGHT = re.compile(r"(.+[ T](\d\d?):(\d\d)(?::\d\d)?)-(\d\d?):(\d\d)(?::\d\d)?")
_CLOCK = re.compile(r"(.*[ T])(\d{1,2})[.h](\d\d)(?:[.m](\d\d)s?)?")
_WEEKDAY = re.compile(r"(?i)(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6},? (?=.*\d)")
_MIDNIGHT = re.compile(
    r"(\d.*[ T]|\d{8})24((?::?00){0,2}(?:[.,]0+)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)"
)
_STARTS = "times are intervals, and are read by their starts"
# Cells that tell how the others are written.
_TELLING = 5


class Written(NamedTuple):
    """Times as most people write them.

    Attributes:
        texts: `[rows]`.
        is_end: `[rows]`, whether a text was the end of a day (24:00) and is its start.
        notes: What was made of them.
    """

    texts: pd.Series
    is_end: NDArray[np.bool_]
    notes: list[str]


def made_plain(texts: pd.Series) -> Written:
    """Make texts plain.

    Args:
        texts: `[rows]` texts, none of them missing.
    """
    notes = []
    if texts.iloc[:_TELLING].str.match(_WEEKDAY).all():
        texts = texts.str.replace(_WEEKDAY, "", regex=True)
    if texts.str.contains(ZONE).any():
        texts = texts.str.replace(ZONE, "", regex=True)
        notes.append("names of time zones beside the times are left out; --time-zone tells whose")
    starts = _starts(texts)
    if starts is not None:
        texts = starts
        notes.append(_STARTS)
    if texts.iloc[:_TELLING].str.fullmatch(_CLOCK).any():
        parts = texts.str.extract(rf"^{_CLOCK.pattern}$")
        plain = parts[0] + parts[1].str.zfill(2) + ":" + parts[2] + ":" + parts[3].fillna("00")
        texts = plain.fillna(texts)
    is_end = texts.str.fullmatch(_MIDNIGHT).to_numpy(np.bool_)
    if is_end.any():
        texts = texts.where(
            ~is_end, texts.str.replace(rf"^{_MIDNIGHT.pattern}$", r"\g<1>00\g<2>", regex=True)
        )
    return Written(texts, is_end, notes)


def _starts(texts: pd.Series) -> pd.Series | None:
    """The starts of intervals, if the texts are such."""
    head = texts.iloc[:_TELLING]
    tight = texts.str.extract(rf"^{_TIGHT.pattern}$")
    if tight[0].notna().all():
        minutes = tight[[1, 2, 3, 4]].astype(int)
        ends = minutes[3] * 60 + minutes[4]
        lengths = (ends - minutes[1] * 60 - minutes[2]) % 1440
        # An offset from UTC is the same in many rows; the end of an interval goes with its start.
        is_end = ends.nunique() > 1 or ends.iloc[0] > 18 * 60
        if not tight[0].str.match(r"\d{4}-").all() or (lengths.nunique() == 1 and is_end):
            return tight[0]
        return None
    hours = texts.str.extract(rf"^{_HOURS.pattern}$")
    if hours[0].notna().all() and ((hours[2].astype(int) - hours[1].astype(int)) % 24 == 1).all():
        return hours[0] + hours[1].str.zfill(2) + ":00"
    found = head.str.extract(rf"^{_INTERVAL.pattern}$")
    if not found.map(lambda part: bool(re.search(r"\d", str(part)))).all(axis=None):
        return None
    # A day and a year with a comma between them are no interval.
    if not found[1].str.contains(r"[:T/.-]").all():
        return None
    starts = texts.str.extract(rf"^{_INTERVAL.pattern}$")[0]
    return starts.fillna(texts)
