"""Models to check a GPU with: `python -m bench.gpu.prepare FOLDER`.

Takes the demo's checkpoints, exports each in every precision, and writes down what torch makes of
windows of the demo's data, and of ones far outside of it, in float64. Needs torch and no GPU.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import get_args

import numpy as np
import torch

from bench.gpu.subjects import NATURAL, bundle_name, save
from foretell.bundle.attention import AttentionStage
from foretell.bundle.bounds import limits
from foretell.bundle.manifest import Precision
from foretell.data.source import DataSource
from foretell.export.adversarial import adversarial
from foretell.export.comparison import Case, Reference
from foretell.export.data_windows import natural, windows_of
from foretell.export.reference import PlainModel
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import Checkpoint, load
from foretell.timeaxis.frequency import Frequency

_WINDOWS, _ADVERSARIAL_WINDOWS = 32, 8


def prepare(
    checkpoint: Path,
    data: Path | None,
    folder: Path,
    precisions: Iterable[Precision] = get_args(Precision),
) -> None:
    """Write the bundles and the reference of a model.

    Args:
        checkpoint: Of the model, whose folder has its name.
        data: The CSV that it was trained on, if it was moved.
        folder: Takes all.
        precisions: Of the bundles.
    """
    name, repository = checkpoint.name, folder / "repository"
    for precision in precisions:
        own = bundle_name(name, precision)
        export_checkpoint(checkpoint, repository, name=own, data=data, precision=precision)
    save(folder, name, _cases(load(checkpoint), data))


def _cases(checkpoint: Checkpoint, data: Path | None) -> dict[str, Case]:
    info, model = checkpoint
    source = DataSource.recorded(info.data)
    if source is None:
        raise SystemExit("a checkpoint without data has no natural windows")
    table = source.read(info.channels, Frequency.parse(info.frequency), data)
    windows = natural(windows_of(info, table), _WINDOWS, seed=1)
    within = limits(info.bounds, info.targets)
    exact, rounded = (
        PlainModel(model, info.scaler, kind, within) for kind in (torch.float64, torch.float32)
    )
    cases = {NATURAL: Case(windows, _smaller(model.stages, exact(windows)))}
    few = windows.take(slice(_ADVERSARIAL_WINDOWS))
    for kind in adversarial(few, info.scaler, 1, info.config.observed_steps):
        pair = (each(kind).without_maps(model.stages) for each in (exact, rounded))
        cases[kind.name] = Case(kind, *pair)
    return cases


def _smaller(stages: tuple[AttentionStage, ...], reference: Reference) -> Reference:
    """Maps in float32, a hundredth of what they may differ by."""
    maps = {stage.part("weights") for stage in stages}
    return Reference(
        {
            name: each.astype(np.float32) if name in maps else each
            for name, each in reference.outputs.items()
        }
    )


def main() -> None:
    """Prepare the demo's models."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.prepare", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".demo/gpu"))
    parser.add_argument("--demo", type=Path, default=Path(".demo"), help="of `foretell demo`")
    given = parser.parse_args()
    # What an older version wrote is not what is to be checked.
    shutil.rmtree(given.folder, ignore_errors=True)
    for checkpoint in sorted((given.demo / "checkpoints").iterdir()):
        print(checkpoint.name, flush=True)
        prepare(checkpoint, given.demo / "greensboro.csv", given.folder)


if __name__ == "__main__":
    main()
