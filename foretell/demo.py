"""The demo: models of real data, from nothing to a repository of verified bundles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foretell.bundle import layout
from foretell.bundle.manifest import CalibrationReport, Manifest, TestResult, read
from foretell.bundle.placement import promote
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.demo_data import write_csv
from foretell.export.errors import ExportError
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import load_info
from foretell.timeaxis.timestamps import render
from foretell.training.config import TrainingConfig
from foretell.training.errors import ResumeError
from foretell.training.progress import Progress
from foretell.training.train import train

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
# What is promised in the test split. Of the errors of the better baseline, at most:
_CLEARLY_LESS = {"mse": 0.70, "mae": 0.93}
MOST = {
    "patchtst": {"mse": 0.52, "mae": 0.77},
    "transformer": _CLEARLY_LESS,
    "autoformer": _CLEARLY_LESS,
}
# Of what came in the model's horizon, held by the intervals of a level:
HELD = {0.8: (0.75, 0.85), 0.95: (0.91, 0.98)}
# Training rounds otherwise on other processors, and ends a little elsewhere: what may be missing
# from each.
SLACK = 0.02
SLACK_HELD = 0.01


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
            its intervals hold too little or too much, or its graph differs.
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
            _export(name, checkpoint, repository)
        yield read(repository / name / layout.versions(repository, name)[-1])


def _train(architecture: str, panel: Panel, checkpoint: Path, progress: Progress) -> None:
    settings = TrainingConfig(arch=architecture, **SETTINGS | OWN[architecture])
    try:
        train(settings, panel, checkpoint, progress=progress)
    except ResumeError:
        # Left by another version of the demo.
        train(settings, panel, checkpoint, restart=True, progress=progress)


def _export(name: str, checkpoint: Path, repository: Path) -> None:
    # What intervals hold is known of a bundle: one that fails is never in the repository.
    with TemporaryDirectory() as scratch:
        bundle = export_checkpoint(checkpoint, Path(scratch), name=name)
        _check_intervals(name, read(bundle).calibration)
        promote(bundle, repository)


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
    missed = []
    for error, most in MOST[name].items():
        found = getattr(test.model, error)
        best = min(getattr(test.last_value, error), getattr(test.seasonal_naive, error))
        # A comparison that NaN fails.
        if not found <= (most + SLACK) * best:
            missed.append(
                f"test {error.upper()} {found:.3f}, the better baseline has {best:.3f}: "
                f"expected at most {most + SLACK:g} of it"
            )
    _refuse(name, missed)


def _check_intervals(name: str, report: CalibrationReport | None) -> None:
    parts = () if report is None else report.coverage
    held = {part.level: part.coverage for part in parts if part.first_step == 1}
    if not held.keys() >= HELD.keys():
        raise ExportError(f"{name}: what its intervals hold was not measured")
    _refuse(
        name,
        [
            f"its {level:.0%} intervals hold {held[level]:.1%} of the test split: "
            f"expected {least - SLACK_HELD:.0%} to {most + SLACK_HELD:.0%}"
            for level, (least, most) in HELD.items()
            if not least - SLACK_HELD <= held[level] <= most + SLACK_HELD
        ],
    )


def _refuse(name: str, missed: list[str]) -> None:
    if missed:
        raise ExportError(f"{name}: {'; '.join(missed)}")
