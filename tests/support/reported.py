"""A bundle that has everything a report shows."""

from pathlib import Path

import numpy as np

from foretell.bundle import evaluation, layout, manifest
from foretell.bundle.checksums import sha256
from foretell.bundle.evaluation import Evaluation
from foretell.bundle.results import Accuracy, TestResult
from tests.support.bundles import (
    Spec,
    channel_stage,
    lag_stage,
    mapless_stage,
    softmax_stage,
    write_bundle,
)

# A name that the page must escape.
HOSTILE = "<script>alert(1)</script>&"
SPEC = Spec(
    name="weather",
    channels=("load", HOSTILE),
    calibrated=2,
    example=12,
    with_calendar=True,
    stages=(softmax_stage(), lag_stage(), channel_stage(2), mapless_stage()),
)


def full_bundle(repository: Path) -> Path:
    folder = write_bundle(repository, SPEC)
    errors = np.linspace(0.1, 2.4, 24).reshape(3, 4, 2)
    levels = np.array([0.1, 0.5, 0.9])
    below = np.array([[0.1234, 0.2], [0.4, 0.3], [0.8, 0.7]])
    up_to = np.array([[0.1234, 0.2], [0.6, 0.7], [0.86, 0.8]])
    names = ("onnx", "last_value", "seasonal_naive")
    evaluation.write(folder, Evaluation(names, errors**2, errors, levels, below, up_to))
    about = manifest.read(folder)
    better, worse = Accuracy(mse=0.25, mae=0.375), Accuracy(mse=0.5, mae=0.625)
    changes = {
        "files": about.files | {layout.EVALUATION: sha256(folder / layout.EVALUATION)},
        "test": TestResult(windows=99, model=better, last_value=worse, seasonal_naive=worse),
    }
    written = about.model_copy(update=changes).model_dump_json()
    (folder / layout.MANIFEST).write_text(written)
    return folder
