"""Checkpoints in the form of the published code, made from models of ours with random weights."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from foretell.importers.keys import KeyMap
from foretell.importers.published import CODE_BASES
from foretell.importers.tslib_keys import GLOBAL_TOKENS
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.timeaxis.calendar import Calendar
from foretell.timeaxis.frequency import Frequency
from tests import golden
from tests.importers.conformance import Case, Reference

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
FIELDS: dict[str, dict[str, Any]] = {
    "autoformer": SIZES
    | SERIES
    | {"moving_average": 5, "attention": {"mechanism": "autocorrelation", "factor": 2}},
    "transformer": SIZES | SERIES,
    "patchtst": SIZES | {"patch": 6, "stride": 3},
    "official": SIZES | OFFICIAL,
    "dlinear": {"channels": 3, "context": 24, "horizon": 6, "moving_average": 5},
    "itransformer": SIZES | {"calendar": SERIES["calendar"]},
    "timexer": SIZES | {"patch": 6, "unpatched": "newest", "calendar": SERIES["calendar"]},
}
_TOKENS = {"seq_len": "24", "n_heads": "2", "activation": "gelu"}
_MARKS = {"embed": "timeF", "freq": "h"}
# Arguments that the files of these models lack.
ARGUMENTS = {
    "autoformer": _TOKENS | {"label_len": "12", "pred_len": "6", "factor": "2", "moving_avg": "5"},
    "transformer": _TOKENS | {"label_len": "12", "pred_len": "6"},
    "patchtst": _TOKENS,
    "dlinear": {"moving_avg": "5", "individual": "0"},
    "itransformer": _TOKENS | _MARKS | {"marks": "1"},
    "timexer": _TOKENS | _MARKS | {"use_norm": "1"},
    "official": {"seq_len": "24", "revin": "1", "padding_patch": "end", "subtract_last": "0"},
}
# Parts of keys by which a form is recognised.
FORMS = {
    "autoformer": (".temporal_embedding.embed.weight",),
    "transformer": (".temporal_embedding.embed.weight",),
    "patchtst": ("encoder.norm.1.",),
    "official": (".norm_attn.1.",),
    "dlinear": (),
    "itransformer": (),
    "timexer": (),
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


def keys(form: str, *parts: str) -> KeyMap:
    """Names of the published keys of a form, which is recognised by parts of keys."""
    source, name = ("patchtst", "patchtst") if form == "official" else ("tslib", form)
    state = dict.fromkeys(parts or FORMS[form], torch.ones(1))
    return CODE_BASES[source].architectures[name].keys(state)


def publish(model: Forecaster, form: KeyMap) -> dict[str, Tensor]:
    """The state_dict of a model under its published keys, with convolutions of kernel 1."""
    state = {form.original(name): each.clone() for name, each in model.state_dict().items()}
    convolutions = ("conv1.weight", "conv2.weight")
    return {
        key: each[..., None] if key.endswith(convolutions) else each for key, each in state.items()
    }


def inputs(model: Forecaster) -> Inputs:
    """Two random windows."""
    torch.manual_seed(1)
    config = model.config
    history = torch.randn(2, config.context, config.channels)
    if config.calendar is None:
        return Inputs(history)
    features = len(config.calendar.features)
    past, future = (torch.rand(2, steps, features) for steps in (config.context, config.horizon))
    return Inputs(history, past, future)


def forecast(model: Forecaster) -> Tensor:
    """Its forecasts of them."""
    with torch.inference_mode():
        return model.predict(inputs(model)).forecast


def save(folder: Path, model: Forecaster, form: KeyMap) -> Path:
    path, state = folder / "checkpoint.pth", publish(model, form)
    if GLOBAL_TOKENS in state:
        state[GLOBAL_TOKENS] = state[GLOBAL_TOKENS][None, :, None]
    torch.save(state, path)
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


def refer(name: str, _: Path) -> Reference:
    """Forecasts of the published code, stored next to its checkpoint."""
    case = golden.case(name)
    request = replace(case.request, scaler=None, unscaled=True)
    history, *calendars = case.inputs("io")
    return Reference(request, history, case.arrays("io")["out"], calendars=(*calendars,))


CASES = {
    f"published {name}": Case(
        partial(refer, name),
        # Models without a calendar can be served for windows of any time.
        name in ("tslib_dlinear", "tslib_itransformer_nomarks", "patchtst_official_revin"),
    )
    for name in golden.FORECASTERS
}
