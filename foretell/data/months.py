"""Names of months, in English, German, French, Spanish, Italian, Portuguese and Dutch."""

from __future__ import annotations

import re

import pandas as pd

_NAMES = (
    "january januar janvier enero gennaio janeiro januari",
    "february februar fevrier febrero febbraio fevereiro februari",
    "march marz maerz mrz mars marzo marco maart",
    "april avril abril aprile",
    "may mai mayo maggio maio mei",
    "june juni juin junio giugno junho",
    "july juli juillet julio luglio julho",
    "august aout agosto augustus",
    "september septembre septiembre setiembre settembre setembro",
    "october oktober octobre octubre ottobre outubro",
    "november novembre noviembre novembro",
    "december dezember decembre diciembre dicembre dezembro",
)
_ENGLISH = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_ACCENTS = str.maketrans("áäàâéèêíóôöúûüç", "aaaaeeeiooouuuc")
_WORD = re.compile(r"[^\W\d_]{3,10}\.?")
_ENGLISH_ONE = f"(?:{'|'.join(_ENGLISH)})"
# Texts between day, month and year.
_BETWEEN = re.compile(
    rf"(?i)(?<=\d)(?:st|nd|rd|th|er|º)?(?:[. ]+(?:of |de |del )?)(?={_ENGLISH_ONE})"
    rf"|(?<=[ ./-](?:{'|'.join(_ENGLISH)}))(?:[. ]+(?:de |del )?)(?=\d)"
    rf"|(?<= \d)(?:st|nd|rd|th)(?=,? \d)|(?<= \d\d)(?:st|nd|rd|th)(?=,? \d)"
)


def _beginnings() -> dict[str, int]:
    """Months by unambiguous beginnings of their names, of three letters or more."""
    found: dict[str, set[int]] = {}
    for i, names in enumerate(_NAMES):
        for name in names.split():
            for length in range(3, len(name) + 1):
                found.setdefault(name[:length], set()).add(i + 1)
    return {begin: months.pop() for begin, months in found.items() if len(months) == 1}


_MONTHS = _beginnings()


def month_of(name: str) -> int | None:
    """The number of a month, by its name or an abbreviation."""
    return _MONTHS.get(name.strip().rstrip(".").lower().translate(_ACCENTS))


def is_english(texts: pd.Series) -> bool:
    """Whether the only words of all texts are months in the form of `in_english`."""
    words = texts.str.extract(r"([^\W\d_]{3,})(.*)")
    return bool(words[0].isin(_ENGLISH).all() and not words[1].str.contains(r"^\.|of|de").any())


def in_english(text: str) -> str:
    """A date with the name of its month in English, such as 1 Jan 2024."""
    named = [word for word in _WORD.findall(text) if month_of(word) is not None]
    if len(named) != 1:
        return text
    month = month_of(named[0]) or 0
    plain = _BETWEEN.sub(" ", text.replace(named[0], _ENGLISH[month - 1]))
    return plain.replace(" ,", ",")
