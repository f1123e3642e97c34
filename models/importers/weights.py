"""Loading the weights of a published checkpoint into a model."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from foretell.models.forecaster import Forecaster
from foretell.models.importers.layouts import Layout
from foretell.models.importers.report import check_keys


def load_weights(model: Forecaster, layout: Layout, state: Mapping[str, Tensor]) -> None:
    """Load a published state_dict into a model.

    Args:
        model: The model, of the checkpoint's configuration.
        layout: The form of the keys.
        state: The state_dict under its published keys.

    Raises:
        ImporterError: keys are missing, unexpected or of another shape.
    """
    expected = model.state_dict()
    check_keys(layout, state, expected)
    ours: dict[str, Tensor] = {}
    for key, tensor in state.items():
        name = layout.translate(key)
        if name is not None:
            ours[name] = tensor.reshape(expected[name].shape).to(expected[name].dtype)
    # What is left out is BatchNorm's counter, which nothing reads.
    model.load_state_dict(ours, strict=False)
