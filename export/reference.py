"""What the graphs must equal: the plain model, in float64."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from bundle.manifest import Scaler
from export.serving_form import ServingForm
from export.windows import WindowSet
from models.forecaster import Forecaster

_BATCH = 64


@dataclass(frozen=True)
class Reference:
    """Outputs of the plain model on a set of windows, by output name of `explain.onnx`.

    Attributes:
        outputs: Each `[batch, …]`.
    """

    outputs: dict[str, NDArray[np.generic]]

    @property
    def forecast(self) -> NDArray[np.float64]:
        """`[batch, horizon, channels]` in the user's units."""
        return self.outputs["forecast"].astype(np.float64)


def compute_reference(
    model: Forecaster, scaler: Scaler, windows: WindowSet, dtype: torch.dtype = torch.float64
) -> Reference:
    """Run the plain model, not its inference form; float32 tells what torch's own rounding does."""
    form = ServingForm(copy.deepcopy(model), scaler, "explain").to(dtype).eval()
    parts: dict[str, list[NDArray[np.generic]]] = {name: [] for name in form.output_names}
    with torch.inference_mode():
        for batch in windows.batches(_BATCH):
            tensors = (
                None if part is None else torch.from_numpy(part).to(dtype) for part in batch.inputs
            )
            for name, output in zip(form.output_names, form(*tensors), strict=True):
                parts[name].append(output.numpy())
    return Reference({name: np.concatenate(pieces) for name, pieces in parts.items()})
