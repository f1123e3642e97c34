"""The reference of the graphs: the plain model in float64."""

from __future__ import annotations

import copy

import torch

from foretell.bundle.bounds import Limits
from foretell.bundle.scaler import Scaler
from foretell.export.comparison import Reference
from foretell.export.serving_form import GraphKind, ServingForm
from foretell.export.window_set import WindowSet
from foretell.models.forecaster import Forecaster


class PlainModel:
    """The model as it was trained, not its inference form.

    Args:
        model: Trained model, which is not changed.
        scaler: Standardisation of the model.
        dtype: Type of the arithmetic; float32 shows torch's own rounding.
        limits: Limits of forecasts; None for no limits.
        shows: Whether to return attention. Without it, a model that chooses nothing makes no maps,
            which takes half of the time.
    """

    def __init__(
        self,
        model: Forecaster,
        scaler: Scaler,
        dtype: torch.dtype = torch.float64,
        limits: Limits | None = None,
        *,
        shows: bool = True,
    ) -> None:
        chooses = any(stage.choices for stage in model.stages)
        kind: GraphKind = "explain" if shows or chooses else "forecast"
        form = ServingForm(copy.deepcopy(model), scaler, kind, limits)
        self._form = form.to(dtype).eval()
        self._dtype = dtype

    def __call__(self, windows: WindowSet) -> Reference:
        """The outputs of a batch: all of them, or those of the forecast graph."""
        tensors = (
            torch.from_numpy(windows.inputs[name]).to(self._dtype)
            for name in self._form.input_names
        )
        with torch.inference_mode():
            outputs = self._form(*tensors)
        names = self._form.output_names
        return Reference(
            {name: output.numpy() for name, output in zip(names, outputs, strict=True)}
        )
