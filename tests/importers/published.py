"""Checkpoints in the form of the published code, made from models of ours with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from foretell.importers.code_base import Architecture
from foretell.importers.layouts import Layout
from foretell.importers.registry import CODE_BASES
from foretell.importers.weights import load_weights
from foretell.models.forecaster import ARCHITECTURES, Forecaster
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency

CHANNELS = ("load", "wind", "OT")
SIZES: dict[str, Any] = {
    "channels": 3,
    "context": 24,
    "horizon": 6,
    "d_model": 8,
    "heads": 2,
    "d_ff": 12,
    "encoder_layers": 2,
}
SERIES: dict[str, Any] = {
    "label": 12,
    "decoder_layers": 1,
    "calendar": Calendar.for_frequency(Frequency.parse("h"), "scaled"),
}
OFFICIAL: dict[str, Any] = {
    "patch": 6,
    "stride": 3,
    "patch_bias": True,
    "positions": "learned",
    "norm": "batch",
    "final_norm": None,
    "attention": "residual-softmax",
    "attention_dropout": 0.0,
    "head_dropout": 0.0,
}
PATCHES: dict[str, Any] = {"patch": 6, "stride": 3}
_LAGS = {"mechanism": "autocorrelation", "factor": 2}
FIELDS = {
    "autoformer": SIZES | SERIES | {"moving_average": 5, "attention": _LAGS},
    "transformer": SIZES | SERIES,
    "patchtst": SIZES | PATCHES,
    "official": SIZES | OFFICIAL,
}
# What the files of these models do not tell.
ARGUMENTS = {
    "autoformer": {
        "seq_len": "24",
        "label_len": "12",
        "pred_len": "6",
        "n_heads": "2",
        "factor": "2",
        "moving_avg": "5",
        "activation": "gelu",
    },
    "transformer": {
        "seq_len": "24",
        "label_len": "12",
        "pred_len": "6",
        "n_heads": "2",
        "activation": "gelu",
    },
    "patchtst": {"seq_len": "24", "n_heads": "2", "activation": "gelu"},
    "official": {"seq_len": "24", "revin": "1", "padding_patch": "end", "subtract_last": "0"},
}


def make(form: str, **changes: Any) -> Forecaster:
    """A model in eval mode whose parameters and statistics are all different."""
    torch.manual_seed(7)
    architecture = "patchtst" if form == "official" else form
    model = ARCHITECTURES[architecture].model_validate(FIELDS[form] | changes).build()
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var") or (name.endswith("norm.weight") and tensor.ndim == 1):
            tensor.uniform_(0.5, 1.5)
        elif tensor.is_floating_point() and ".tables." not in name:
            tensor.add_(torch.randn_like(tensor) * 0.1)
    return model.eval()


def layout(source: str, architecture: str, **told: Any) -> Layout:
    """The layout that tells these arguments."""
    return next(
        each
        for each in entry(source, architecture).layouts
        if all(each.arguments[name] == value for name, value in told.items())
    )


def entry(source: str, architecture: str) -> Architecture:
    """What the importer knows of an architecture of a code base."""
    return next(each for each in CODE_BASES[source].architectures if each.name == architecture)


def publish(model: Forecaster, form: Layout) -> dict[str, Tensor]:
    """The state_dict of a model under its published keys."""
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        key, row = form.original(name)
        state[key] = (tensor[..., None] if row.pointwise else tensor).clone()
    return state


def filled(model: Forecaster, form: Layout, state: Mapping[str, Tensor]) -> Forecaster:
    """Another model of the same configuration, with the weights of a checkpoint."""
    torch.manual_seed(99)
    other = model.config.build().eval()
    load_weights(other, form, state)
    return other


def inputs(model: Forecaster) -> tuple[Tensor, ...]:
    """Two random windows."""
    torch.manual_seed(1)
    history = torch.randn(2, model.config.context, model.config.channels)
    if model.config.calendar is None:
        return (history,)
    return history, torch.rand(2, model.config.context, 4), torch.rand(2, model.config.horizon, 4)


def save(folder: Path, model: Forecaster, form: Layout) -> Path:
    path = folder / "checkpoint.pth"
    torch.save(publish(model, form), path)
    return path


def write_csv(folder: Path, rows: int = 200, channels: tuple[str, ...] = CHANNELS) -> Path:
    random = np.random.default_rng(3)
    table = pd.DataFrame(
        {name: random.normal(i * 10, 1 + i, rows) for i, name in enumerate(channels)}
    )
    table.insert(0, "date", pd.date_range("2024-01-01", periods=rows, freq="h"))
    path = folder / "train.csv"
    table.to_csv(path, index=False)
    return path
