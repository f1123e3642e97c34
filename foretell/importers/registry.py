"""What checkpoints are read from: a new code base, or library, is one file and one entry here."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.importers import patchtst, time_series_library
from foretell.importers.arguments import COMMON, Option

CODE_BASES = {code.name: code for code in (*time_series_library.CODE_BASES, *patchtst.CODE_BASES)}
# Libraries that save a model in a folder, which a module here of the same name reads, and what is
# asked for where their folders do not tell.
FOLDERS: Mapping[str, Mapping[str, Option]] = {
    "huggingface": {
        "num_parallel_samples": Option(str, "paths to draw, or 0 for the path of the means"),
        "time_features": Option(str, "features of the date, such as hour,day_of_week, in order"),
        "static_categorical": Option(str, "static categorical features of all series, in order"),
        "static_real": Option(str, "static real features of all series, in order"),
    },
    "neuralforecast": {
        "levels": Option(str, "quantiles of an implicit quantile network, such as 0.1,0.5,0.9"),
    },
}
ARCHITECTURES = sorted({each.name for code in CODE_BASES.values() for each in code.architectures})
OPTIONS = dict(COMMON)
ALIASES: dict[str, str] = {}
for _code in CODE_BASES.values():
    OPTIONS |= _code.options
    ALIASES |= _code.aliases
