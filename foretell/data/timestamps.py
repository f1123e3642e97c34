"""Columns of timestamps: texts, or numbers that are years, dates or epochs."""

from __future__ import annotations

import re
from datetime import datetime

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foretell.data.errors import DataError
from foretell.data.forms import read_as, read_plain
from foretell.data.missing import MISSING
from foretell.data.moments import Moments
from foretell.data.numbers import is_text, read_numbers
from foretell.timeaxis.timestamps import Timestamps

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
        return Moments(walls, offsets, str(cells.dtype.tz)).checked(_NO_TIMESTAMP)
    if pd.api.types.is_datetime64_dtype(cells):
        return Moments(cells.to_numpy("M8[us]")).checked(_NO_TIMESTAMP)
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
    moments = Moments.none(len(cells))
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
        return Moments.none(len(texts)).checked(f"no number of {date_format}", texts)
    if date_format is None:
        return read_plain(texts, None)
    texts = _whole(cells, texts, date_format)
    as_given = read_as(texts, date_format)
    if not as_given.wrong:
        return as_given
    # The format may fit the texts once they are made plain.
    plain = read_plain(texts, date_format)
    return plain if plain.missing < as_given.missing else as_given


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
                found = read_plain(texts, form) if "%H" in form else read_as(texts, form)
                if "%H" not in form or 2 * found.missing < len(texts):
                    return found
    return _read_epochs(values, date_format)


def _read_epochs(values: NDArray[np.float64], date_format: str | None) -> Moments:
    """Read epochs: time since 1970 in the given unit, or each in the unit that its size shows."""
    moments = Moments.none(len(values))
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
        return moments.checked(text)
    ticks = np.round(values * scales).astype(np.int64)
    notes = [f"the times are epochs of {' and '.join(found)}, by their sizes"]
    offsets = np.zeros(len(values), "m8[us]")
    return Moments(ticks.astype("M8[us]"), offsets, notes=notes if len(found) > 1 else [])
