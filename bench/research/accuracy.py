"""Errors of trained recipes next to the published ones; continues where it stopped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from bench.harness import KEPT, Result, Row, Run, kept, records_of, spread
from foretell.data.reading import read
from foretell.models.batches import windows_that_fit
from foretell.models.checkpoint import load
from foretell.settings.given import training_of
from foretell.settings.presets import Preset, presets
from foretell.training.accuracy import evaluate
from foretell.training.preparation import prepare
from foretell.training.train import train
from foretell.training.windows import Windows

RESULTS = Path(__file__).with_name("accuracy.jsonl")
_SEEDS = 3
# Epochs without improvement after which a training ends, in place of the recipe's number.
_PATIENCE = 20


def measure(run: Run) -> Result:
    """Train each recipe whose data are in the folder of --data with some seeds."""
    torch.set_num_threads(1)
    results = run.folder / RESULTS.name if run.quick else RESULTS
    [folder] = run.data or [run.folder]
    files = {file.stem.lower(): file for file in folder.glob("*.csv")}
    for seed in range(run.pick(_SEEDS, 1)):
        for name, preset in presets().items():
            file = files.get(name.partition("/")[2].rpartition("-")[0])
            if file is None or not run.wants(name):
                continue
            key = f"{name} {seed}"
            state = KEPT / "accuracy" / key.replace("/", "-").replace(" ", "-")
            kept(results, key, partial(_train, preset, seed, file, state, quick=run.quick))
            kept(results, f"{key} whole", partial(_whole, preset, file, state))
    return Result({"accuracy": table(records_of(results))})


def _train(preset: Preset, seed: int, file: Path, folder: Path, *, quick: bool) -> dict[str, Any]:
    """Train a recipe, or resume its training, and measure it on its test split."""
    given = preset.settings | {"seed": seed}
    given["patience"] = min(given["patience"], _PATIENCE)
    if quick:
        given["epochs"] = 1
    info = train(training_of(given), read(file), folder, overwrite=True).info
    test, training = info.test, info.training
    assert test is not None
    assert training is not None
    found = {"mse": test.model.mse, "mae": test.model.mae, "windows": test.windows}
    found |= {"last_mse": test.last_value.mse, "last_mae": test.last_value.mae}
    if test.seasonal_naive is not None:
        found |= {"season_mse": test.seasonal_naive.mse, "season_mae": test.seasonal_naive.mae}
    course = {
        "epochs": training.epochs,
        "best": training.best_epoch,
        "precision": training.precision,
    }
    return found | course


def _whole(preset: Preset, file: Path, folder: Path) -> dict[str, Any]:
    """Errors over whole batches: the published code drops the last batch of the test split."""
    panel, settings = read(file), training_of(preset.settings)
    prepared = prepare(settings, panel)
    [span] = prepared.split.test
    spans = [span._replace(end=span.end - len(prepared.test) % settings.batch_size)]
    windows = Windows.of(prepared.config, panel, spans, prepared.scaler)
    model = load(folder).model
    found = evaluate(model, windows, windows_that_fit(model))
    return {"mse": found.mse, "mae": found.mae}


def table(records: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """A row for each recipe and precision."""
    by_recipe: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    for key, record in records.items():
        if not key.endswith(" whole"):
            whole = records.get(f"{key} whole")
            name, precision = key.split()[0], record.get("precision", "float32")
            by_recipe.setdefault((name, precision), []).append({**record, "whole": whole})
    rows: list[Row] = []
    for (name, precision), runs in by_recipe.items():
        preset, first = presets().get(name), runs[0]
        published = None if preset is None else preset.published
        linear = by_recipe.get((f"dlinear/{name.partition('/')[2]}", "float32"), [])
        row: dict[str, Any] = {
            "preset": f"`{name}`" + ("" if precision == "float32" else f", {precision}"),
            "ours": _errors(runs),
            "whole batches": _errors([each["whole"] for each in runs if each["whole"]]),
            "published": "" if published is None else "{:.3f} / {:.3f}".format(*published),
            "seeds": len(runs),
            "DLinear, ours": _errors(linear),
            "last value": f"{first['last_mse']:.3f} / {first['last_mae']:.3f}",
        }
        if "season_mse" in first:
            row["last season"] = f"{first['season_mse']:.3f} / {first['season_mae']:.3f}"
        row["windows"] = first["windows"]
        row["epochs"] = ", ".join(f"{each['epochs']} ({each['best']})" for each in runs)
        if "minutes" in first:
            row["minutes"] = round(mean(each["minutes"] for each in runs))
        rows.append(row)
    return rows


def _errors(runs: list[Mapping[str, Any]]) -> str:
    return " / ".join(spread(run[name] for run in runs) for name in ("mse", "mae")) if runs else ""
