"""What a model of NeuralForecast says of each step, by the loss that it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from foretell.bundle.distribution import check_levels
from foretell.importers.arguments import Argument
from foretell.importers.errors import ImporterError
from foretell.importers.neuralforecast_folder import Member
from foretell.models.heads import HEADS, MEDIAN, HeadName

# What they are trained with has no part in the forecast.
_POINT_LOSSES = (
    *("MAE", "MSE", "RMSE", "MAPE", "SMAPE", "MASE", "relMSE", "FreDF"),
    *("QuantileLoss", "HuberLoss", "TukeyLoss", "HuberQLoss"),
)
# Of which the state has the levels.
_QUANTILES = ("MQLoss", "HuberMQLoss")
_LEVELS = "loss.quantiles"
# Which train a network that is told a level, for any one.
_IMPLICIT = ("IQLoss", "HuberIQLoss")
_USUAL_LEVELS = ", ".join(f"{step / 20:g}" for step in range(1, 20))
# More than float32 keeps of 0.9 is none.
_DIGITS = 6
_DISTRIBUTIONS: Mapping[str, HeadName] = {
    "Normal": "neuralforecast-normal",
    "StudentT": "neuralforecast-student-t",
    "NegativeBinomial": "neuralforecast-negative-binomial",
    "Poisson": "neuralforecast-poisson",
}


class Said(NamedTuple):
    """What a network says of a step.

    Attributes:
        title: The loss, for the reader.
        head: What becomes of it; None of a value.
        order: Which of its numbers our parameters are, in turn.
        levels: Of quantiles, if it says these.
        asked: The same as an argument, where they are chosen and not trained.
    """

    title: str
    head: HeadName | None = None
    order: tuple[int, ...] = (0,)
    levels: tuple[float, ...] | None = None
    asked: Argument | None = None


def read_loss(found: Member, *, several: bool, levels: Argument | None) -> Said:
    """What a model says.

    Args:
        found: The model.
        several: Whether it may read several series together.
        levels: That a network is to be told, separated by commas.

    Raises:
        ImporterError: it is not served; the message names the loss.
    """
    loss = found.arguments.get("loss")
    given: Mapping[str, Any] = loss if isinstance(loss, Mapping) else {"cls": loss}
    criterion, arguments = given.get("cls"), given.get("args") or {}
    if criterion in _IMPLICIT:
        return _implicit(str(criterion), levels)
    if levels is not None:
        raise ImporterError(
            f"{levels.provenance}: of models by {' and '.join(_IMPLICIT)} alone; {found.file} is "
            f"by {criterion}"
        )
    if criterion in _POINT_LOSSES:
        return Said(str(criterion))
    if criterion == "DistributionLoss":
        return _distribution(found, arguments.get("distribution"))
    if criterion in _QUANTILES:
        if several and found.arguments.get("n_series") != 1:
            raise ImporterError(
                f"{found.file}: loss {criterion} of several series: the library takes quantiles of "
                "one for those of others"
            )
        return _quantiles(found, criterion)
    raise ImporterError(
        f"{found.file}: loss {criterion}: adopted are models by DistributionLoss, by "
        f"{', '.join((*_QUANTILES, *_IMPLICIT))}, or of one value a step, by "
        f"{', '.join(_POINT_LOSSES)}"
    )


def _quantiles(found: Member, criterion: str) -> Said:
    levels = found.state.get(_LEVELS)
    if levels is None or levels.ndim != 1:
        raise ImporterError(f"{found.file}: {_LEVELS}: expected the levels of {criterion}")
    order = levels.argsort()
    named = tuple(round(level, _DIGITS) for level in levels[order].tolist())
    title = f"{criterion} of {', '.join(map(str, named))}"
    return Said(title, "quantiles", tuple(order.tolist()), named)


def _implicit(criterion: str, given: Argument | None) -> Said:
    asked = given or Argument(_USUAL_LEVELS, "the usual ones")
    try:
        levels = tuple(map(float, asked.value.split(",")))
        check_levels(levels)
    except ValueError:
        levels = ()
    if MEDIAN not in levels:
        raise ImporterError(
            f"{asked.provenance} {asked.value}: expected numbers between 0 and 1, ascending, with "
            f"{MEDIAN} among them, which is the forecast"
        )
    return Said(criterion, "implicit-quantiles", levels=levels, asked=asked)


def _distribution(found: Member, name: object) -> Said:
    head = _DISTRIBUTIONS.get(str(name))
    if head is None:
        raise ImporterError(
            f"{found.file}: loss DistributionLoss of {name}: adopted are "
            f"{', '.join(_DISTRIBUTIONS)}"
        )
    return Said(f"DistributionLoss of {name}", head, tuple(range(HEADS[head].size)))
