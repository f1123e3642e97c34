"""Normalisation of texts of times: intervals, names of zones, unusual clocks."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.errors import DataError
from foretell.data.months import in_english, is_english

# The UTC offset of a clock, and the name of its zone.
OFFSET = r"(?<=:\d\d) ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d)"
ZONE = re.compile(r"(?<=[\dMm]) \(?(?!UTC|GMT|OCT|SEPT|SAT)[A-Z]{1,3}[DS]?T\)?(?= |$)")
# A zone beside an offset: +0100 (Central European Time), +0000 UTC, GMT+0100, (UTC+01:00).
_ZONED = re.compile(
    r"(?<=:\d\d)( ?)(?:GMT|UTC|\((?:GMT|UTC))?([+-]\d\d:?\d\d)\)?(?: UTC| GMT| \([^)]*\))?$"
)
# Literal characters, since regular expressions of Arrow do not know these escapes.
_DASHES = "\u2013\u2014"
_HOUR_SIGNS = "\u65f6\u6642"
# Words after the hour.
HOUR_WORD = rf"(?:uhr|hrs?|hours?|o'clock|h|[{_HOUR_SIGNS}])\.?"
_HALF = re.compile(r"(?i)(?<=\d)(?!(?-i: [AP]M)(?: |$)) ?([ap])\.? ?(?:m\.?)?(?= |$)")
_HOUR_WORD = re.compile(rf"(?i)(?<=:\d\d) ?{HOUR_WORD}(?= |$)")
_HOUR_WORD_AT_END = re.compile(rf"(?i)([ T]\d\d?) ?{HOUR_WORD}$")
# A date, and separators between it and a time of the day, which do not make an interval.
_NAME = r"[^\W\d_]{3,10}\.?"
_DATE = (
    r"\d{4}[-/.:]\d\d?[-/.:]\d\d?|\d\d?[-/.]\d\d?[-/.]\d\d(?:\d\d)?|\d{8}"
    rf"|\d\d?[-/. ]?{_NAME}[-/. ,]{{0,2}}\d\d(?:\d\d)?|{_NAME} \d\d?,? \d{{4}}"
)
_AND = rf" ?[-{_DASHES},;_|/] ?| ?: ?| (?:at|um|om|à|a las|alle|kl\.?) "
_TIME = r"\d\d?(?:[:h]\d\d(?:[:m]\d\d(?:[.,]\d+)?s?)?| ?[AaPp]\.? ?[Mm]\.?).*|\d\d-\d\d(?:-\d\d)?"
_JOINED = re.compile(rf"({_DATE})(?:{_AND})({_TIME})")
_TURNED = re.compile(rf"(\d\d?:\d\d(?::\d\d)?(?: [AP]M)?),? ({_DATE})")
_JOINED_DIGITS = re.compile(rf"({_DATE})[-_:](\d\d)(?:(\d\d)(\d\d)?)?")
# A time of the day after a date, or a UTC offset.
_EITHER = re.compile(r"\d{4}-\d\d-\d\d-(\d\d):?(\d\d)")
_COLONS = re.compile(r"^(\d{4}):(\d\d):(\d\d)(?=[ T])")
# Both ends of an interval; the second may be a time of the day alone.
_BETWEEN = rf" (?:[-{_DASHES}]|to|bis|au) |[{_DASHES}]|[/-](?=\d{{4}}-)|/(?=P)"
_BETWEEN += r"|-(?=\d\d?[./]\d\d?[./]\d{4})"
_INTERVAL = re.compile(rf"(.{{4,}}?)(?:{_BETWEEN})(.{{2,}}?)")
_IN_BRACKETS = re.compile(r"[(\[](.{4,}?), (.{4,}?)[)\]]")
_HOURS = re.compile(rf"(\d.*[./-].*[ T])(\d\d?) ?[-{_DASHES}] ?(\d\d?)(?: ?h)?")
# Intervals without spaces, which look like UTC offsets: 00:00-01:00.
_TIGHT = re.compile(r"(.+[ T](\d\d?):(\d\d)(?::\d\d)?)-(\d\d?):(\d\d)(?::\d\d)?")
_CLOCK = re.compile(
    r"(.*[ T])(\d{1,2})(?:[.h](\d\d)(?:[.m](\d\d)s?)?|-([0-5]\d)(?:-([0-5]\d))?)([.,]\d+)?( [AP]M)?"
)
_WEEKDAY = re.compile(
    r"(?i)(?:(?:mon|tue|wed|thu|fri|sat|sun)[a-z]{0,6}|mo|di|mi|do|fr|sa|so|mittwoch"
    r"|(?:mon|diens|donners|frei|sams|sonn)tag|(?:lun|mar|mercre|jeu|vendre|same)di|dimanche"
    r"|lun|mer|jeu|ven|sam|dim)[.,]{0,2} (?=.*\d)"
)
# Hour 24 after a complete date; otherwise 24 may be the year.
_MIDNIGHT = r"(?=.*\d{4}|.*[ T]24:?00)(\d.*\d,?[ T])24"
_MIDNIGHT += r"((?::?00){0,2}(?:[.,]0+)?(?: ?(?:Z|UTC|GMT|[+-]\d\d:?\d\d))?)"
_MIDNIGHT_OF_DIGITS = r"(\d{8})24((?:00){0,2})"
_STARTS = "times are intervals, and are read by their starts"
# Number of cells that show the form of the others.
_TELLING = 5


class Written(NamedTuple):
    """Texts of times in usual forms.

    Attributes:
        texts: `[rows]`, the texts.
        is_end: `[rows]`, whether 24:00, the end of a day, was replaced by its start.
        notes: Notes for the reader on the changes.
    """

    texts: pd.Series
    is_end: NDArray[np.bool_]
    notes: list[str]


def made_plain(texts: pd.Series, date_format: str | None = None) -> Written:
    """Rewrite texts in usual forms.

    Args:
        texts: `[rows]` texts, without missing ones.
        date_format: Format of the texts, if it is known.

    Raises:
        DataError: the end of the texts may be a time of the day or a UTC offset.
    """
    notes = []
    head = texts.iloc[:_TELLING]
    if head.str.match(_WEEKDAY).all():
        texts = texts.str.replace(_WEEKDAY, "", regex=True)
    if head.str.contains(_NAME).any() and not is_english(texts):
        texts = texts.map(in_english).astype("str")
    if texts.str.contains(ZONE).any():
        texts = texts.str.replace(ZONE, "", regex=True)
        notes.append("names of time zones beside the times are ignored; --time-zone sets the zone")
    for pattern, plain in (
        (_ZONED, r"\1\2"),
        (_HALF, lambda found: f" {found[1].upper()}M"),
        (_HOUR_WORD, ""),
        (_HOUR_WORD_AT_END, r"\1:00"),
        (_COLONS, r"\1-\2-\3"),
    ):
        if any(pattern.search(text) for text in texts.iloc[:_TELLING]):
            texts = texts.str.replace(pattern, plain, regex=True)
    texts = _parted(texts, date_format)
    starts = _starts(texts)
    if starts is not None:
        texts = starts
        notes.append(_STARTS)
    if texts.iloc[:_TELLING].str.fullmatch(_CLOCK).any():
        parts = texts.str.extract(rf"^{_CLOCK.pattern}$")
        minutes, seconds = parts[2].fillna(parts[4]), parts[3].fillna(parts[5]).fillna("00")
        whole = parts[0] + parts[1].str.zfill(2) + ":" + minutes + ":" + seconds
        rest = parts[6].str.replace(",", ".").fillna("") + parts[7].fillna("")
        texts = (whole + rest).fillna(texts)
    midnight = _MIDNIGHT
    if date_format is not None and "%H" in date_format and texts.str.isdigit().all():
        midnight = _MIDNIGHT_OF_DIGITS
    is_end = texts.str.fullmatch(midnight).to_numpy(np.bool_)
    if is_end.any():
        begun = texts.str.replace(rf"^{midnight}$", r"\g<1>00\g<2>", regex=True)
        texts = texts.where(~is_end, begun)
    return Written(texts, is_end, notes)


def _parted(texts: pd.Series, date_format: str | None) -> pd.Series:
    """Dates and times of the day with a space between them."""
    head = texts.iloc[:_TELLING]
    if date_format is None and _all_are(texts, _EITHER):
        # An offset has one value, or two with summer time, and no clock is 13 hours behind.
        after = texts.str.extract(rf"^{_EITHER.pattern}$").astype(int)
        if len(after.drop_duplicates()) <= 2 and after[0].max() <= 12 and head.str[:10].is_unique:
            colon = ":" if ":" in head.iloc[0] else ""
            clock, offset = f"%Y-%m-%d-%H{colon}%M", "%Y-%m-%d%z"
            raise DataError(
                f"times such as {head.iloc[0]!r} can be read as {clock} and as {offset}, an offset "
                f"from UTC; --date-format says which: --date-format {clock} or "
                f"--date-format {offset}"
            )
    for pattern, plain in ((_JOINED, r"\1 \2"), (_TURNED, r"\2 \1")):
        if head.str.fullmatch(pattern).any():
            texts = texts.str.replace(rf"^{pattern.pattern}$", plain, regex=True)
    if head.str.fullmatch(_JOINED_DIGITS).any():

        def spaced(found: re.Match[str]) -> str:
            return f"{found[1]} {found[2]}:{found[3] or '00'}:{found[4] or '00'}"

        texts = texts.str.replace(rf"^{_JOINED_DIGITS.pattern}$", spaced, regex=True)
    return texts


def _starts(texts: pd.Series) -> pd.Series | None:
    """The starts of intervals; None if the texts are not intervals."""
    head = texts.iloc[:_TELLING]
    if _all_are(texts, _TIGHT):
        tight = texts.str.extract(rf"^{_TIGHT.pattern}$")
        minutes = tight[[1, 2, 3, 4]].astype(int)
        ends = minutes[3] * 60 + minutes[4]
        lengths = (ends - minutes[1] * 60 - minutes[2]) % 1440
        # A UTC offset repeats in many rows; the end of an interval moves with its start.
        is_end = ends.nunique() > 1 or ends.iloc[0] > 18 * 60
        if not tight[0].str.match(r"\d{4}-").all() or (lengths.nunique() == 1 and is_end):
            return tight[0]
        return None
    if _all_are(texts, _HOURS):
        hours = texts.str.extract(rf"^{_HOURS.pattern}$")
        if ((hours[2].astype(int) - hours[1].astype(int)) % 24 == 1).all():
            return hours[0] + hours[1].str.zfill(2) + ":00"
    pattern = _IN_BRACKETS if head.str.match(r"[(\[]").all() else _INTERVAL
    found = head.str.extract(rf"^{pattern.pattern}$")
    if not found.map(lambda part: bool(re.search(r"\d", str(part)))).all(axis=None):
        return None
    # A day and a year with a separator between them are not an interval.
    if not found[1].str.contains(r"[:T/.P-]").all():
        return None
    starts = texts.str.extract(rf"^{pattern.pattern}$")[0]
    return starts.fillna(texts)


def _all_are(texts: pd.Series, form: re.Pattern[str]) -> bool:
    return bool(texts.iloc[:_TELLING].str.fullmatch(form).all() and texts.str.fullmatch(form).all())
