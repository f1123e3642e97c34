"""Whether a Transformer with each mechanism exports: `make bench-exports`, an hour, resumable.

Trains each with several seeds on the demo's data, exports it, and writes its part of
docs/mechanisms.md. What was found is in `.bench/exports/results.jsonl`; a run that is given again
goes on.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.attention.subjects import names, settings
from bench.page import table, write_part
from bench.results import Record, Results
from foretell.bundle.manifest import read
from foretell.data import reading
from foretell.data.panel import Panel
from foretell.demo.data import write_csv
from foretell.export.errors import ExportError
from foretell.export.write import export_checkpoint
from foretell.training.config import TrainingConfig
from foretell.training.train import train

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / ".bench" / "exports"
PAGE = ROOT / "docs" / "mechanisms.md"
ARCHITECTURE = "transformer"
SIZES: dict[str, Any] = {
    "context": 48,
    "horizon": 24,
    "d_model": 16,
    "heads": 4,
    "d_ff": 32,
    "encoder_layers": 2,
}
_HEAD = ("mechanism", "exported", "left out, natural", "largest error", "kinds compared")
_TEXT = """\
`make bench-exports` wrote this part: a Transformer of two encoder layers and 16 features with each
mechanism, trained for an epoch on the demo's data with {seeds} seeds, and exported. *Left out* are
natural windows in which rounding decides what is chosen, and *kinds compared* those of adversarial
windows; of each the worst seed that exported. The *largest error* is of a forecast
or of a weight; it may be more than 1e-5 where torch's own float32 errs as much.

{rows}"""


def exported(panel: Panel, name: str, seed: int) -> Record:
    """Train a model with a mechanism, and tell what its export found."""
    fields = settings(ARCHITECTURE, name, channels=len(panel.channels), **SIZES)
    own = fields.keys() - {"architecture", "channels", "context", "horizon"}
    config = TrainingConfig(
        arch=ARCHITECTURE,
        context=SIZES["context"],
        horizon=SIZES["horizon"],
        model={field: fields[field] for field in own},
        epochs=1,
        batch_size=128,
        learning_rate=2e-3,
        seed=seed,
    )
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "checkpoint"
        train(config, panel, checkpoint)
        try:
            bundle = export_checkpoint(checkpoint, Path(folder) / "models", anyway=True)
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


def write(results: Results, seeds: Sequence[int]) -> None:
    """Write the page's part, of what was found so far."""
    rows = []
    for name in names():
        keys = [f"{name} {seed}" for seed in seeds]
        found = [results.records[key] for key in keys if key in results.records]
        done = [record for record in found if "error" not in record]
        if not found:
            continue
        worst = ("",) * 3
        if done:
            worst = (
                f"{max(record['left_out'] for record in done):.1%}",
                f"{max(record['largest'] for record in done):.0e}",
                f"{min(record['compared'] for record in done):.0%}",
            )
        rows.append((f"`{name}`", f"{len(done)} of {len(found)}", *worst))
    write_part("exports", _TEXT.format(seeds=len(seeds), rows=table(_HEAD, rows)), PAGE)


def main() -> None:
    """Export what is not exported yet, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.mechanism_exports", description=__doc__)
    parser.add_argument("--seeds", type=int, default=4, help="trainings of each")
    parser.add_argument("--only", nargs="*", default=names(), help="mechanisms")
    given = parser.parse_args()
    torch.set_num_threads(1)
    data = FOLDER / "demo.csv"
    if not data.exists():
        write_csv(data)
    panel = reading.read(data)
    results = Results(FOLDER / "results.jsonl")
    seeds = range(given.seeds)
    for seed in seeds:
        for name in given.only:
            results.measure(f"{name} {seed}", partial(exported, panel, name, seed))
    write(results, seeds)


if __name__ == "__main__":
    main()
