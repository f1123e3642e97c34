"""Parses cells of CSV files as numbers and times, and finds wrong cells."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyarrow import compute as pc
from pyarrow import csv

from foretell.data.missing import NO_CATEGORY

# The column of the first wrong cell of each row. No channel can have this name.
WRONG = "\0wrong"
_WRONG_TYPE = pa.struct([("column", pa.string()), ("text", pa.string())])
_NULLS = pa.array(csv.ConvertOptions().null_values)
# Texts that are no category. NA is one, as in training.
_NO_CATEGORY = pa.array(sorted(NO_CATEGORY))
# Types of times that Arrow tries, in its order.
_TIMES = (
    pa.date32(),
    *(pa.timestamp(unit, zone) for unit in ("s", "ns") for zone in (None, "UTC")),
)


def converted(
    columns: Mapping[str, pa.Array], kinds: Mapping[str, pa.DataType]
) -> dict[str, pa.Array]:
    """Columns of texts in other types, and the column `WRONG`.

    Args:
        columns: Columns by name, each `[rows]`.
        kinds: Types by name; other columns are unchanged.
    """
    found = dict(columns)
    wrong: dict[int, dict[str, str]] = {}
    for name, kind in kinds.items():
        found[name], is_wrong = parsed(columns[name], kind)
        for row in np.flatnonzero(is_wrong).tolist():
            wrong.setdefault(row, {"column": name, "text": columns[name][row].as_py()})
    count = len(next(iter(columns.values())))
    each = [wrong.get(row) for row in range(count)] if wrong else pa.nulls(count, _WRONG_TYPE)
    return {**found, WRONG: pa.array(each, _WRONG_TYPE)}


def kind_of_times(texts: pa.Array) -> pa.DataType:
    """The type of times that parses most distinct texts; the type of the texts if none does."""
    each = pc.unique(texts)
    found = [len(each) - parsed(each, kind)[0].null_count for kind in _TIMES]
    return _TIMES[found.index(max(found))] if any(found) else texts.type


def parsed(texts: pa.Array, kind: pa.DataType) -> tuple[pa.Array, NDArray[np.bool_]]:
    """Values of texts, null where a text is empty or wrong, and a mask of the wrong ones."""
    if not pa.types.is_string(kind):
        try:
            return texts.cast(kind), np.zeros(len(texts), np.bool_)
        except pa.ArrowInvalid:
            pass
    trimmed = pc.utf8_trim_whitespace(texts)
    nulls = _NO_CATEGORY if pa.types.is_string(kind) else _NULLS
    given = pc.if_else(pc.is_in(trimmed, nulls), None, trimmed)
    values = _cast(given, kind)
    wrong = pc.and_(pc.is_valid(given), pc.is_null(values))
    return values, np.asarray(wrong.to_numpy(zero_copy_only=False))


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        half = len(texts) // 2
        return pa.concat_arrays([_cast(texts[:half], kind), _cast(texts[half:], kind)])
