"""Models of the demo: training, export and verification."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from foretell.bundle import layout
from foretell.bundle.manifest import Manifest, read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.data.table import Table
from foretell.demo.data import write_csv
from foretell.export.write import export_checkpoint
from foretell.timeaxis.timestamps import render
from foretell.training.config import TrainingConfig
from foretell.training.errors import ResumeError
from foretell.training.progress import Progress
from foretell.training.train import train

CONTEXT = 168
HORIZON = 24
# Settings of all trainings; `OWN` has those of each model.
SETTINGS: dict[str, Any] = {
    "context": CONTEXT,
    "horizon": HORIZON,
    "bounds": "global_irradiance=0:,direct_irradiance=0:,relative_humidity=0:100,wind_speed=0:,"
    "cloud_cover=0:10",
    "ema_decay": 0.98,
}
# Weather does not depend on the day of the week, and two epochs do not overfit, so that dropout is
# not needed. A validation split of ten weeks makes the intervals hold in another season.
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
        "ema_decay": 0.99,
    },
    "transformer": _OF_THE_HOUR,
    "autoformer": _OF_THE_HOUR | {"loss": "mae"},
}


def build(folder: Path, architectures: Sequence[str], progress: Progress) -> Iterator[Manifest]:
    """Train, export and verify each missing model.

    Args:
        folder: Target of `greensboro.csv`, `request.json`, `checkpoints/` and `repository/`.
        architectures: Architectures, which also name the models; the request is for the first.
        progress: Receives the progress of the trainings.

    Yields:
        Manifest of each model.

    Raises:
        ExportError: a model is no better than the baselines, or its graph differs.
    """
    data = folder / "greensboro.csv"
    if not data.exists():
        write_csv(data)
    panel = reading.read(data)
    write_request(architectures[0], panel.tables[0], folder / "request.json")
    repository = folder / "repository"
    for name in architectures:
        if not layout.versions(repository, name):
            checkpoint = folder / "checkpoints" / name
            if not checkpoint.exists():
                _train(name, panel, checkpoint, progress)
            export_checkpoint(checkpoint, repository, name=name)
        yield read(repository / name / layout.versions(repository, name)[-1])


def _train(architecture: str, panel: Panel, checkpoint: Path, progress: Progress) -> None:
    settings = TrainingConfig(arch=architecture, **SETTINGS | OWN[architecture])
    try:
        train(settings, panel, checkpoint, progress=progress)
    except ResumeError:
        # The unfinished training is from another version of the demo.
        train(settings, panel, checkpoint, restart=True, progress=progress)


def write_request(model: str, table: Table, path: Path) -> None:
    """Write the body of a request: three hours after the last week of the data."""
    series = {
        "name": "greensboro",
        "series": table.values[-CONTEXT:].tolist(),
        "frequency": str(table.frequency),
        "start_timestamp": render(table.timestamps[-CONTEXT:], table.utc_offset)[0],
    }
    request = {"model": model, "inputs": [series], "options": {"horizon": 3}}
    path.write_text(json.dumps(request))
