"""The models that are measured, and the forms in which they are run."""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from torch.export import Dim

from foretell.export.graphs import OPSET, trace
from foretell.export.rewrites import inference_form
from foretell.export.serving_form import ServingForm
from foretell.export.window_set import arrays_of
from foretell.export.write import export_checkpoint
from foretell.models.architectures.autoformer import AutoformerConfig
from foretell.models.architectures.patchtst import PatchTSTConfig
from foretell.models.architectures.transformer import TransformerConfig
from foretell.models.checkpoint import CheckpointInfo, save
from foretell.models.forecaster import Forecaster
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests.support.variants import Size, scaler_of

_SERIES: dict[str, Any] = {
    "channels": 7,
    "context": 96,
    "horizon": 96,
    "label": 48,
    "calendar": Calendar.for_frequency(Frequency.parse("h"), "scaled"),
}
_SMALL: dict[str, Any] = {"d_model": 64, "heads": 8, "d_ff": 256, "encoder_layers": 2}
_LARGE: dict[str, Any] = {"d_model": 512, "heads": 8, "d_ff": 2048, "encoder_layers": 2}
_PATCHES: dict[str, Any] = {"channels": 7, "context": 336, "horizon": 96, "encoder_layers": 3}
_LITTLE = _PATCHES | {"d_model": 4, "heads": 1, "d_ff": 4, "encoder_layers": 1}
_LONG = _SERIES | {"context": 720}
SIZES = (
    Size("PatchTST 336→96, d 16", PatchTSTConfig(**_PATCHES, d_model=16, heads=4, d_ff=128)),
    Size("PatchTST 336→96, d 128", PatchTSTConfig(**_PATCHES, d_model=128, heads=16, d_ff=256)),
    Size("Transformer 96→96, d 64", TransformerConfig(**_SERIES, **_SMALL)),
    Size("Transformer 96→96, d 512", TransformerConfig(**_SERIES, **_LARGE)),
    Size("Autoformer 96→96, d 64", AutoformerConfig(**_SERIES, **_SMALL)),
    Size("Autoformer 96→96, d 512", AutoformerConfig(**_SERIES, **_LARGE)),
    Size("Autoformer 720→96, d 64", AutoformerConfig(**_LONG, **_SMALL)),
)
QUICK = (SIZES[0], SIZES[4])
# The last one has very little to compute.
SERVED = (*SIZES[:2], Size("PatchTST 336→96, d 4, one layer", PatchTSTConfig(**_LITTLE)))
NAME = "patchtst"
START = "2024-01-01T00:00:00"
Floats = NDArray[np.float32]
Body = Callable[[Floats], dict[str, Any]]


def trace_forecast(size: Size, path: Path) -> None:
    """Write foretell's graph of a forecast."""
    form = ServingForm(inference_form(size.model()), scaler_of(size), "forecast")
    onnx.save(trace(form), path)


def export_plain(size: Size, path: Path) -> None:
    """Write the graph of an unchanged model by `torch.onnx.export`."""
    model = size.model()
    example = tuple(part for part in size.inputs(batch=2) if part is not None)
    form = ServingForm(model, scaler_of(size), "forecast")
    batch = Dim("batch", min=1)
    others = tuple({0: batch} for _ in example[1:])
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model,
            example,
            dynamo=True,
            opset_version=OPSET,
            dynamic_shapes=({0: batch}, others) if others else ({0: batch},),
            input_names=form.input_names,
            output_names=("forecast",),
            verbose=False,
        )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    onnx.save(program.model_proto, path)


def feeds(size: Size, batch: int) -> dict[str, NDArray[Any]]:
    """Random inputs of a model's graphs, by name."""
    return arrays_of(size.inputs(batch))


def save_checkpoint(size: Size, folder: Path) -> Forecaster:
    """Write a model with random weights as a checkpoint; returns it."""
    model = size.model()
    names = tuple(f"channel-{index}" for index in range(size.config.channels))
    info = CheckpointInfo(config=size.config, channels=names, frequency="h", scaler=scaler_of(size))
    save(folder, model, info)
    return model


@dataclass(frozen=True)
class Subject:
    """A model on disk, in the forms that servers take.

    Attributes:
        name: The name that it is served under.
        size: The model.
        checkpoint: Its weights.
        repository: Repository with its bundle.
        graph: Its graph by `torch.onnx.export`.
        windows: Histories, `[window, context, channels]`.
        forecast: Forecast of the first history, by torch.
    """

    name: str
    size: Size
    checkpoint: Path
    repository: Path
    graph: Path
    windows: Floats
    forecast: Floats

    def write_body(self, body: Body, path: Path, windows: int) -> Path:
        """Write a request for the first windows."""
        # Through float64 at three decimals: float32 would be written with nine digits.
        values = self.windows[:windows].astype(float).round(3)
        path.write_text(json.dumps(body(values), separators=(",", ":")))
        return path


def prepare(
    size: Size,
    folder: Path,
    name: str = NAME,
    repository: Path | None = None,
    *,
    plain: bool = False,
) -> Subject:
    """Write a model in every form; the plain graph only if requested."""
    folder.mkdir(parents=True)
    repository = repository or folder / "repository"
    model = save_checkpoint(size, folder / "checkpoint")
    export_checkpoint(folder / "checkpoint", repository, name=name)
    if plain:
        export_plain(size, folder / "plain.onnx")
    inputs = size.inputs(256)
    # Three decimals, as measurements have: 18 kB of JSON a window.
    windows = inputs.history.round(decimals=3)
    calendars = (None if part is None else part[:1] for part in inputs[1:])
    with torch.inference_mode():
        forecast = model(windows[:1], *calendars)[0]
    graph = folder / "plain.onnx"
    checkpoint = folder / "checkpoint"
    return Subject(name, size, checkpoint, repository, graph, windows.numpy(), forecast.numpy())


def ours(windows: Floats, model: str = "") -> dict[str, Any]:
    """The body of `POST /forecast`, an input a window."""
    inputs = [{"series": window.tolist()} for window in windows]
    return {"model": model, "inputs": inputs} if model else {"inputs": inputs}
