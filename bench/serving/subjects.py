"""The models that are served, in each form a contender takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from bench.contenders import Contenders
from bench.serving.bodies import Body, Floats
from bench.sizes import SCALER, SIZES, Size
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.models.forecaster import Forecaster
from foretell.service.engine.runtime import Runtime

# PatchTST 336→96 with 7 channels; the last one has next to nothing to compute.
SUBJECTS = (
    *SIZES[:2],
    Size(
        "PatchTST 336→96, d 4, one layer",
        SIZES[0].config.model_copy(
            update={"d_model": 4, "heads": 1, "d_ff": 4, "encoder_layers": 1}
        ),
    ),
)
NAME = "patchtst"
_WINDOWS = 256


@dataclass(frozen=True)
class Subject:
    """A model on disk.

    Attributes:
        name: It is served under.
        size: The model.
        repository: Our bundle of it.
        checkpoint: Its weights.
        graph: What `torch.onnx.export` makes of it.
        windows: Histories, `[window, context, channels]`.
        forecast: Of the first, by torch.
    """

    name: str
    size: Size
    repository: Path
    checkpoint: Path
    graph: Path
    windows: Floats
    forecast: Floats

    @property
    def bundle(self) -> Path:
        """Our graph."""
        return self.repository / self.name / "1" / "forecast.onnx"

    def served(self, form: str) -> Path:
        """What a contender is given."""
        path: Path = getattr(self, form)
        return path

    def write_body(self, body: Body, path: Path, windows: int) -> Path:
        """Write a request for the first windows."""
        # Through float64 at three decimals: float32 would be written with nine digits.
        values = self.windows[:windows].astype(float).round(3)
        path.write_text(json.dumps(body(values), separators=(",", ":")))
        return path


def export(size: Size, checkpoint: Path, repository: Path, name: str) -> Forecaster:
    """Write a model's weights and our bundle of it; returns the model.

    Args:
        size: The model.
        checkpoint: The folder for its weights.
        repository: Takes the bundle.
        name: It is served under.
    """
    model = size.model()
    names = tuple(f"channel-{index}" for index in range(size.config.channels))
    info = CheckpointInfo(config=size.config, channels=names, frequency="h", scaler=SCALER)
    save(checkpoint, model, info)
    export_checkpoint(checkpoint, repository, name=name)
    return model


def prepare(size: Size, folder: Path, repository: Path, name: str) -> Subject:
    """Write a model in every form.

    Args:
        size: The model.
        folder: Made for the checkpoint and the plain graph.
        repository: Takes the bundle.
        name: It is served under.
    """
    folder.mkdir(parents=True)
    model = export(size, folder / "checkpoint", repository, name)
    graph = Contenders(size, Runtime("cpu"), folder).graphs["plain export"]
    # Three decimals, as measurements have: 18 kB of JSON a window.
    inputs = size.inputs(_WINDOWS)
    windows = inputs[0].round(decimals=3)
    with torch.inference_mode():
        forecast = model(windows[:1], *(part[:1] for part in inputs[1:]))[0]
    return Subject(
        name=name,
        size=size,
        repository=repository,
        checkpoint=folder / "checkpoint",
        graph=graph,
        windows=windows.numpy(),
        forecast=forecast.numpy(),
    )
