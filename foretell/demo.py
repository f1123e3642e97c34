"""The demo: models of real data, from nothing to a repository of verified bundles."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

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
EPOCHS = 3


def build(folder: Path, architectures: Sequence[str], progress: Progress) -> Iterator[Manifest]:
    """Train, export and verify each model that is not there yet.

    Args:
        folder: Gets `greensboro.csv`, `request.json`, `checkpoints/` and `repository/`.
        architectures: One model is made of each, by its name; the request is to the first.
        progress: Is told of every epoch.

    Yields:
        The manifest of each model.

    Raises:
        ExportError: a model's forecasts are no better than the baselines, or its graph differs.
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
    settings = TrainingConfig(arch=architecture, context=CONTEXT, horizon=HORIZON, epochs=EPOCHS)
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
    bar = min(test.last_value.mse, test.seasonal_naive.mse)
    # A comparison that NaN fails.
    if not test.model.mse < bar:
        raise ExportError(
            f"{name}: test MSE {test.model.mse:.3f}, the better baseline has {bar:.3f}"
        )
