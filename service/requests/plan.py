"""What the options of a request ask for, checked against the model and the limits."""

from __future__ import annotations

from dataclasses import dataclass

from foretell.service.directory import Model
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.requests.attention import Selection, select
from foretell.service.requests.schemas import AttentionOptions, ForecastOptions, Missing
from foretell.service.settings import Settings
from foretell.service.validation import shown


@dataclass(frozen=True)
class Plan:
    """What to forecast of every input.

    Attributes:
        horizon: Steps to answer.
        passes: Runs of the model it takes to forecast them.
        missing: What becomes of missing values.
        quantiles: Levels of the quantiles to answer.
        attention: The attention to answer, if any.
    """

    horizon: int
    passes: int
    missing: Missing
    quantiles: tuple[float, ...]
    attention: Selection | None


def plan(options: ForecastOptions, inputs: int, model: Model, settings: Settings) -> Plan:
    """Read the options of a request.

    Args:
        options: The options.
        inputs: How many inputs the request has.
        model: Who forecasts.
        settings: Limits.

    Raises:
        InvalidInputError: an option does not fit the model, or the answer would be too large.
        NotSupportedError: the model cannot do it.
    """
    own = model.manifest.horizon
    horizon = _check_horizon(options.horizon, model, settings.max_horizon_multiple)
    quantiles = _check_quantiles(options.quantiles or [], horizon, model)
    values = inputs * horizon * len(model.manifest.channels) * (1 + len(quantiles))
    if values > settings.max_answer_values:
        raise InvalidInputError(
            f"the answer would hold {values} values and may hold {settings.max_answer_values} "
            "(max_answer_values); send fewer inputs, or ask for fewer steps or quantiles",
            param="options",
        )
    attention = None
    if options.attention is not None:
        attention = _check_attention(options.attention, inputs, model, settings)
    return Plan(horizon, -(-horizon // own), options.missing, quantiles, attention)


def _check_horizon(horizon: int | None, model: Model, multiple: int) -> int:
    own = model.manifest.horizon
    if horizon is None:
        return own
    if horizon > multiple * own:
        raise NotSupportedError(
            f"expected at most {multiple * own} steps, {multiple} times (max_horizon_multiple) the "
            f"{own} that {model.name} forecasts at once, got {shown(horizon)}",
            param="options.horizon",
        )
    return horizon


def _check_quantiles(levels: list[float], horizon: int, model: Model) -> tuple[float, ...]:
    place = "options.quantiles"
    if not levels:
        return ()
    for index, level in enumerate(levels):
        if level in levels[:index]:
            raise InvalidInputError(f"{level} is asked for twice", param=f"{place}[{index}]")
    model.intervals.check(levels, horizon, place)
    return tuple(levels)


def _check_attention(
    options: AttentionOptions, inputs: int, model: Model, settings: Settings
) -> Selection:
    place = "options.attention"
    selection = select(options, model.manifest, place)
    values = inputs * selection.values(len(model.manifest.channels))
    if values > settings.max_attention_values:
        raise InvalidInputError(
            f"the answer would hold {values} attention weights and may hold "
            f"{settings.max_attention_values} (max_attention_values); send fewer inputs, choose "
            "stages, layers or heads, or set heads to 'mean'",
            param=place,
        )
    return selection
