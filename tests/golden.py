"""Reference numbers of the published code, in a folder beside the repository."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle.scaler import Scaler
from foretell.importers.convert import Imported, import_checkpoint
from foretell.importers.registry import ARCHITECTURES
from foretell.importers.saved import Request
from foretell.models.forecaster import Forecaster
from foretell.models.inputs import Explained

SHARED = Path(__file__).resolve().parent.parent.parent / "shared"

AUTOFORMERS = (
    "tslib_autoformer_timef",
    "tslib_autoformer_dec_longer",
    "tslib_autoformer_dec_shorter",
    "tslib_autoformer_odd",
    "autoformer_official",
    "autoformer_official_odd",
)
SOFTMAX = (
    "tslib_transformer_timef",
    "tslib_transformer_learned",
    "tslib_patchtst",
    "patchtst_official_revin",
    "patchtst_official_individual_decomp",
    "tslib_itransformer",
    "tslib_itransformer_nomarks",
)
DLINEARS = ("tslib_dlinear", "tslib_dlinear_individual")
FORECASTERS = (*AUTOFORMERS, *SOFTMAX, *DLINEARS)


def shared(name: str) -> Path:
    """A file or folder of the reference data; skips the test where it is absent."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"no reference data at {path}")
    return path


@dataclass(frozen=True, eq=False)
class Case:
    """One published model with random weights, its inputs and outputs."""

    name: str
    folder: Path

    @cached_property
    def description(self) -> dict[str, Any]:
        return json.loads((self.folder / "config.json").read_text())

    @property
    def arguments(self) -> dict[str, Any]:
        described = self.description
        marks = {"marks": int(described.get("marks_given", True))}
        return described.get("config_for_the_windows_only", {}) | described["config"] | marks

    @property
    def tolerance(self) -> dict[str, Any]:
        return self.description["tolerance"]

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.pth"

    @property
    def request(self) -> Request:
        """Request to the importer, with all arguments of the case."""
        source = "tslib"
        if "official" in self.name:
            source = "patchtst" if self.name.startswith("patchtst") else "autoformer"
        return Request(
            file=self.checkpoint,
            source=source,
            # The longest name: `itransformer` contains `transformer`.
            architecture=max((name for name in ARCHITECTURES if name in self.name), key=len),
            arguments={name: str(value) for name, value in self.arguments.items()},
            channels=("HUFL", "HULL", "MUFL", "MULL", "LUFL", "LULL", "OT"),
            frequency="h",
            scaler=Scaler(mean=(0.0,) * 7, std=(1.0,) * 7),
        )

    @cached_property
    def imported(self) -> Imported:
        """As the importer reads it."""
        return import_checkpoint(self.request)

    @property
    def model(self) -> Forecaster:
        """In eval mode, shared by the tests."""
        return self.imported.model

    @cache  # noqa: B019
    def arrays(self, name: str) -> dict[str, NDArray[Any]]:
        with np.load(self.folder / f"{name}.npz") as file:
            return dict(file)

    def inputs(self, name: str) -> tuple[Tensor, ...]:
        """Inputs of the model in a file."""
        arrays, config = self.arrays(name), self.model.config
        history = torch.from_numpy(arrays["x_enc"])
        if config.calendar is None:
            return (history,)
        future = torch.from_numpy(arrays["x_mark_dec"])[:, -config.horizon :]
        return history, torch.from_numpy(arrays["x_mark_enc"]), future

    @cache  # noqa: B019
    def explain(self, name: str) -> Explained:
        """Outputs of the model for a file."""
        with torch.inference_mode():
            return self.model.explain(*self.inputs(name))


@cache
def case(name: str) -> Case:
    return Case(name, shared(f"golden/{name}"))


def stage(name: str) -> str:
    """Our name of an attention stage of a case."""
    parts = name.split("_")
    prefix = {"trend": "trend.", "res": "residual."}.get(parts[0], "")
    if prefix:
        parts = parts[1:]
    if parts[0] == "enc":
        return f"{prefix}encoder.{parts[1]}.self"
    return f"decoder.{parts[2]}.{parts[1]}"
