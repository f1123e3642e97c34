"""Forecasts of counts whose level shifts, by each count head: `python -m bench.counts [--write]`.

Trains a small model with each head on a generated table of six series, whose levels shift between
5 and 500, exports it, and prints a part of docs/intervals.md; `--write` puts it there.
"""

from __future__ import annotations

import argparse
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from bench.page import table, write_part
from foretell.bundle.manifest import read as read_manifest
from foretell.data.reading import read
from foretell.export.data_windows import windows_of
from foretell.export.runtime import Graph
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import load
from foretell.training.config import TrainingConfig
from foretell.training.train import train

PAGE = Path(__file__).parent.parent / "docs" / "intervals.md"
CONTEXT, HORIZON = 48, 12
HEADS = ("poisson", "negative-binomial")
MODELS: dict[str, dict[str, Any]] = {
    "dlinear": {"moving_average": 25},
    "patchtst": {"patch": 8, "stride": 4, "d_model": 16, "heads": 2, "d_ff": 32},
}
_LOWEST, _HIGHEST = 5, 500
# Levels of histories, by which forecasts are compared with what came.
_BANDS = (0, 20, 100, np.inf)
_TEXT = """\
`python -m bench.counts --write` wrote this table: 6,000 hourly counts of six series, as Poisson or
negative binomial (of ten successes) draws them, with a cycle of a day and a level between 5 and 500
that is another one after {least} to {most} hours. Context {context}, horizon {horizon}, {epochs}
epochs; a tenth of the rows is for validation. *Forecast by actual* is the median of test windows
whose level does not shift, by the level that their history ends with. Of a negative binomial the
mean counts a shift of a low level to a high one, by which its forecasts are larger.

{rows}"""


def counts(rows: int, least: int, most: int, seed: int, *, dispersed: bool) -> pd.DataFrame:
    """Six series, each of so many rows, whose levels last so many hours."""
    random = np.random.default_rng(seed)
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    daily = 1 + 0.3 * np.sin(2 * np.pi * np.arange(rows) / 24)
    found = []
    for name in "abcdef":
        lengths = random.integers(least, most, -(-rows // least))
        shifts = np.exp(random.uniform(np.log(_LOWEST), np.log(_HIGHEST), len(lengths)))
        mean = np.repeat(shifts, lengths)[:rows] * daily
        drawn = (
            random.negative_binomial(10, 10 / (10 + mean)) if dispersed else random.poisson(mean)
        )
        found.append(pd.DataFrame({"unique_id": name, "ds": times, "y": drawn}))
    return pd.concat(found)


def measure(data: Path, folder: Path, arch: str, head: str, epochs: int) -> list[str]:
    """What 80% intervals held in the test split, and forecasts next to what came by level."""
    settings = TrainingConfig(
        arch=arch,
        context=CONTEXT,
        horizon=HORIZON,
        epochs=epochs,
        device="cpu",
        model=MODELS[arch] | {"head": head},
    )
    panel = read(data)
    train(settings, panel, folder / "checkpoint")
    bundle = export_checkpoint(folder / "checkpoint", folder / "models", anyway=True)
    report = read_manifest(bundle).calibration
    if report is None:
        raise SystemExit(f"{arch}, {head}: the bundle has no calibration")
    info, _ = load(folder / "checkpoint")
    windows = windows_of(info, panel)
    batch = windows.batch(torch.arange(len(windows)))
    forecast = Graph(bundle / "forecast.onnx").forecast(batch.history.numpy()).mean(axis=(1, 2))
    actual = batch.target.numpy().mean(axis=(1, 2))
    # A day, and half of one.
    before = batch.history[:, -24:].numpy().mean(axis=(1, 2))
    late = batch.history[:, -HORIZON:].numpy().mean(axis=(1, 2))
    steady = np.abs(np.log((late + 1) / (before + 1))) < 0.4
    steady &= np.abs(np.log((actual + 1) / (before + 1))) < 0.4
    ratios = [
        np.median((forecast / actual)[steady & (before >= low) & (before < high)])
        for low, high in pairwise(_BANDS)
    ]
    held = next(part for part in report.coverage if part.level == 0.8)
    return [f"{held.coverage:.1%}", *(f"{ratio:.2f}" for ratio in ratios)]


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.counts", description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write it into {PAGE.name}")
    parser.add_argument("--seed", type=int, default=0, help="of the table")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--least", type=int, default=30, help="hours of a level")
    parser.add_argument("--most", type=int, default=90, help="likewise")
    parser.add_argument("--arch", nargs="*", default=[*MODELS], choices=MODELS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for dispersed in (False, True):
        drawn = "negative binomial" if dispersed else "Poisson"
        for arch in given.arch:
            for head in HEADS:
                with tempfile.TemporaryDirectory() as name:
                    data = Path(name) / "counts.csv"
                    table_of = counts(
                        1000, given.least, given.most, given.seed, dispersed=dispersed
                    )
                    table_of.to_csv(data, index=False)
                    found = measure(data, Path(name), arch, head, given.epochs)
                rows.append([drawn, arch, head, *found])
                print(*rows[-1], flush=True)
    bands = ("forecast by actual, level below 20", "20 to 100", "above")
    columns = ("counts", "model", "`model.head`", "held by 80%", *bands)
    text = _TEXT.format(
        least=given.least,
        most=given.most,
        context=CONTEXT,
        horizon=HORIZON,
        epochs=given.epochs,
        rows=table(columns, rows),
    )
    if given.write:
        write_part("counts", text, PAGE)
    else:
        print(text)


if __name__ == "__main__":
    main()
