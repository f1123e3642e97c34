"""The models that a GPU is checked with, and what they must give there.

They are made where torch is, and used where it need not be:

    repository/<name>/<version>/    bundles; those in half precision are called <name>-<precision>
    references/<name>.npz           windows of a model, and what torch makes of them in float64
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.export.comparison import Case, Reference
from foretell.export.window_set import WindowSet
from foretell.service.arrays import FUTURE_CALENDAR, HISTORY, HISTORY_CALENDAR

Arrays = dict[str, NDArray[np.generic]]

NATURAL = "natural"
INPUTS = (HISTORY, HISTORY_CALENDAR, FUTURE_CALENDAR)


@dataclass(frozen=True)
class Subject:
    """A bundle, and what it must give.

    Attributes:
        folder: The bundle.
        manifest: Its manifest.
        cases: By kind of windows.
    """

    folder: Path
    manifest: Manifest
    cases: Mapping[str, Case]

    @property
    def name(self) -> str:
        """As a report calls it."""
        return self.manifest.name


def bundle_name(name: str, precision: str) -> str:
    """What the bundle of a model in a precision is called."""
    return name if precision == "float32" else f"{name}-{precision}"


def subjects(folder: Path) -> list[Subject]:
    """All of them.

    Raises:
        BundleError: there is none, or its reference is not there.
    """
    repository = folder / "repository"
    found = [
        _read(folder, repository / name / version)
        for name in layout.model_names(repository)
        for version in layout.versions(repository, name)[-1:]
    ]
    if not found:
        raise BundleError(f"{repository}: there is no bundle; `make gpu-subjects` writes some")
    return found


def save(folder: Path, name: str, cases: Mapping[str, Case]) -> None:
    """Write the cases of a model."""
    arrays: Arrays = {}
    for kind, case in cases.items():
        for key, part in zip(INPUTS, case.windows.inputs, strict=True):
            if part is not None:
                arrays[f"{kind}/{key}"] = part
        for word, reference in (("exact", case.exact), ("rounded", case.rounded)):
            if reference is not None:
                for key, output in reference.outputs.items():
                    arrays[f"{kind}/{word}/{key}"] = output
    (folder / "references").mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "references" / f"{name}.npz", allow_pickle=False, **arrays)


def _read(folder: Path, bundle: Path) -> Subject:
    described = manifest.read(bundle)
    name = described.name.removesuffix(f"-{described.precision}")
    path = folder / "references" / f"{name}.npz"
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except OSError as error:
        raise BundleError(f"{path}: {error.strerror or error}") from error
    kinds = dict.fromkeys(key.split("/")[0] for key in arrays)
    return Subject(bundle, described, {kind: _case(kind, arrays) for kind in kinds})


def _case(kind: str, arrays: Arrays) -> Case:
    inputs = (arrays.get(f"{kind}/{key}") for key in INPUTS)
    windows = WindowSet(kind, *inputs)  # type: ignore[arg-type]
    rounded = dict(_outputs(f"{kind}/rounded/", arrays))
    return Case(
        windows,
        Reference(dict(_outputs(f"{kind}/exact/", arrays))),
        Reference(rounded) if rounded else None,
    )


def _outputs(prefix: str, arrays: Arrays) -> Iterator[tuple[str, NDArray[np.generic]]]:
    for key, output in arrays.items():
        if key.startswith(prefix):
            yield key.removeprefix(prefix), output
