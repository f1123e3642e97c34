"""The code bases that checkpoints are read from: a new one is one file and one entry here."""

from __future__ import annotations

from foretell.models.importers import patchtst, time_series_library
from foretell.models.importers.arguments import COMMON

CODE_BASES = {code.name: code for code in (*time_series_library.CODE_BASES, *patchtst.CODE_BASES)}
ARCHITECTURES = sorted({each.name for code in CODE_BASES.values() for each in code.architectures})
OPTIONS = dict(COMMON)
ALIASES: dict[str, str] = {}
for _code in CODE_BASES.values():
    OPTIONS |= _code.options
    ALIASES |= _code.aliases
