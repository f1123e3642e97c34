"""Cells that mean a missing value."""

from __future__ import annotations

# Cells that mean a missing number or a missing name of a series.
NAMELESS = frozenset(
    ("", "#N/A", "#NA", "-", "--", "<NA>", "?", "N/A", "NAN", "NONE", "NULL", "NaN", "None", "-NaN")
) | frozenset(("-nan", "n/a", "na", "nan", "none", "null"))
# Cells that mean a missing category. "none" may be one, such as that of no promotion.
NO_CATEGORY = NAMELESS - {"none", "None", "NONE"}
_WORDS = ("n.a.", "nat", "nil", "null", "none", "missing", "unavailable", "unknown")
MISSING = (
    NAMELESS
    | {each for word in _WORDS for each in (word, word.upper(), word.title())}
    | {"NA", "Na", "N/a", "Nan", "NaT", ".", "..", "*", ":", "\\N", "\u2013", "\u2014"}
)
