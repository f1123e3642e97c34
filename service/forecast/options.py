"""The options of requests, checked."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from foretell.bundle.manifest import Manifest
from foretell.service.engine.recalibration import LEAST_ORIGINS, MOST_ORIGINS, stride_of
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.attention import Selection, select
from foretell.service.forecast.form import RequestType
from foretell.service.forecast.origins import LIMITS, RollingOrigins, max_origins
from foretell.service.forecast.requests import (
    NAMES,
    AttentionOptions,
    BacktestOptions,
    Calibrated,
    Envelope,
    ForecastOptions,
    TableOptions,
)
from foretell.service.settings import Settings
from foretell.service.validation import shown
from foretell.timeaxis.gaps import Missing

_CORRECTED = "options.calibration"


# Each request creates one: a frozen class would take three times as long.
@dataclass(slots=True)
class Options:
    """Checked options of a request.

    The horizon takes `passes` runs of the model. `rolling` are backtest windows to forecast as
    well; with `is_corrected` their errors correct the quantiles of later windows. A backtest has no
    other windows. With `importance` windows with replaced values are forecast as well. With
    `ledger` the forecast may be kept there.
    """

    horizon: int
    passes: int
    missing: Missing
    quantiles: tuple[float, ...]
    attention: Selection | None
    rolling: RollingOrigins | None = None
    is_corrected: bool = False
    is_backtest: bool = False
    importance: bool = False
    calibration: Calibrated = "stored"
    ledger: bool = False

    @property
    def of_gaps(self) -> Literal["filled", "masked"]:
        """Treatment of missing values, as the name of their count in answers."""
        return "masked" if self.missing == "mask" else "filled"


def read_options(given: ForecastOptions, inputs: int, model: Model, settings: Settings) -> Options:
    """Check the options of a request with a number of inputs."""
    horizon, passes, quantiles = check_options(given, model, settings)
    forecasts = inputs * horizon * len(model.manifest.targets)
    check_answer(forecasts * (1 + len(quantiles)), settings)
    searched = forecasts * len(quantiles)
    if searched and (most := model.intervals.most) is not None and searched > most:
        raise InvalidInputError(
            f"the answer would hold {searched} quantiles of counts, which are searched for, and "
            f"may hold {most}; send fewer inputs, or ask for fewer steps or quantiles",
            param="options.quantiles",
        )
    attention = None
    if given.attention is not None:
        attention = _check_attention(given.attention, inputs, model, settings)
    rolling = None
    if given.calibration == "history":
        rolling = _rolling(horizon, passes, quantiles, inputs, model, settings)
    elif given.calibration == "ledger":
        check_corrected(quantiles, model)
        if settings.ledger is None:
            raise NotSupportedError(
                "the server keeps no ledger to learn from (FORETELL_LEDGER)", param=_CORRECTED
            )
    checked = Options(horizon, passes, given.missing, quantiles, attention, rolling)
    checked.importance = given.importance
    checked.calibration, checked.ledger = given.calibration, given.ledger
    return checked


def check_answer(values: int, settings: Settings) -> None:
    """Refuse a request whose answer would hold too many values."""
    if values > settings.max_answer_values:
        raise InvalidInputError(
            f"the answer would hold {values} values and may hold {settings.max_answer_values} "
            "(max_answer_values); send fewer inputs, or ask for fewer steps or quantiles",
            param="options",
        )


def most_steps(manifest: Manifest, settings: Settings) -> int:
    """Most steps that a model forecasts: later passes read the forecasts of earlier ones."""
    passes = settings.max_horizon_multiple if manifest.columns is None else 1
    return passes * manifest.horizon


def check_options(
    options: ForecastOptions | BacktestOptions, model: Model, settings: Settings
) -> tuple[int, int, tuple[float, ...]]:
    """Check the common options of forecasts and backtests; returns steps, passes and levels."""
    if options.missing == "mask" and model.manifest.observed_steps is None:
        raise NotSupportedError(
            f"{model.name} reads no missing values, so that none can be left out; 'interpolate' or "
            "'ffill' fills them in",
            param="options.missing",
        )
    steps, multiple = model.manifest.horizon, settings.max_horizon_multiple
    horizon, levels = options.horizon or steps, options.quantiles or ()
    if horizon > steps and horizon > most_steps(model.manifest, settings):
        if model.manifest.columns is not None:
            raise NotSupportedError(
                f"expected at most {steps} steps: {model.name} does not forecast all channels that "
                f"it reads, so it cannot go on from its forecasts; got {shown(horizon)}",
                param="options.horizon",
            )
        raise NotSupportedError(
            f"expected at most {multiple * steps} steps, {multiple} times (max_horizon_multiple) "
            f"the {steps} that {model.name} forecasts at once, got {shown(horizon)}",
            param="options.horizon",
        )
    place = "options.quantiles"
    for index, level in enumerate(levels):
        if level in levels[:index]:
            raise InvalidInputError(f"{level} is given twice", param=f"{place}[{index}]")
    if levels:
        model.intervals.check(levels, horizon, place)
    return horizon, -(-horizon // steps), tuple(levels)


def check_corrected(quantiles: tuple[float, ...], model: Model) -> None:
    """Refuse a correction without requested quantiles, or of quantiles from distributions."""
    if not quantiles:
        raise InvalidInputError(
            "it corrects quantiles, but the request names no levels", param=_CORRECTED
        )
    if model.intervals.calibration is None:
        drawn = model.manifest.distribution
        source = "" if drawn is None else drawn.source
        raise NotSupportedError(
            f"the quantiles of {model.name} are {source}, which no errors correct",
            param=_CORRECTED,
        )


def _rolling(
    horizon: int,
    passes: int,
    quantiles: tuple[float, ...],
    inputs: int,
    model: Model,
    settings: Settings,
) -> RollingOrigins:
    """The origins with errors that correct quantiles."""
    check_corrected(quantiles, model)
    # The windows of the forecasts wait in the queue with them.
    most = max_origins(inputs, horizon, passes, len(quantiles), model.manifest, settings, beside=1)
    if most < LEAST_ORIGINS:
        raise InvalidInputError(
            f"{inputs} inputs leave room for {most} origins of each, and it takes {LEAST_ORIGINS} "
            f"({LIMITS}); send fewer inputs, or ask for fewer steps or quantiles",
            param=_CORRECTED,
        )
    return RollingOrigins(stride_of(horizon), LEAST_ORIGINS, min(MOST_ORIGINS, most))


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


@dataclass(frozen=True)
class Operation(RequestType):
    """Forecasts or backtests, with the types and functions that read their requests."""

    # The last part of its path.
    name: str
    # For the OpenAPI document.
    description: str
    # Wire types of the URL's parameters for a table, and of options.
    query: type[TableOptions]
    options: type[BaseModel]
    # Checks the options of a request with a number of inputs.
    read_options: Callable[[Any, int, Model, Settings], Options]


FORECASTING = Operation(
    Envelope,
    NAMES,
    "forecast",
    "Forecast every series of the request.",
    TableOptions,
    ForecastOptions,
    read_options,
)
