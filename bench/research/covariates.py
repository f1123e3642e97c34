"""Bike rentals with and without weather and holidays of the horizon; continues where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bench.harness import KEPT, Result, Row, Run, kept, records_of, spread
from foretell.data.panel import Panel
from foretell.data.reading import Reading, read
from foretell.models.batches import windows_that_fit
from foretell.models.config import ARCHITECTURES
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Inputs
from foretell.settings.given import training_of
from foretell.training.accuracy import evaluate
from foretell.training.preparation import prepare
from foretell.training.train import train

RESULTS = Path(__file__).with_name("covariates.jsonl")
TARGET = "bikers"
WEATHER = ("temp", "hum", "windspeed", "weathersit")
FACTS = ("holiday", "workingday")
# As docs/guides/bikes.md reads the table.
READING = Reading(time_column=("time",), channels=(TARGET,), missing="ffill", max_gap=24)
_SEEDS = 3
_SIZES = {"d_model": 32, "heads": 2, "d_ff": 64, "encoder_layers": 2, "dropout": 0.0}
_MODELS: dict[str, dict[str, Any]] = {
    "transformer": _SIZES,
    "patchtst": _SIZES,
    "timexer": _SIZES,
    "dlinear": {},
}
_RECIPE: dict[str, Any] = {
    "context": 168,
    "horizon": 24,
    "loss": "mae",
    "epochs": 10,
    "batch_size": 64,
}


def measure(run: Run) -> Result:
    """Train each model with some seeds, with and without covariates, on --data bikes.csv."""
    torch.set_num_threads(1)
    results = run.folder / RESULTS.name if run.quick else RESULTS
    [file] = run.data
    known = READING.model_copy(update={"future_covariates": (*WEATHER, *FACTS)})
    panels = {"without": read(file, READING), "with": read(file, known)}
    for seed in range(run.pick(_SEEDS, 1)):
        for name in _MODELS:
            if name not in ARCHITECTURES or not run.wants(name):
                continue
            for covariates, panel in panels.items():
                key = f"{name} {covariates} {seed}"
                folder = KEPT / "covariates" / f"{name}-{seed}"
                kept(results, key, partial(_train, name, seed, panel, folder, quick=run.quick))
    return Result({"covariates": table(records_of(results))})


def _train(name: str, seed: int, panel: Panel, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Errors in bikes an hour, also with the weather of the last hour for the whole horizon.

    With covariates a decoder of them is trained beside the model without, which is kept.
    """
    given = _RECIPE | {"arch": name, "seed": seed}
    if panel.covariates is None:
        given["model"] = _MODELS[name]
    else:
        given |= {"network": folder, "model": {"covariate_neighbours": 3}}
        folder = folder.with_name(f"{folder.name}-with")
    if quick:
        given["epochs"] = 1
    settings = training_of(given)
    checkpoint = train(settings, panel, folder, overwrite=True)
    info, model = checkpoint.info, checkpoint.model
    test, training = info.test, info.training
    assert test is not None
    assert test.seasonal_naive is not None
    assert training is not None
    unit = info.target_scaler.std[0]
    found = {"mae": test.model.mae * unit, "season": test.seasonal_naive.mae * unit}
    if panel.covariates is not None:
        windows = prepare(settings, panel).test
        persisted = evaluate(Persisted(model), windows, windows_that_fit(model))
        found["persisted"] = persisted.mae * unit
    return found | {"epochs": training.epochs, "best": training.best_epoch}


class Persisted:
    """A model that reads the last weather of the history instead of a forecast of the weather.

    Args:
        model: Model of the covariates of `READING`.
    """

    def __init__(self, model: Forecaster) -> None:
        self.model = model

    def __call__(self, history: Tensor, /, *others: Tensor | None) -> Tensor:
        """Forecast; arguments as in `Inputs`."""
        inputs = Inputs(history, *others)
        past, ahead = inputs.history_covariates, inputs.future_covariates
        assert past is not None
        assert ahead is not None
        weather = past[:, -1:, : len(WEATHER)].expand(-1, ahead.shape[1], -1)
        ahead = torch.cat([weather, ahead[..., len(WEATHER) :]], dim=-1)
        forecast: Tensor = self.model(*inputs._replace(future_covariates=ahead))
        return forecast


def table(records: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each model: errors in bikes an hour, and their ratios to those without."""
    rows: list[Row] = []
    for name in dict.fromkeys(key.split()[0] for key in records):
        runs = {
            covariates: [
                record for key, record in records.items() if key.startswith(f"{name} {covariates} ")
            ]
            for covariates in ("without", "with")
        }
        if not all(runs.values()):
            continue
        errors = {
            "without covariates": [each["mae"] for each in runs["without"]],
            "with covariates": [each["mae"] for each in runs["with"]],
            "with the last weather": [each["persisted"] for each in runs["with"]],
        }
        base = float(np.mean(errors["without covariates"]))
        row: dict[str, Any] = {"model": f"`{name}`"}
        for column, values in errors.items():
            row[column] = spread(values)
        row["ratio"] = round(float(np.mean(errors["with covariates"])) / base, 3)
        row["ratio, last weather"] = round(
            float(np.mean(errors["with the last weather"])) / base, 3
        )
        row["last day"] = round(runs["with"][0]["season"], 1)
        row["seeds"] = len(runs["with"])
        rows.append(row)
    return rows
