"""A trained model on disk: a folder with `model.safetensors` and `config.json`.

A model trained by foretell has its log as well and, if its data are short, errors of refits.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BeforeValidator, Field, ValidationError, model_validator
from safetensors import SafetensorError
from safetensors.torch import load_file
from safetensors.torch import save as serialize
from torch import Tensor

from foretell.bundle.bounds import Bounds, Floats, Limits
from foretell.bundle.errors import BundleError
from foretell.bundle.part import FrequencyAlias, Part, first_problem
from foretell.bundle.placement import appearing
from foretell.bundle.results import TestResult
from foretell.bundle.scaler import Scaler
from foretell.models.config import AnyConfig
from foretell.models.forecaster import Forecaster

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
LOG = "log.csv"
REFITS = "refits.safetensors"
_LISTED = 6


class CheckpointError(ValueError):
    """A checkpoint that cannot be read or written; the message names file and field or key."""


def _fields(value: object) -> object:
    """A part as JSON fields; other values unchanged."""
    return value.model_dump(mode="json") if isinstance(value, Part) else value


# Fields of a `foretell.data.source.DataSource`; such an object is accepted too.
DataFields = Annotated[Mapping[str, Any] | None, BeforeValidator(_fields)]


class TrainingRecord(Part):
    """How a model was trained.

    Attributes:
        seed: Seed of weights, dropout and order of the windows.
        epochs: Epochs run.
        best_epoch: Epoch whose weights were kept, from 1.
        validation_loss: Loss of those weights in standardised units: the mean squared error for
            `mse` and `huber`, and `loss` otherwise.
        loss: Loss of the training.
        learning_rate: Peak of the learning rate.
        batch_size: Windows per step.
        precision: Precision of the arithmetic.
        device: `cpu` or `cuda`.
        libraries: Versions of libraries, by name.
        network: The trained network that was kept, if any; only a decoder of covariates learnt.
    """

    seed: int
    epochs: int
    best_epoch: int
    validation_loss: float
    loss: str = "mse"
    learning_rate: float
    batch_size: int
    precision: str
    device: str
    libraries: dict[str, str]
    network: KeptNetwork | None = None


class KeptNetwork(Part):
    """A trained network that another training kept as it was.

    Attributes:
        sha256: sha256 of the weights of its checkpoint.
        data: Data that it learnt from, as in its checkpoint.
        training: Record of its training; None for an imported checkpoint.
    """

    sha256: str
    data: DataFields = None
    training: TrainingRecord | None = None


class CheckpointInfo(Part):
    """Everything about a model except its weights.

    Attributes:
        format: Version of this format.
        config: The architecture's configuration.
        channels: Names of the channels, in the model's order.
        frequency: Spacing of the steps, a pandas alias.
        scaler: Standardisation of the model, with the deviations of the training rows.
        bounds: Limits of the forecasts of channels, by name.
        data: Data that it was trained on, if known.
        test: Accuracy on the test split, if it was measured.
        training: Record of its training; None for an imported checkpoint.
    """

    format: Literal[1] = 1
    config: AnyConfig
    channels: Annotated[tuple[str, ...], Field(min_length=1)]
    frequency: FrequencyAlias
    scaler: Scaler
    bounds: Bounds = Field(default={})
    data: DataFields = None
    test: TestResult | None = None
    training: TrainingRecord | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        expected = self.config.channels
        if len(self.channels) != expected or len(set(self.channels)) != expected:
            raise ValueError(f"channels: expected {expected} different names")
        if len(self.scaler.mean) != expected or len(self.scaler.std) != expected:
            raise ValueError(f"scaler: expected {expected} means and standard deviations")
        if min(self.scaler.std) <= 0:
            raise ValueError("scaler: a standard deviation is not positive")
        if unknown := self.bounds.keys() - set(self.targets):
            raise ValueError(f"bounds: no channel {min(unknown)!r} is forecast")
        return self

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of the channels that are forecast, in the model's order."""
        if self.config.targets is None:
            return self.channels
        return tuple(self.channels[place] for place in self.config.targets)

    @property
    def target_scaler(self) -> Scaler:
        """Standardisation of the channels that are forecast."""
        return self.scaler.of(self.config.targets)


class Refits(NamedTuple):
    """Errors of refits of a model (`foretell.training.refits`), and the values behind them.

    Attributes:
        errors: `[windows, horizon, targets]`, actual minus forecast, in units of `scales`.
        actuals: `[windows, horizon, targets]`, actual values in the user's units.
        forecasts: Forecasts of these values, not moved to any bound.
        scales: `[windows, 1, targets]`, scale of each window's history.
    """

    errors: NDArray[np.float32]
    actuals: NDArray[np.float32]
    forecasts: NDArray[np.float32]
    scales: NDArray[np.float32]

    @classmethod
    def of(cls, actuals: Floats, forecasts: Floats, scales: Floats, within: Limits | None) -> Self:
        """Refits with the errors of forecasts that are served within bounds."""
        served = forecasts if within is None else within.apply(forecasts)
        errors = (actuals - served) / scales
        return cls(*(each.astype(np.float32) for each in (errors, actuals, forecasts, scales)))


class Checkpoint(NamedTuple):
    """A model in eval mode on the CPU, with its metadata."""

    info: CheckpointInfo
    model: Forecaster


def library_versions() -> dict[str, str]:
    """Versions of the libraries that training depends on."""
    return {name: version(name) for name in ("numpy", "safetensors", "torch")}


def check_free(folder: Path, *, overwrite: bool = False) -> None:
    """Refuse a folder that `save` would refuse.

    Raises:
        CheckpointError: something else than a checkpoint exists there, or `overwrite` is not set.
    """
    if not folder.exists():
        return
    if not overwrite:
        raise CheckpointError(f"{folder}: exists already; --overwrite replaces it")
    files = {WEIGHTS, CONFIG, LOG, REFITS}
    if not folder.is_dir() or {entry.name for entry in folder.iterdir()} - files:
        raise CheckpointError(f"{folder}: holds more than a checkpoint and is not overwritten")


def save(
    folder: Path,
    model: Forecaster,
    info: CheckpointInfo,
    *,
    log: Path | None = None,
    refits: Refits | None = None,
    overwrite: bool = False,
) -> None:
    """Write a checkpoint; the folder appears whole or not at all.

    Args:
        folder: Folder to write.
        model: Model whose weights are written.
        info: Metadata of the model.
        log: Log of its training, if any, with a row per epoch.
        refits: Errors of refits, if any.
        overwrite: Replace the checkpoint that exists there.

    Raises:
        CheckpointError: something else than a checkpoint exists there, or `overwrite` is not set.
    """
    folder = folder.resolve()
    check_free(folder, overwrite=overwrite)
    weights = {name: tensor.contiguous() for name, tensor in model.state_dict().items()}
    try:
        with appearing(folder, replace=overwrite) as new:
            (new / WEIGHTS).write_bytes(serialize(weights))
            (new / CONFIG).write_text(info.model_dump_json(indent=2) + "\n", encoding="utf-8")
            if log is not None:
                shutil.copyfile(log, new / LOG)
            if refits is not None:
                arrays = {
                    name: torch.from_numpy(np.ascontiguousarray(each))
                    for name, each in refits._asdict().items()
                }
                (new / REFITS).write_bytes(serialize(arrays))
    except BundleError:
        raise CheckpointError(f"{folder}: exists already; --overwrite replaces it") from None


def load(folder: Path) -> Checkpoint:
    """Read a checkpoint.

    Raises:
        CheckpointError: a file is missing or damaged, a field is wrong, or the weights are not
            those of the configuration.
    """
    info = load_info(folder)
    path = folder / WEIGHTS
    try:
        weights = load_file(path)
    except FileNotFoundError:
        raise CheckpointError(f"{path}: missing") from None
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    model = info.config.build()
    _check_weights(path, model.state_dict(), weights)
    model.load_state_dict(weights)
    return Checkpoint(info, model.eval())


def load_info(folder: Path) -> CheckpointInfo:
    """Read a checkpoint without its weights.

    Raises:
        CheckpointError: `config.json` is missing or wrong.
    """
    path = folder / CONFIG
    try:
        return CheckpointInfo.model_validate_json(path.read_bytes())
    except OSError as error:
        raise CheckpointError(f"{path}: {error.strerror}") from None
    except ValidationError as error:
        field, message = first_problem(error)
        raise CheckpointError(
            f"{path}: {field or 'file'}: {message}; if another version wrote it, train or import "
            "again"
        ) from None


def load_refits(folder: Path) -> Refits | None:
    """Read the errors of refits; None if the checkpoint has none.

    Raises:
        CheckpointError: the file is damaged.
    """
    path = folder / REFITS
    if not path.exists():
        return None
    try:
        arrays = {name: tensor.numpy() for name, tensor in load_file(path).items()}
        return Refits(**arrays)
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from None
    except TypeError:
        raise CheckpointError(
            f"{path}: expected {', '.join(Refits._fields)}; train the model again"
        ) from None


def _check_weights(path: Path, expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    problems = [f"missing {name}" for name in expected if name not in found]
    problems += [f"unexpected {name}" for name in found if name not in expected]
    problems += [
        f"{name} is {list(found[name].shape)}, expected {list(tensor.shape)}"
        for name, tensor in expected.items()
        if name in found and found[name].shape != tensor.shape
    ]
    if problems:
        listed = "; ".join(problems[:_LISTED])
        more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
        raise CheckpointError(f"{path}: not the weights of its config: {listed}{more}")
