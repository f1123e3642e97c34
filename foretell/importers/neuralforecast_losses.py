"""The outputs of a NeuralForecast model for each step, by its training loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from foretell.bundle.distribution import check_levels
from foretell.importers.arguments import Argument
from foretell.importers.errors import ImporterError
from foretell.importers.keys import rows
from foretell.importers.neuralforecast_folder import Member
from foretell.models.heads import HEADS, MEDIAN, HeadName

# The forecast does not depend on which of these losses was used.
_POINT_LOSSES = (
    *("MAE", "MSE", "RMSE", "MAPE", "SMAPE", "MASE", "relMSE", "FreDF"),
    *("QuantileLoss", "HuberLoss", "TukeyLoss", "HuberQLoss"),
)
# Losses whose levels are in the state.
_QUANTILES = ("MQLoss", "HuberMQLoss")
_LEVELS = "loss.quantiles"
# Losses of a network that takes any level as input.
_IMPLICIT = ("IQLoss", "HuberIQLoss")
_USUAL_LEVELS = ", ".join(f"{step / 20:g}" for step in range(1, 20))
# Digits of levels that float32 keeps.
_DIGITS = 6
_DISTRIBUTIONS: Mapping[str, HeadName] = {
    "Normal": "neuralforecast-normal",
    "StudentT": "neuralforecast-student-t",
    "NegativeBinomial": "neuralforecast-negative-binomial",
    "Poisson": "neuralforecast-poisson",
}
# Keys of the parameters that replace networks that take any level.
IMPLICIT_ROWS = rows(
    "implicit.factors head.factors\nimplicit.bias head.bias\nimplicit.slope head.slope"
)
_EMBEDDING = "loss.quantile_layer.output_layer"
_OUTPUT = "loss.output_layer"


class LossSpec(NamedTuple):
    """The outputs of a network for a step.

    Attributes:
        title: Name of the loss, for the reader.
        head: Our head; None for plain values.
        order: Places of our parameters among the outputs.
        levels: Levels of the quantiles, if these are the outputs.
        chosen: The levels as an argument, where the user chooses them.
    """

    title: str
    head: HeadName | None = None
    order: tuple[int, ...] = (0,)
    levels: tuple[float, ...] | None = None
    chosen: Argument | None = None


def read_loss(found: Member, *, several: bool, levels: str | None) -> LossSpec:
    """The outputs of a model.

    Args:
        found: The model.
        several: Whether the model may read several series together.
        levels: Levels for a network that takes them as input, separated by commas.

    Raises:
        ImporterError: the loss is not supported; the message names it.
    """
    loss = found.arguments.get("loss")
    given: Mapping[str, Any] = loss if isinstance(loss, Mapping) else {"cls": loss}
    criterion, arguments = given.get("cls"), given.get("args") or {}
    if criterion in _IMPLICIT:
        return _implicit(str(criterion), levels)
    if levels is not None:
        known = " and ".join(_IMPLICIT)
        raise ImporterError(f"levels: only for the losses {known}, this model has {criterion}")
    if criterion in _POINT_LOSSES:
        return LossSpec(str(criterion))
    if criterion == "DistributionLoss":
        name = arguments.get("distribution")
        head = _DISTRIBUTIONS.get(str(name))
        if head is None:
            known = ", ".join(_DISTRIBUTIONS)
            raise ImporterError(f"loss DistributionLoss of {name}: expected one of {known}")
        return LossSpec(f"DistributionLoss of {name}", head, tuple(range(HEADS[head].size)))
    if criterion in _QUANTILES:
        if several and found.arguments.get("n_series") != 1:
            raise ImporterError(
                f"loss {criterion} of several series: the library takes quantiles of one for those "
                "of others; train with another loss"
            )
        return _quantiles(found, criterion)
    raise ImporterError(
        f"loss {criterion}: expected DistributionLoss, {', '.join((*_QUANTILES, *_IMPLICIT))}, or "
        f"a loss of one value per step: {', '.join(_POINT_LOSSES)}"
    )


def _quantiles(found: Member, criterion: str) -> LossSpec:
    levels = found.state.get(_LEVELS)
    if levels is None or levels.ndim != 1:
        raise ImporterError(f"{_LEVELS}: expected the levels of {criterion}")
    order = levels.argsort()
    named = tuple(round(level, _DIGITS) for level in levels[order].tolist())
    title = f"{criterion} of {', '.join(map(str, named))}"
    return LossSpec(title, "quantiles", tuple(order.tolist()), named)


def _implicit(criterion: str, given: str | None) -> LossSpec:
    chosen = Argument(_USUAL_LEVELS, "the usual ones")
    if given is not None:
        chosen = Argument(given, "--set")
    try:
        levels = tuple(map(float, chosen.value.split(",")))
        check_levels(levels)
    except ValueError:
        levels = ()
    if MEDIAN not in levels:
        raise ImporterError(
            f"levels {given}: expected numbers between 0 and 1, ascending, with {MEDIAN} among "
            "them, which is the forecast"
        )
    return LossSpec(criterion, "implicit-quantiles", levels=levels, chosen=chosen)


def implicit_parameters(found: Member, levels: Sequence[float]) -> dict[str, Tensor]:
    """The parameters of a head for these quantiles, under the keys of `IMPLICIT_ROWS`.

    The library embeds a level in cosines with a network of two layers. It multiplies the output of
    the model by 1 plus the embedding, and applies a linear map of one number and a PReLU.

    Args:
        found: The model, whose loss has the networks.
        levels: Levels of the quantiles.

    Raises:
        ImporterError: a tensor is missing or has another shape.
    """

    def weight(key: str, *shape: int) -> Tensor:
        tensor = found.state.get(key)
        if tensor is None:
            raise ImporterError(f"{key} is missing, which determines the quantiles")
        if shape and tensor.shape != shape:
            raise ImporterError(f"{key} is {[*tensor.shape]}, expected {[*shape]}")
        return tensor.float()

    def linear(key: str, values: Tensor, outputs: int, inputs: int) -> Tensor:
        bias = weight(f"{key}.bias", outputs)
        return functional.linear(values, weight(f"{key}.weight", outputs, inputs), bias)

    size = len(weight(f"{_EMBEDDING}.0.bias"))
    # In float32 and in the library's order, since rounding changes the last cosines by 1e-5.
    angles = torch.tensor(levels)[:, None] * torch.arange(size) * torch.pi
    inner = linear(f"{_EMBEDDING}.0", angles.cos(), size, size)
    inner = functional.prelu(inner, weight(f"{_EMBEDDING}.1.weight", 1))
    embedded = linear(f"{_EMBEDDING}.2", inner, 1, size)
    return {
        "implicit.factors": ((1 + embedded) * weight(f"{_OUTPUT}.0.weight", 1, 1)).flatten(),
        "implicit.bias": weight(f"{_OUTPUT}.0.bias", 1),
        "implicit.slope": weight(f"{_OUTPUT}.1.weight", 1),
    }
