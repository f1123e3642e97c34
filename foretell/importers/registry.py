"""What checkpoints are read from: a new source is one file and one entry here."""

from __future__ import annotations

from collections.abc import Mapping

from foretell.importers.arguments import Option

# Code that saves a state_dict alone, which `published` reads, and its architectures.
CODE_BASES = ("tslib", "autoformer", "tfb", "patchtst")
ARCHITECTURES = ("autoformer", "dlinear", "itransformer", "patchtst", "transformer")
# Libraries that save a model in a folder, which a module here of the same name reads, and what has
# to be given where their folders do not have it.
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
