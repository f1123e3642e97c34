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

from bench.gpu.subjects import NATURAL, Case, bundle_name, save
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import AttentionStage, Precision
from foretell.export.adversarial import adversarial
from foretell.export.comparison import Reference
from foretell.export.reference import compute_reference
from foretell.export.windows import natural, windows_of
from foretell.export.write import export_checkpoint
from foretell.models.checkpoint import Checkpoint, load

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
    if info.data is None:
        raise SystemExit("a checkpoint without data has no natural windows")
    table = info.data.read(info.channels, Frequency.parse(info.frequency), data)
    windows = natural(windows_of(info, table), _WINDOWS, seed=1)
    exact = _smaller(model.stages, compute_reference(model, info.scaler, windows))
    cases = {NATURAL: Case(windows, exact)}
    few = windows.take(slice(_ADVERSARIAL_WINDOWS))
    for kind in adversarial(few, info.scaler, seed=1):
        cases[kind.name] = Case(
            kind,
            _without_weights(model.stages, compute_reference(model, info.scaler, kind)),
            _without_weights(
                model.stages, compute_reference(model, info.scaler, kind, torch.float32)
            ),
        )
    return cases


def _smaller(stages: tuple[AttentionStage, ...], reference: Reference) -> Reference:
    """Dense weights in float32, a hundredth of what they may differ by."""
    dense = {name for stage in stages if stage.kind == "softmax" for name in stage.outputs}
    return Reference(
        {
            name: each.astype(np.float32) if name in dense else each
            for name, each in reference.outputs.items()
        }
    )


def _without_weights(stages: tuple[AttentionStage, ...], reference: Reference) -> Reference:
    """What is compared on adversarial windows: the forecast and the lags."""
    left = {name for stage in stages if stage.kind == "softmax" for name in stage.outputs}
    return Reference({name: each for name, each in reference.outputs.items() if name not in left})


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
