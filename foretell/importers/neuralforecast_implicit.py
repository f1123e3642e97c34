"""Implicit quantile networks of NeuralForecast, asked for the quantiles of fixed levels."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from foretell.importers.errors import ImporterError
from foretell.importers.layouts import rows
from foretell.importers.neuralforecast_folder import Member

# What is made of them, as a head's parameters.
ROWS = rows(
    """
    implicit.factors  head.factors  levels
    implicit.bias     head.bias     1
    implicit.slope    head.slope    1
    """
)
_EMBEDDING = "loss.quantile_layer.output_layer"
_OUTPUT = "loss.output_layer"


def fixed(found: Member, levels: Sequence[float]) -> dict[str, Tensor]:
    """The parameters of a head of these quantiles, under the keys of `ROWS`.

    A level is embedded in cosines by a network of two layers; what a model says is multiplied by 1
    and that, and passes a linear map of one number and a PReLU.

    Args:
        found: The model, whose loss has the networks.
        levels: Of the quantiles.

    Raises:
        ImporterError: they are not there, or of another shape.
    """
    size = len(_read(found, f"{_EMBEDDING}.0.bias"))
    # In float32 and in the order of the library: of the last cosines rounding is 1e-5.
    angles = torch.tensor(levels)[:, None] * torch.arange(size) * torch.pi
    inner = _linear(found, f"{_EMBEDDING}.0", angles.cos(), size, size)
    inner = functional.prelu(inner, _read(found, f"{_EMBEDDING}.1.weight", 1))
    embedded = _linear(found, f"{_EMBEDDING}.2", inner, 1, size)
    weight = _read(found, f"{_OUTPUT}.0.weight", 1, 1)
    return {
        "implicit.factors": ((1 + embedded) * weight).flatten(),
        "implicit.bias": _read(found, f"{_OUTPUT}.0.bias", 1),
        "implicit.slope": _read(found, f"{_OUTPUT}.1.weight", 1),
    }


def _linear(found: Member, key: str, values: Tensor, outputs: int, inputs: int) -> Tensor:
    weight = _read(found, f"{key}.weight", outputs, inputs)
    return functional.linear(values, weight, _read(found, f"{key}.bias", outputs))


def _read(found: Member, key: str, *shape: int) -> Tensor:
    """A weight of the loss in float32, of any shape where none is given."""
    tensor = found.state.get(key)
    if tensor is None:
        raise ImporterError(f"{found.file}: {key} is missing, of which its quantiles are made")
    if shape and tensor.shape != shape:
        raise ImporterError(f"{found.file}: {key} is {[*tensor.shape]}, expected {[*shape]}")
    return tensor.float()
