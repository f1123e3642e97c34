"""Reference cases: windows, and outputs of the plain model in torch.

A file can hold them for machines without torch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.attention import AttentionStage
from foretell.bundle.errors import BundleError
from foretell.export.comparison import Case, Reference
from foretell.export.window_set import WindowSet

NATURAL = "natural"
_WINDOWS, _ADVERSARIAL_WINDOWS = 32, 8
Cases = Mapping[str, Case]
Arrays = dict[str, NDArray[np.generic]]


def of_checkpoint(checkpoint: Path, data: Path | None) -> Cases:
    """Compute cases of a checkpoint: natural windows (synthetic ones without data) and adversarial.

    Args:
        checkpoint: Folder of the checkpoint.
        data: Current path of the training data, if the file was moved; for a checkpoint that
            names no data, any of its channels.

    Raises:
        CheckpointError: the checkpoint cannot be read.
        DataError: the data cannot be read, or differ from the training data.
    """
    import torch

    from foretell.bundle.bounds import limits
    from foretell.export.adversarial import adversarial
    from foretell.export.data_windows import data_of, natural, synthetic, windows_of
    from foretell.export.reference import PlainModel
    from foretell.models.checkpoint import load

    info, model = load(checkpoint)
    panel = data_of(info, data)
    if panel is None:
        windows = synthetic(info, _WINDOWS, seed=1)
    else:
        windows = natural(windows_of(info, panel), _WINDOWS, seed=1)
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
    """A reference with maps in float32, whose rounding is a hundredth of their tolerance."""
    maps = {stage.part("weights") for stage in stages}
    outputs = reference.outputs.items()
    return Reference(
        {name: each.astype(np.float32) if name in maps else each for name, each in outputs}
    )


def save(cases: Cases, path: Path) -> None:
    """Write cases to a file."""
    arrays: Arrays = {}
    for kind, case in cases.items():
        arrays |= {f"{kind}/{key}": part for key, part in case.windows.inputs.items()}
        for word, reference in (("exact", case.exact), ("rounded", case.rounded)):
            outputs = {} if reference is None else reference.outputs
            arrays |= {f"{kind}/{word}/{key}": output for key, output in outputs.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        np.savez_compressed(file, allow_pickle=False, **arrays)


def read(path: Path) -> Cases:
    """Read the cases of a file.

    Raises:
        BundleError: the file cannot be read.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays: Arrays = dict(file)
    except (OSError, ValueError) as error:
        raise BundleError(f"{path}: {getattr(error, 'strerror', None) or error}") from error
    return {
        kind: _case(kind, arrays) for kind in dict.fromkeys(key.split("/")[0] for key in arrays)
    }


def _case(kind: str, arrays: Arrays) -> Case:
    def parts(prefix: str) -> Iterator[tuple[str, NDArray[np.generic]]]:
        for key, part in arrays.items():
            if key.startswith(prefix):
                yield key.removeprefix(prefix), part

    inputs = {name: part.astype(np.float32) for name, part in parts(f"{kind}/") if "/" not in name}
    exact, rounded = dict(parts(f"{kind}/exact/")), dict(parts(f"{kind}/rounded/"))
    return Case(WindowSet(kind, inputs), Reference(exact), Reference(rounded) if rounded else None)
