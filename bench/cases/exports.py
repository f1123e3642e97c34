"""Whether a Transformer with each mechanism exports, on several seeds."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.harness import KEPT, Result, Row, Run, kept
from bench.research.attention import names, settings
from foretell.bundle.manifest import read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.demo.data import write_csv
from foretell.export.errors import ExportError
from foretell.export.write import export_checkpoint
from foretell.training.config import TrainingConfig
from foretell.training.train import train

_SIZES: dict[str, Any] = {"d_model": 16, "heads": 4, "d_ff": 32, "encoder_layers": 2}
_SEEDS = 4


def measure(run: Run) -> Result:
    """Train each for an epoch on the demo's data, and export it; goes on where it stopped."""
    torch.set_num_threads(1)
    data = run.folder / "demo.csv"
    write_csv(data)
    panel = reading.read(data)
    results = run.folder / "exports.jsonl" if run.quick else KEPT / "exports.jsonl"
    rows: list[Row] = []
    for name in run.pick(names(), names()[:1]):
        if not run.wants(name):
            continue
        found = []
        for seed in range(run.pick(_SEEDS, 1)):
            folder = run.folder / f"{name}-{seed}"
            found.append(
                kept(results, f"{name} {seed}", partial(_export, panel, name, seed, folder))
            )
        done = [record for record in found if "error" not in record]
        row: dict[str, Any] = {"mechanism": f"`{name}`", "exported": f"{len(done)} of {len(found)}"}
        if done:
            row["left out, natural"] = f"{max(record['left_out'] for record in done):.1%}"
            row["largest error"] = max(record["largest"] for record in done)
            row["kinds compared"] = f"{min(record['compared'] for record in done):.0%}"
        rows.append(row)
    return Result({"exports": rows})


def _export(panel: Panel, name: str, seed: int, folder: Path) -> dict[str, Any]:
    sizes = {"context": 48, "horizon": 24, **_SIZES}
    fields = settings("transformer", name, channels=len(panel.channels), **sizes)
    own = fields.keys() - {"architecture", "channels", "context", "horizon"}
    config = TrainingConfig(
        arch="transformer",
        context=48,
        horizon=24,
        model={field: fields[field] for field in own},
        epochs=1,
        batch_size=128,
        learning_rate=2e-3,
        seed=seed,
    )
    train(config, panel, folder / "checkpoint")
    try:
        bundle = export_checkpoint(folder / "checkpoint", folder / "models", anyway=True)
    except ExportError as error:
        return {"error": str(error)}
    checks = read(bundle).verification.checks
    natural = [check for check in checks if "natural" in check.name]
    kinds = next(check for check in checks if "kinds" in check.name)
    return {
        "left_out": max(check.excluded / (check.windows + check.excluded) for check in natural),
        "largest": max(check.max_error for check in natural),
        "compared": 1 - kinds.max_error,
    }
