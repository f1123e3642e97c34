"""Checkpoints in the form of the published code, made from models of ours with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from foretell.bundle.calendar import Calendar
from foretell.bundle.frequency import Frequency
from foretell.models.architectures import ARCHITECTURES, build
from foretell.models.forecaster import Forecaster
from foretell.models.importers.layouts import LAYOUTS, Layout, Source

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
    "residual_attention": True,
}
PATCHES: dict[str, Any] = {"patch": 6, "stride": 3}
FIELDS = {
    "autoformer": SIZES | SERIES | {"moving_average": 5, "factor": 2},
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
    model = build(ARCHITECTURES[architecture].model_validate(FIELDS[form] | changes))
    for name, tensor in model.state_dict().items():
        if name.endswith("running_var") or (name.endswith("norm.weight") and tensor.ndim == 1):
            tensor.uniform_(0.5, 1.5)
        elif tensor.is_floating_point() and ".tables." not in name:
            tensor.add_(torch.randn_like(tensor) * 0.1)
    return model.eval()


def layout(source: Source, architecture: str, **facts: Any) -> Layout:
    """The layout with these facts."""
    return next(
        each
        for each in LAYOUTS
        if source in each.sources
        and each.architecture == architecture
        and all(each.facts[name] == value for name, value in facts.items())
    )


def publish(model: Forecaster, form: Layout) -> dict[str, Tensor]:
    """The state_dict of a model under its published keys."""
    state: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        key, row = form.original(name)
        state[key] = (tensor[..., None] if row.pointwise else tensor).clone()
    return state


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
