"""Tables whose columns are times, with a row for each series."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from foretell.models.data.errors import DataError
from foretell.models.data.timestamps import looks_like_timestamp

_YEAR = re.compile(r"[Xx]?(?:1[6-9]|20)\d\d(?: \[YR\d{4}\])?")
_COUNTED = re.compile(r"(?:d|day|t|w|wk|week|m|month|q|h|hour|step)[ _]?\d+", re.IGNORECASE)
# So few are no table of times.
_LEAST = 3


def times_among(names: Sequence[str]) -> list[str]:
    """The names that are times, or count them, where most of a table's are."""
    years = [name for name in names if _YEAR.fullmatch(name)]
    counted = [name for name in names if _COUNTED.fullmatch(name)]
    found = max(years, counted, key=len)
    if 2 * len(found) <= len(names):
        found = [name for name in names if looks_like_timestamp(name)]
    return found if len(found) >= _LEAST and 2 * len(found) > len(names) else []


def refuse_wide(file: str, names: Sequence[str], read: str) -> None:
    """Refuse a table of which the columns are times, and say how to make a long one of it.

    Args:
        file: What messages call it.
        names: Of its columns.
        read: The call of pandas that reads it.

    Raises:
        DataError: it is such a table.
    """
    times = times_among(names)
    if not times:
        return
    others = [name for name in names if name and name not in times]
    remark, made = "", ""
    if _COUNTED.fullmatch(times[0]):
        remark = "; 2024-01-01 stands for the day before the first"
        made = (
            ".assign(ds=lambda t: pd.Timestamp('2024-01-01') + "
            "pd.to_timedelta(t.ds.str.extract('([0-9]+)$')[0].astype(int), 'D'))"
        )
    elif _YEAR.fullmatch(times[0]):
        made = ".assign(ds=lambda t: t.ds.astype(str).str.extract('([0-9]{4})')[0])"
    code = (
        f"import pandas as pd; {read}.melt({others!r}, var_name='ds', value_name='y')"
        f".dropna(subset='y'){made}.to_csv('long.csv', index=False)"
    )
    raise DataError(
        f"{file}: the columns {times[0]!r} to {times[-1]!r} are times, and each row is a series; "
        f"expected a row for each time: python -c {shlex.quote(code)} writes them to "
        f"long.csv{remark}"
    )
