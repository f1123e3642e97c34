"""Models that NeuralForecast trains for the tests, and the windows that it forecasts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.importers.saved import Request
from tests.importers.conformance import Case, Reference

CONTEXT, HORIZON, SERIES = 17, 11, 4
# Levels for networks that accept any level.
ANY_LEVELS = (0.05, 0.3, 0.5, 0.9)
STEPS: dict[str, Any] = {
    "hidden_size": 8,
    "n_head": 2,
    "conv_hidden_size": 12,
    "encoder_layers": 2,
}
PATCHES: dict[str, Any] = {
    "hidden_size": 8,
    "n_heads": 2,
    "linear_hidden_size": 12,
    "encoder_layers": 2,
    "patch_len": 6,
    "stride": 3,
}
# Served models are small, because exports are slow.
ONE = {"encoder_layers": 1}
AVERAGE = {"moving_avg_window": 5}
LAGS: dict[str, Any] = STEPS | {"factor": 2, "MovingAvg_window": 5}
CHANNELS: dict[str, Any] = {"n_series": SERIES, "hidden_size": 8, "n_heads": 2, "d_ff": 12}
# Arguments of training, which is short and silent.
QUIET: dict[str, Any] = {
    **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False),
    "enable_model_summary": False,
    "accelerator": "cpu",
    "devices": 1,
    "max_steps": 3,
}
Model = tuple[str, dict[str, Any]]


def _of(distribution: str) -> dict[str, Any]:
    """A loss of a distribution; the library returns mean, quantiles and parameters."""
    given = {"distribution": distribution, "return_params": True, "num_samples": 2, "level": [80]}
    return {"loss": ("DistributionLoss", given)}


# Three levels each; the library returns the middle one first.
_LEVELS = {"loss": ("MQLoss", {"level": [80]})}
_IMPLICIT = {"loss": ("IQLoss", {})}
REAL: dict[str, Model] = {
    "patchtst": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust", "revin_affine": True}),
    "before": (
        "PatchTST",
        PATCHES | {"batch_normalization": True, "scaler_type": "standard", "loss": "MSE"},
    ),
    "long": (
        "PatchTST",
        PATCHES
        | {"patch_len": 99, "res_attention": False, "activation": "relu", "dropout": 0.0}
        | {"revin_subtract_last": False, "learn_pos_embed": False},
    ),
    "bare": ("PatchTST", PATCHES | {"revin": False, "scaler_type": "minmax1"}),
    "dlinear": ("DLinear", AVERAGE | {"scaler_type": "revin"}),
    "itransformer": ("iTransformer", CHANNELS | {"scaler_type": "minmax"}),
    "decoupled": (
        "iTransformer",
        CHANNELS | {"use_norm": False, "scaler_type": "revin", "loss": "HuberLoss"},
    ),
    "transformer": (
        "VanillaTransformer",
        STEPS | ONE | {"scaler_type": "invariant", "decoder_layers": 2, "activation": "relu"},
    ),
    "autoformer": ("Autoformer", LAGS | ONE | {"scaler_type": "standard"}),
    "label": (
        "Autoformer",
        STEPS | {"decoder_input_size_multiplier": 0.3, "scaler_type": "robust", "factor": 1},
    ),
    "normal": (
        "PatchTST",
        PATCHES | ONE | {"scaler_type": "robust", "revin_affine": True} | _of("Normal"),
    ),
    "plain": ("PatchTST", PATCHES | {"revin_affine": True} | _of("StudentT")),
    "tails": ("DLinear", AVERAGE | {"scaler_type": "revin"} | _of("StudentT")),
    "channels": ("iTransformer", CHANNELS | {"scaler_type": "minmax1"} | _of("Normal")),
    "steps": ("VanillaTransformer", STEPS | {"scaler_type": "invariant"} | _of("StudentT")),
    "lags": ("Autoformer", LAGS | {"scaler_type": "standard"} | _of("Normal")),
    "levels": ("PatchTST", PATCHES | ONE | {"scaler_type": "minmax1"} | _LEVELS),
    "huber": (
        "Autoformer",
        LAGS | {"scaler_type": "standard", "loss": ("HuberMQLoss", {"quantiles": [0.5, 0.2, 0.7]})},
    ),
    "sines": ("DLinear", AVERAGE | {"scaler_type": "invariant"} | _LEVELS),
    "implicit": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust"} | _IMPLICIT),
    "within": ("PatchTST", PATCHES | {"loss": ("IQLoss", {"cos_embedding_dim": 8})}),
    "sine": ("DLinear", AVERAGE | {"scaler_type": "invariant", "loss": ("HuberIQLoss", {})}),
    "together": ("iTransformer", CHANNELS | {"scaler_type": "minmax1"} | _IMPLICIT),
}
COUNTS: dict[str, Model] = {
    "counts": ("DLinear", AVERAGE | {"scaler_type": "minmax"} | _of("NegativeBinomial")),
    "few": ("PatchTST", PATCHES | {"scaler_type": "standard"} | _of("NegativeBinomial")),
    "raw": ("VanillaTransformer", STEPS | _of("NegativeBinomial")),
    "rates": ("PatchTST", PATCHES | ONE | {"scaler_type": "robust"} | _of("Poisson")),
    "unscaled": ("DLinear", AVERAGE | _of("Poisson")),
}
LOCAL: dict[str, Model] = {
    "patchtst": ("PatchTST", PATCHES | {"revin_affine": True}),
    "implicit": ("PatchTST", PATCHES | _IMPLICIT),
    "quantiles": ("DLinear", AVERAGE | _LEVELS),
    "itransformer": ("iTransformer", CHANNELS),
}
# Models that are trained together, and the scaler of each of their series.
GROUPS: dict[str, tuple[dict[str, Model], str | None]] = {
    "real": (REAL, None),
    "counts": (COUNTS, None),
    **{scaler: (LOCAL, scaler) for scaler in ("standard", "robust", "robust-iqr", "minmax")},
}
SERVED = {
    "real": [
        *("patchtst", "dlinear", "itransformer", "transformer", "autoformer"),
        *("normal", "channels", "levels", "implicit"),
    ],
    "counts": ["counts", "rates"],
    **dict.fromkeys(("standard", "robust", "robust-iqr", "minmax"), ("quantiles",)),
}

Floats = NDArray[np.float32]


def windows() -> Floats:
    """16 windows, from random walks to extreme values."""
    random = np.random.default_rng(7)
    found = random.normal(size=(16, CONTEXT)).cumsum(axis=1)
    steps = np.arange(CONTEXT)
    found[1] = found[1] * 100 + 1000
    found[2] *= 1e-3
    found[3] = 3
    found[4] = 0
    found[5] = np.where(steps % 4 == 0, found[5], 2)
    found[6] = steps
    found[7] = np.sin(2 * np.pi * steps / 8)
    found[8] = np.where(steps == 16, 50, found[8])
    return found.astype(np.float32)


def frame(values: Floats) -> pd.DataFrame:
    """Series `[series, time]` as the library takes them, in another order."""
    times = pd.date_range("2024-01-01", periods=values.shape[1], freq="h")
    return pd.concat(
        [
            pd.DataFrame({"unique_id": f"s{i:02}", "ds": times, "y": values[i]})
            for i in reversed(range(len(values)))
        ]
    )


def train(
    models: Mapping[str, tuple[str, dict[str, Any]]],
    values: Floats,
    histories: Floats,
    folder: Path,
    local: str | None = None,
) -> dict[str, Floats]:
    """Train models for a few steps, save them, and let them forecast.

    Args:
        models: Class and arguments by alias; a loss is a name, or a name with arguments.
        values: `[series, time]` for the training.
        histories: `[16, context]`, histories of the forecasts.
        folder: Where to save.
        local: `local_scaler_type` of all of them.

    Returns:
        Columns of the library by alias, `[16, horizon, columns]`; for a network of any level, the
        columns of the levels in `ANY_LEVELS`.
    """
    expected: dict[str, Floats] = {}
    with warnings.catch_warnings():
        # Warnings of lightning and its libraries about each other.
        warnings.simplefilter("ignore")
        pytest.importorskip("neuralforecast")
        from neuralforecast import NeuralForecast
        from neuralforecast import models as kinds
        from neuralforecast.losses import pytorch as losses

        logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
        made = []
        for alias, (kind, arguments) in models.items():
            criterion = arguments.get("loss", "MAE")
            name, given = criterion if isinstance(criterion, tuple) else (criterion, {})
            loss = getattr(losses, name)(**given)
            sizes = {"h": HORIZON, "input_size": CONTEXT, "alias": alias, "learning_rate": 0.01}
            made.append(getattr(kinds, kind)(**{**sizes, **QUIET, **arguments, "loss": loss}))
        trained = NeuralForecast(models=made, freq="h", local_scaler_type=local)
        trained.fit(frame(values))
        # The library copies the models.
        everyone = trained.models
        for together in (1, SERIES):
            trained.models = [model for model in everyone if model.n_series == together]
            if not trained.models:
                continue
            parts = histories.reshape(-1, 16 if together == 1 else SERIES, CONTEXT)
            found = pd.concat([trained.predict(frame(part)) for part in parts])
            for model in trained.models:
                alias = model.alias
                if hasattr(model.loss, "quantile_layer"):
                    trained.models = [model]
                    expected[alias] = _level_columns(trained, parts)
                    continue
                own = [name for name in found if name == alias or name.startswith(f"{alias}-")]
                expected[alias] = found[own].to_numpy(np.float32).reshape(16, HORIZON, -1)
        # The library cannot save a model of distributions before it has forecast.
        trained.models = everyone
        trained.save(str(folder))
    return expected


def _level_columns(trained: Any, parts: Floats) -> Floats:
    """Columns of a model, forecast once for each level; the library interpolates other levels."""
    (model,) = trained.models
    predict, levels = model.predict, []
    for level in ANY_LEVELS:
        model.predict = partial(predict, quantiles=[level])
        found = pd.concat([trained.predict(frame(part)) for part in parts])
        levels.append(found[f"{model.alias}_ql{level}"].to_numpy(np.float32).reshape(16, HORIZON))
    model.predict = predict
    return np.stack(levels, axis=-1)


def walks(offset: float = 10.0) -> Floats:
    """Series `[series, time]` to learn from."""
    found = np.random.default_rng(0).normal(size=(SERIES, 60)).cumsum(axis=1)
    return found.astype(np.float32) + offset


@cache
def _forecasts(group: str, folder: Path) -> dict[str, Floats]:
    models, local = GROUPS[group]
    if group == "counts":
        # Without the negative values that the library refuses.
        return train(models, walks(50.0).round(), np.abs(windows()).round(), folder)
    return train(models, walks(), windows(), folder, local)


def refer(group: str, name: str, root: Path) -> Reference:
    """Train and save all models of a group, and forecast with one."""
    folder = root.parent / f"neuralforecast {group}"
    columns = _forecasts(group, folder)[name]
    kind, arguments = GROUPS[group][0][name]
    histories = np.abs(windows()).round() if group == "counts" else windows()
    together = SERIES if kind == "iTransformer" else 1

    def by_window(values: Floats) -> Floats:
        """`[series, steps, …]` as `[windows, steps, channels, …]`."""
        return values.reshape(-1, together, *values.shape[1:]).swapaxes(1, 2)

    clear = np.ones(16 // together, bool)
    if kind == "Autoformer":
        # All lags of a constant or a line correlate alike: rounding chooses among them.
        clear[[3, 4, 6]] = False
    loss, given = arguments.get("loss", "MAE"), {}
    if isinstance(loss, tuple):
        loss, given = loss
    forecast, parameter_columns, found = columns[..., 0], None, lambda parameters: parameters
    if loss == "DistributionLoss":
        # The first four columns are the mean and three quantiles, which are drawn.
        parameter_columns = columns[..., 4:]
        forecast = parameter_columns[..., -1 if given["distribution"] == "Poisson" else -2]
        if given["distribution"] == "NegativeBinomial":
            found, count, share = (
                _shares,
                parameter_columns[..., 0],
                parameter_columns[..., 1].astype(np.float64),
            )
            forecast = np.where(share < 0.99, count * share / (1 - share), np.nan)
            assert np.isfinite(forecast).mean() > 0.5
    elif loss in ("MQLoss", "HuberMQLoss"):
        parameter_columns = columns[..., [1, 0, 2]]
    elif "IQLoss" in loss:
        parameter_columns, forecast = columns, columns[..., ANY_LEVELS.index(0.5)]
    history = torch.from_numpy(by_window(histories[..., None])[..., 0].copy())
    parameters = None if parameter_columns is None else by_window(parameter_columns)
    levels = {"levels": ",".join(map(str, ANY_LEVELS))} if "IQLoss" in loss else {}
    request = Request(folder, "neuralforecast", member=f"{name}_0", arguments=levels)
    return Reference(request, history, by_window(forecast), parameters, (), clear, found)


def _shares(parameters: Tensor) -> Tensor:
    """Probabilities of a negative binomial from logits; the library rounds those near 1."""
    count, logits = parameters.unbind(-1)
    return torch.stack([count, logits.sigmoid()], dim=-1)


CASES = {
    f"neuralforecast {group} {name}": Case(partial(refer, group, name), name in SERVED[group])
    for group, (models, _) in GROUPS.items()
    for name in models
}
