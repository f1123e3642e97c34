"""Models that NeuralForecast trains for the tests, and the windows that it forecasts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from click.testing import CliRunner
from numpy.typing import NDArray

from foretell.commands.import_ import command
from foretell.models.forecaster import Forecaster

CONTEXT, HORIZON, SERIES = 17, 11, 4
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
# Levels that networks are asked for which take any.
TOLD = (0.05, 0.3, 0.5, 0.9)
CHANNELS: dict[str, Any] = {"n_series": SERIES, "hidden_size": 8, "n_heads": 2, "d_ff": 12}

Floats = NDArray[np.float32]


def windows() -> Floats:
    """Sixteen of the lengths of a context, from a walk to what no series is."""
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
    asked: Floats,
    folder: Path,
    local: str | None = None,
) -> dict[str, Floats]:
    """Train models for a few steps, save them, and let them forecast.

    Args:
        models: By alias the class and its arguments; the loss by its name, or with its own.
        values: `[series, time]` to learn from.
        asked: `[16, context]` to forecast from.
        folder: Where to save.
        local: `local_scaler_type` of all of them.

    Returns:
        By alias `[16, horizon, columns]`, all that the library says; of a network that takes any
        level, what it says of each of `TOLD`.
    """
    quiet = {
        **dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar"), False),
        "enable_model_summary": False,
        "accelerator": "cpu",
        "devices": 1,
        "max_steps": 3,
    }
    expected: dict[str, Floats] = {}
    with warnings.catch_warnings():
        # What lightning and its libraries say of each other.
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
            made.append(getattr(kinds, kind)(**{**sizes, **quiet, **arguments, "loss": loss}))
        trained = NeuralForecast(models=made, freq="h", local_scaler_type=local)
        trained.fit(frame(values))
        # Copies of what it was made of.
        everyone = trained.models
        for together in (1, SERIES):
            trained.models = [model for model in everyone if model.n_series == together]
            if not trained.models:
                continue
            parts = asked.reshape(-1, 16 if together == 1 else SERIES, CONTEXT)
            found = pd.concat([trained.predict(frame(part)) for part in parts])
            for model in trained.models:
                alias = model.alias
                if hasattr(model.loss, "quantile_layer"):
                    trained.models = [model]
                    expected[alias] = _told(trained, parts)
                    continue
                own = [name for name in found if name == alias or name.startswith(f"{alias}-")]
                expected[alias] = found[own].to_numpy(np.float32).reshape(16, HORIZON, -1)
        # Before it forecasts, it cannot save a model of distributions.
        trained.models = everyone
        trained.save(str(folder))
    return expected


def _told(trained: Any, parts: Floats) -> Floats:
    """What one model says of each level: asked itself, the library interpolates eleven others."""
    (model,) = trained.models
    predict, told = model.predict, []
    for level in TOLD:
        model.predict = partial(predict, quantiles=[level])
        found = pd.concat([trained.predict(frame(part)) for part in parts])
        told.append(found[f"{model.alias}_ql{level}"].to_numpy(np.float32).reshape(16, HORIZON))
    model.predict = predict
    return np.stack(told, axis=-1)


def walks(offset: float = 10.0) -> Floats:
    """Series `[series, time]` to learn from."""
    found = np.random.default_rng(0).normal(size=(SERIES, 60)).cumsum(axis=1)
    return found.astype(np.float32) + offset


def adopt(folder: Path, name: str, repository: Path, *others: str) -> str:
    """Make a bundle of a saved model by the command; returns what that says."""
    options = ["--from", "neuralforecast", "--member", f"{name}_0", "--to", str(repository)]
    result = CliRunner().invoke(command, [str(folder), *options, "--name", name, *others])
    assert result.exit_code == 0, result.output
    return result.output


def forecast(model: Forecaster, kind: str, asked: Floats) -> Floats:
    """What an adopted model forecasts of windows, `[16, horizon]`."""
    with torch.inference_mode():
        return by_series(model(torch.from_numpy(inputs(kind, asked).copy())).numpy())


def inputs(kind: str, asked: Floats) -> Floats:
    """What a model of a class reads of windows, `[windows, context, channels]`."""
    if kind == "iTransformer":
        return asked.reshape(-1, SERIES, CONTEXT).swapaxes(1, 2)
    return asked[..., None]


def by_series(forecast: Floats) -> Floats:
    """`[windows, horizon, channels, …]` as `[series, horizon, …]`."""
    return forecast.swapaxes(1, 2).reshape(16, HORIZON, *forecast.shape[3:])


def assert_close(found: Floats, expected: Floats) -> None:
    """Within a relative 1e-5 of the largest step of each series, `[series, horizon, …]`."""
    scale = np.abs(expected).max(axis=1, keepdims=True)
    assert (np.abs(found - expected) / np.maximum(scale, 1e-3)).max() < 1e-5
