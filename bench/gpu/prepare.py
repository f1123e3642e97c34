"""Models to check a GPU with: `python -m bench.gpu.prepare FOLDER`.

Takes the demo's checkpoints, exports each in every precision, and writes down what torch makes of
windows of the demo's data, and of ones far outside of it, in float64. Needs torch and no GPU.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

import torch

from bench.gpu.subjects import NATURAL, Case, bundle_name, save
from bundle import layout
from bundle.frequency import Frequency
from bundle.manifest import AttentionStage, Precision
from export.adversarial import adversarial
from export.comparison import Reference
from export.reference import compute_reference
from export.windows import natural, windows_of
from export.write import export_checkpoint
from models.checkpoint import Checkpoint, load

PRECISIONS: tuple[Precision, ...] = ("float32", "float16", "bfloat16")
_WINDOWS, _ADVERSARIAL_WINDOWS = 64, 8


def prepare(
    checkpoint: Path,
    data: Path | None,
    folder: Path,
    precisions: Iterable[Precision] = PRECISIONS,
) -> None:
    """Write the bundles and the reference of a model, but for those that are there.

    Args:
        checkpoint: Of the model, whose folder has its name.
        data: The CSV that it was trained on, if it was moved.
        folder: Takes all.
        precisions: Of the bundles.
    """
    name, repository = checkpoint.name, folder / "repository"
    for precision in precisions:
        own = bundle_name(name, precision)
        if not layout.versions(repository, own):
            export_checkpoint(checkpoint, repository, name=own, data=data, precision=precision)
    if not (folder / "references" / f"{name}.npz").exists():
        save(folder, name, _cases(load(checkpoint), data))


def _cases(checkpoint: Checkpoint, data: Path | None) -> dict[str, Case]:
    info, model = checkpoint
    if info.data is None:
        raise SystemExit("a checkpoint without data has no natural windows")
    table = info.data.read(info.channels, Frequency.parse(info.frequency), data)
    windows = natural(windows_of(info, table), _WINDOWS, seed=1)
    cases = {NATURAL: Case(windows, compute_reference(model, info.scaler, windows))}
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
    for checkpoint in sorted((given.demo / "checkpoints").iterdir()):
        print(checkpoint.name, flush=True)
        prepare(checkpoint, given.demo / "greensboro.csv", given.folder)


if __name__ == "__main__":
    main()
