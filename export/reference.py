"""What the graphs must equal: the plain model, in float64."""

from __future__ import annotations

import copy

import numpy as np
import torch
from numpy.typing import NDArray

from foretell.bundle.manifest import Scaler
from foretell.export.comparison import Reference
from foretell.export.serving_form import ServingForm
from foretell.export.window_set import WindowSet
from foretell.models.forecaster import Forecaster

_BATCH = 64


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
