"""The wire types of actual values: requests, and their answers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from foretell.service.forecast.answers import Error, Status, Warned
from foretell.service.forecast.form import RequestType
from foretell.service.forecast.requests import Reference, Rows, SeriesType, Strings, Texts
from foretell.service.validation import QUERY, Digest, KnownFields, Storable, optional


class ActualInput(BaseModel):
    """Actual values of one series."""

    name: Storable = Field(description="As in forecasts; unique in the request.")
    type: SeriesType | None = optional("Given by the shape of `series` if absent.")
    series: Rows = Field(
        description="`[time]` of one channel, or `[time][channel]`; null where a value is unknown."
    )
    channels: Strings | None = optional(
        "Names of the columns of `series`, any channels of the model; all of them in the model's "
        "order if absent, or all that it forecasts. Values of others are not kept."
    )
    frequency: str | None = optional("As in forecasts.")
    frequency_multiple: Annotated[int, Field(strict=True, ge=1)] | None = optional(
        "As in forecasts."
    )
    start_timestamp: str | None = optional("ISO 8601 time of the first row.")
    timestamps: Texts | None = optional(
        "ISO 8601 time of every row, instead of `start_timestamp`; steps may be missing."
    )
    time_zone: str | None = optional("IANA name: the clock of times without a UTC offset.")


class ActualsEnvelope(BaseModel):
    """A request with unvalidated inputs."""

    model: Reference = None
    inputs: Annotated[list[Any], Field(min_length=1)]


class ActualsRequest(ActualsEnvelope):
    """Actual values of series of a model."""

    inputs: Annotated[list[ActualInput], Field(min_length=1)]


class TableReference(BaseModel):
    """The model of a table, as a parameter of the URL."""

    model: Reference = None


ACTUALS = RequestType(
    ActualsEnvelope,
    KnownFields(
        {
            "": ActualsEnvelope.model_fields,
            "inputs[]": ActualInput.model_fields,
            QUERY: {},
        }
    ),
)


class Written(BaseModel):
    """How many values of a series were written."""

    name: str
    new: int = Field(description="Values of times without one before.")
    changed: int = Field(description="Values that replaced others.")
    same: int = Field(description="Values that were known.")


class ActualsOutput(BaseModel):
    """The outcome of one input."""

    type: Literal["time_series_actuals"]
    id: str
    status: Status
    content: list[Written] = Field(description="One count; empty if there is an error.")
    error: Error | None


class ActualsResponse(BaseModel):
    """Counts of written values, one output for each input, in order."""

    id: str
    created_at: int = Field(description="Seconds since 1970.")
    status: Status
    error: Error | None
    model: str
    model_version: str
    model_digest: Digest
    outputs: list[ActualsOutput]
    warnings: list[Warned] | None = optional("Present if there are warnings.")
