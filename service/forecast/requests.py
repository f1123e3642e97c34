"""The wire types of time-series requests: KServe's, and foretell's additions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, final

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetPydanticSchema,
    PlainValidator,
    StrictInt,
    WithJsonSchema,
    field_validator,
)
from pydantic_core import PydanticKnownError
from pydantic_core.core_schema import is_instance_schema

from foretell.service.validation import QUERY, KnownFields, at_most, check_list, optional
from foretell.timeaxis.gaps import Missing

SeriesType = Literal["univariate_time_series", "multivariate_time_series"]
Calibrated = Literal["stored", "history", "ledger"]
# Backtests have no use for what was learned later.
BacktestCalibrated = Literal["stored", "history"]

# Larger integers are floats to some readers of JSON.
MOST_INTEGER = 2**53

_Number = {"type": ["number", "null"]}


# `foretell.service.forecast.values` checks all numbers at once.
Rows = Annotated[
    list[Any] | NDArray[np.float64],
    GetPydanticSchema(lambda *_: is_instance_schema((list, np.ndarray), cls_repr="a list")),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "array", "items": _Number},
                {"type": "array", "items": {"type": "array", "items": _Number}},
            ]
        }
    ),
]
# `check_texts` checks all texts at once: there is one for each row.
Texts = Annotated[
    list[str],
    PlainValidator(check_list),
    WithJsonSchema({"type": "array", "items": {"type": "string"}}),
]


def _check_metadata(value: object) -> object:
    if not isinstance(value, dict | bytes | None):
        raise PydanticKnownError("dict_type")
    return value


# The text from `foretell.service.forecast.metadata.echo`, or a parsed object.
Metadata = Annotated[
    dict[str, Any] | bytes | None,
    PlainValidator(_check_metadata),
    WithJsonSchema({"anyOf": [{"type": "object", "additionalProperties": True}, {"type": "null"}]}),
]
Reference = Annotated[
    str | None,
    Field(description="`name` or `name@version`; may be absent when one model is served."),
]
# No model has as many channels, stages or layers.
_MOST = 16 * 1024
Strings = Annotated[list[str], Field(fail_fast=True, max_length=_MOST), at_most(_MOST)]
Level = Annotated[float, Field(strict=True, gt=0, lt=1)]
Levels = Annotated[list[Level], Field(fail_fast=True, max_length=99), at_most(99)]
# `foretell.service.forecast.attention` checks it: pydantic would name each branch in the path.
Heads = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [
                {"enum": ["all", "mean"]},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ]
        }
    ),
]


# `foretell.service.forecast.covariates` checks the values with the model's covariates.
def _named(values: dict[str, Any]) -> WithJsonSchema:
    return WithJsonSchema({"type": "object", "additionalProperties": values})


_Value = {"type": ["number", "boolean", "string"]}
_Values = {"type": "array", "items": {"type": [*_Value["type"], "null"]}}
ValuesByName = Annotated[dict[str, Any], _named(_Values)]
ValueByName = Annotated[dict[str, Any], _named(_Value)]


class ScenarioInput(BaseModel):
    """One future of an input."""

    name: str | None = optional("Unique in the input; `scenario-<index>` if absent.")
    future_covariates: ValuesByName | None = optional(
        "Values by name, one for each step of the model's horizon, or of all its passes; the "
        "input's for other names."
    )


Scenarios = Annotated[list[ScenarioInput], Field(fail_fast=True, min_length=1)]


class SeriesInput(BaseModel):
    """One history to forecast."""

    name: str | None = optional("Unique in the request; `series-<index>` if absent.")
    type: SeriesType | None = optional("Given by the shape of `series` if absent.")
    series: Rows = Field(
        description="`[time]` for a model of one channel, `[time][channel]` otherwise, oldest "
        "first; of a longer history than the model reads, the latest part is used."
    )
    channels: Strings | None = optional(
        "Names of the columns of `series`, if not in the model's order."
    )
    frequency: str | None = optional(
        "S T H D W M Q Y or second … year, which name the unit, or a pandas alias; the model's if "
        "absent."
    )
    frequency_multiple: Annotated[int, Field(strict=True, ge=1)] | None = optional(
        "Units in a step, as in answers; the model's if absent."
    )
    start_timestamp: str | None = optional(
        "ISO 8601 time of the first row; models with calendar features need it."
    )
    timestamps: Texts | None = optional("ISO 8601 time of every row, instead of `start_timestamp`.")
    time_zone: str | None = optional(
        "IANA name, such as `Europe/Berlin`: the clock of times without a UTC offset, of "
        "calendar features and of answered times, also across clock changes."
    )
    past_covariates: ValuesByName | None = optional(
        "Values by name, one for each row, of channels that are read and not forecast; `series` "
        "then has the others."
    )
    future_covariates: ValuesByName | None = optional(
        "Values by name, one for each row and then each step of the model's horizon, or of all its "
        "passes over a longer one; or of these steps alone, with the rows' in `past_covariates`. A "
        "backtest takes one for each row."
    )
    static_covariates: ValueByName | None = optional("A value by name.")
    scenarios: Scenarios | None = optional(
        "Futures to forecast side by side, each of which counts as an input."
    )


class AttentionOptions(BaseModel):
    """Choice of attention to return."""

    layers: (
        Annotated[list[StrictInt], Field(fail_fast=True, max_length=_MOST), at_most(_MOST)] | None
    ) = optional("Layer numbers, from 0; all if absent.")
    heads: Heads = Field(
        default="all", description="All heads, their mean, or some heads by number."
    )
    stages: Strings | None = optional(
        "Names as in `GET /models`, such as `encoder.0.self`; all if absent."
    )


class ForecastOptions(BaseModel):
    """Options of a forecast."""

    # pydantic does not copy a default that is frozen.
    model_config = ConfigDict(frozen=True)

    horizon: Annotated[int, Field(strict=True, ge=1)] | None = optional(
        "Steps to forecast; the model's horizon if absent. A longer one takes further passes, "
        "which read earlier forecasts, up to `max_horizon` of `GET /models`."
    )
    quantiles: Levels | None = optional(
        "Levels of quantiles to return, in any order; for models with quantiles."
    )
    calibration: Calibrated = Field(
        default="stored",
        description="Source of the quantiles: `stored`, the model's validation errors; "
        "`history`, these corrected by its errors on earlier rows of the history; or `ledger`, "
        "these corrected by what came true of its latest forecasts of the series.",
    )
    missing: Missing = Field(
        default="error",
        description="Treatment of missing values (null): `error`; `interpolate`, a line between "
        "the values around a gap, or the nearest one; `ffill`, the value before; or `mask`, which "
        "leaves them out, for models that read gaps (`reads_gaps` of `GET /models`).",
    )
    attention: AttentionOptions | None = optional("Attention weights to return; `true` for all.")
    ledger: Annotated[bool, Field(strict=True)] = Field(
        default=True,
        description="Whether a server with a ledger may keep the forecasts of named series with "
        "times.",
    )
    importance: Annotated[bool, Field(strict=True)] = Field(
        default=False,
        description="Whether to measure how far the forecast moves with each channel and covariate "
        "replaced: by its training mean (else the window's), or a boolean or category by each of "
        "its values. It takes a forecast for each.",
    )

    @field_validator("attention", mode="before", json_schema_input_type=bool | AttentionOptions)
    @classmethod
    def _all_of_it(cls, value: object) -> object:
        if isinstance(value, bool):
            return AttentionOptions() if value else None
        return value


class TableOptions(BaseModel):
    """Options of a forecast of a table, as parameters of the URL."""

    model: Reference = None
    horizon: int | None = optional("As `options.horizon` of JSON.")
    quantiles: list[float] | None = optional(
        "Levels, separated by commas: columns `<channel>_q<level>`."
    )
    calibration: Calibrated = Field(
        default="stored", description="As `options.calibration` of JSON."
    )
    missing: Missing = Field(default="error", description="As `options.missing` of JSON.")
    ledger: bool = Field(default=True, description="As `options.ledger` of JSON.")

    @field_validator("quantiles", mode="before", json_schema_input_type=str)
    @classmethod
    def _separated(cls, value: object) -> object:
        return value.split(",") if isinstance(value, str) else value


class TableBacktestOptions(TableOptions):
    """Options of a backtest on a table, as parameters of the URL."""

    calibration: BacktestCalibrated = Field(
        default="stored", description="As `options.calibration` of JSON."
    )
    stride: int | None = optional("As `options.stride` of JSON.")
    origins: int | None = optional("As `options.origins` of JSON.")


@final
class BacktestOptions(BaseModel):
    """Options of a backtest."""

    model_config = ConfigDict(frozen=True)

    horizon: Annotated[int, Field(strict=True, ge=1)] | None = optional(
        "Steps of each forecast; the model's horizon if absent."
    )
    stride: Annotated[int, Field(strict=True, ge=1, le=MOST_INTEGER)] | None = optional(
        "Rows from one origin to the next; the horizon if absent, so that every row is forecast "
        "once, or half of it if `calibration` is `history`."
    )
    origins: Annotated[int, Field(strict=True, ge=1, le=MOST_INTEGER)] | None = optional(
        "Most origins, the latest ones; all if absent."
    )
    quantiles: Levels | None = optional("Levels of quantiles to check; for models with quantiles.")
    calibration: BacktestCalibrated = Field(
        default="stored",
        description="Source of the quantiles, as in forecasts: with `history` an origin's are "
        "corrected by the errors of the origins before it.",
    )
    missing: Missing = Field(
        default="error",
        description="Treatment of missing values (null) in the model's input, as in "
        "forecasts. Missing actual values are not compared.",
    )


class _Request(BaseModel):
    """The fields of all requests; inputs are validated later, each with an error of its own."""

    model: Reference = None
    inputs: Annotated[list[Any], Field(min_length=1)]
    metadata: Metadata = optional("Echoed in the answer.")

    @field_validator("options", mode="before", check_fields=False)
    @classmethod
    def _defaults(cls, value: object) -> object:
        return cls.model_fields["options"].default if value is None else value


class Envelope(_Request):
    """A request for forecasts with unvalidated inputs."""

    options: ForecastOptions = ForecastOptions()


class ForecastRequest(Envelope):
    """A request for forecasts."""

    inputs: Annotated[list[SeriesInput], Field(min_length=1)]


class BacktestEnvelope(_Request):
    """A request to backtest with unvalidated inputs."""

    options: BacktestOptions = BacktestOptions()


class BacktestRequest(BacktestEnvelope):
    """A request to backtest."""

    inputs: Annotated[list[SeriesInput], Field(min_length=1)]


# The level of scenarios.
SCENARIOS = "inputs[].scenarios[]"
NAMES = KnownFields(
    {
        "": Envelope.model_fields,
        "options": ForecastOptions.model_fields,
        "options.attention": AttentionOptions.model_fields,
        "inputs[]": SeriesInput.model_fields,
        SCENARIOS: ScenarioInput.model_fields,
        QUERY: {},
    }
)
BACKTEST_NAMES = KnownFields(
    {
        "": BacktestEnvelope.model_fields,
        "options": BacktestOptions.model_fields,
        "inputs[]": SeriesInput.model_fields,
        SCENARIOS: ScenarioInput.model_fields,
        QUERY: {},
    }
)
