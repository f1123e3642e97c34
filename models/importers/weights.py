"""Filling a model with the weights of a published checkpoint."""

from __future__ import annotations

import math
from collections.abc import Mapping

from torch import Tensor

from foretell.models.forecaster import Forecaster
from foretell.models.importers.infer import attention_scales
from foretell.models.importers.layouts import Layout
from foretell.models.importers.report import check_keys

_TABLE = "patch_embedding.position_embedding.pe"


def fill(model: Forecaster, layout: Layout, state: Mapping[str, Tensor]) -> None:
    """Load a published state_dict into a model.

    Args:
        model: The model, of the checkpoint's configuration.
        layout: The form of the keys.
        state: The state_dict under its published keys.

    Raises:
        ImporterError: keys are missing, unexpected or of another shape.
    """
    expected = model.state_dict()
    state = _place_positions(state, expected)
    check_keys(layout, state, expected)
    ours: dict[str, Tensor] = {}
    for key, tensor in state.items():
        name = layout.translate(key)
        if name is not None:
            ours[name] = tensor.reshape(expected[name].shape).to(expected[name].dtype)
    _fold_scales(ours, layout, state, model.config.d_model // model.config.heads)
    # What is left out is BatchNorm's counter, which nothing reads.
    model.load_state_dict(ours, strict=False)


def _fold_scales(
    ours: dict[str, Tensor], layout: Layout, state: Mapping[str, Tensor], width: int
) -> None:
    """Scale queries where a trained factor stands in for `width ** -0.5`."""
    for key, scale in attention_scales(state).items():
        # A float32 has no more digits of the usual factor.
        if math.isclose(scale, width**-0.5, rel_tol=1e-6):
            continue
        for part in ("weight", "bias"):
            name = layout.translate(key.removesuffix("sdp_attn.scale") + f"W_Q.{part}")
            if name is not None:
                ours[name] = (ours[name].double() * (scale / width**-0.5)).float()


def _place_positions(
    state: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Leave out the Time-Series-Library's table of positions, or keep the trained rows in use."""
    placed = dict(state)
    table = placed.pop(_TABLE, None)
    positions = expected.get("branches.0.positions")
    if table is not None and positions is not None:
        placed[_TABLE] = table[0, : len(positions)]
    return placed
