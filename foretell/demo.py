"""The demo: models of real data, from nothing to a repository of verified bundles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretell.bundle import layout
from foretell.bundle.manifest import Manifest, TestResult, read
from foretell.bundle.timestamps import render
from foretell.demo_data import write_csv
from foretell.export.errors import ExportError
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import load_info
from foretell.models.data import reading
from foretell.models.data.panel import Panel
from foretell.models.data.table import Table
from foretell.models.training.config import TrainingConfig
from foretell.models.training.errors import ResumeError
from foretell.models.training.progress import Progress
from foretell.models.training.train import train

CONTEXT = 168
HORIZON = 24
# What all trainings have in common, and what each has of its own; the rest are defaults.
SETTINGS: dict[str, Any] = {
    "context": CONTEXT,
    "horizon": HORIZON,
    "bounds": "global_irradiance=0:,direct_irradiance=0:,relative_humidity=0:100,wind_speed=0:,"
    "cloud_cover=0:10",
    "average": 0.98,
}
# Weather knows no day of the week, and two epochs bring no overfitting that dropout prevents. These
# two forecast another season worse: ten weeks of validation make their intervals hold there.
_OF_THE_HOUR: dict[str, Any] = {
    "splits": (0.6, 0.2, 0.2),
    "epochs": 2,
    "learning_rate": 2e-3,
    "calendar": ("hour",),
    "model": {"dropout": 0.0},
}
OWN: dict[str, dict[str, Any]] = {
    "patchtst": {
        "epochs": 4,
        "batch_size": 64,
        "learning_rate": 4e-3,
        "huber_delta": 0.75,
        "average": 0.99,
    },
    "transformer": _OF_THE_HOUR,
    "autoformer": _OF_THE_HOUR | {"loss": "mae"},
}
# Of the errors of the better baseline, squared and absolute.
MOST = {"mse": 0.75, "mae": 0.95}


def build(folder: Path, architectures: Sequence[str], progress: Progress) -> Iterator[Manifest]:
    """Train, export and verify each model that is not there yet.

    Args:
        folder: Gets `greensboro.csv`, `request.json`, `checkpoints/` and `repository/`.
        architectures: One model is made of each, by its name; the request is to the first.
        progress: Is told of every epoch.

    Yields:
        The manifest of each model.

    Raises:
        ExportError: a model's forecasts are not clearly better than the baselines in both errors,
            or its graph differs.
    """
    data = folder / "greensboro.csv"
    if not data.exists():
        write_csv(data)
    panel = reading.read(data)
    _write_request(architectures[0], panel.tables[0], folder / "request.json")
    repository = folder / "repository"
    for name in architectures:
        if not layout.versions(repository, name):
            checkpoint = folder / "checkpoints" / name
            if not checkpoint.exists():
                _train(name, panel, checkpoint, progress)
            _check_accuracy(name, load_info(checkpoint).test)
            export_checkpoint(checkpoint, repository, name=name)
        yield read(repository / name / layout.versions(repository, name)[-1])


def _train(architecture: str, panel: Panel, checkpoint: Path, progress: Progress) -> None:
    settings = TrainingConfig(arch=architecture, **SETTINGS | OWN[architecture])
    try:
        train(settings, panel, checkpoint, progress=progress)
    except ResumeError:
        # Left by another version of the demo.
        train(settings, panel, checkpoint, restart=True, progress=progress)


def _write_request(model: str, table: Table, path: Path) -> None:
    """A body to POST: the last week of the data, three hours to forecast."""
    series = {
        "name": "greensboro",
        "series": table.values[-CONTEXT:].tolist(),
        "frequency": str(table.frequency),
        "start_timestamp": render(table.timestamps[-CONTEXT:], table.utc_offset)[0],
    }
    request = {"model": model, "inputs": [series], "options": {"horizon": 3}}
    path.write_text(json.dumps(request))


def _check_accuracy(name: str, test: TestResult | None) -> None:
    if test is None or test.seasonal_naive is None:
        raise ExportError(f"{name}: its accuracy was not measured")
    for error, most in MOST.items():
        found = getattr(test.model, error)
        best = min(getattr(test.last_value, error), getattr(test.seasonal_naive, error))
        # A comparison that NaN fails.
        if not found <= most * best:
            raise ExportError(
                f"{name}: test {error.upper()} {found:.3f}, the better baseline has {best:.3f}: "
                f"expected at most {most:g} of it"
            )
