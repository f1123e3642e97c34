"""Registry of the sources of checkpoints: a new source is one module and one entry here."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.importers.arguments import Option

# Code bases that save a plain state_dict, which `published` reads, and their architectures.
CODE_BASES = ("tslib", "autoformer", "tfb", "patchtst")
ARCHITECTURES = ("autoformer", "dlinear", "itransformer", "patchtst", "timexer", "transformer")
# Libraries that save a model in a folder, which the module of the same name reads, and options for
# arguments that their folders lack.
FOLDERS: Mapping[str, Mapping[str, Option]] = {
    "huggingface": {
        "num_parallel_samples": Option(str, "paths to sample, or 0 for the path of the means"),
        "time_features": Option(str, "features of the date, such as hour,day_of_week, in order"),
        "static_categorical": Option(str, "static categorical features of all series, in order"),
        "static_real": Option(str, "static real features of all series, in order"),
    },
    "neuralforecast": {
        "levels": Option(str, "quantiles of an implicit quantile network, such as 0.1,0.5,0.9"),
    },
}
