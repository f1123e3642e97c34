"""Requests of the nixtla client, release 0.9; docs/guides/nixtla.md lists them.

A request has the numbers of all series in one list, and a list of their lengths.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from itertools import accumulate, islice
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StrictInt

from foretell.service.errors import InvalidInputError, NotSupportedError
from foretell.service.forecast.form import Form
from foretell.service.forecast.parse import read_json
from foretell.service.forecast.requests import MOST_INTEGER, BacktestCalibrated, Rows, Texts
from foretell.service.http.compression import Body
from foretell.service.validation import MOST_UNKNOWN, at_most, check_texts, shown, validate
from foretell.timeaxis.errors import FrequencyError
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.gaps import Missing

Positive = Annotated[StrictInt, Field(ge=1, le=MOST_INTEGER)]
# Percent that an interval should cover; nearer to 100 it would have no bounds.
Level = Annotated[float, Field(strict=True, ge=0, le=99.999999)]


class Series(BaseModel):
    """The histories, series by series, oldest value first."""

    y: Rows
    sizes: Annotated[list[Positive], Field(min_length=1, fail_fast=True)]
    start_datetime: Texts | None = None
    # Columns by number: `foretell.service.nixtla.covariates` checks them with the model.
    X: Any = None
    X_future: Any = None
    categorical_exog: Any = None


class Parameters(BaseModel):
    """`model_parameters`, which the client passes on unchanged."""

    model_config = ConfigDict(extra="forbid")

    missing: Missing = "error"
    calibration: BacktestCalibrated = "stored"


class ForecastRequest(BaseModel):
    """A request to `v2/forecast`. Unknown fields are kept, for a warning."""

    model_config = ConfigDict(extra="allow")

    series: Series
    freq: str
    h: Positive
    level: Annotated[list[Level], Field(fail_fast=True, max_length=49), at_most(49)] | None = None
    model: str = "timegpt"
    model_parameters: Parameters = Parameters()
    finetune_steps: StrictInt = 0
    finetuned_model_id: str | None = None
    multivariate: bool = False
    # Fields of exogenous columns and training, which this server does not support.
    clean_ex_first: Any = None
    feature_contributions: Any = None
    feature_contributions_type: Any = None
    finetune_depth: Any = None
    finetune_loss: Any = None
    hist_exog: Any = None
    refit: Any = None


class CrossValidationRequest(ForecastRequest):
    """A request to `v2/cross_validation`."""

    n_windows: Positive = 1
    step_size: Positive | None = None
    # Whether the server chooses `h`, and the windows cover all rows.
    full_history: bool = False


def parse(body: Body, kind: type[ForecastRequest], max_inputs: int) -> ForecastRequest:
    """Read a request of a kind, with at most `max_inputs` series."""
    levels = {
        "": kind.model_fields,
        "series": Series.model_fields,
        "model_parameters": Parameters.model_fields,
    }
    texts = {"series.sizes", "series.start_datetime"}
    nested = {"series.X", "series.X_future"}
    value = read_json(body, Form(levels, texts=texts, numbers={"series.y"}, nested=nested))
    if isinstance(value, dict):
        _check_counts(value, kind.model_fields, max_inputs)
    request = validate(kind, value)
    _check_supported(request)
    return request


def _check_counts(request: dict[str, Any], known: Container[str], most: int) -> None:
    """Refuse too many series or unknown fields, before they are checked one by one."""
    _check_names(request, known)
    series, parameters = request.get("series"), request.get("model_parameters")
    for name in ("sizes", "start_datetime"):
        values = series.get(name) if isinstance(series, dict) else None
        if isinstance(values, list) and len(values) > most:
            raise InvalidInputError(
                f"expected at most {most} series in a request (max_inputs), got {len(values)}; "
                "pass num_partitions",
                param=f"series.{name}",
            )
    if isinstance(parameters, dict):
        _check_names(parameters, Parameters.model_fields, "model_parameters.")


def _check_names(names: Iterable[str], known: Container[str], place: str = "") -> None:
    """Refuse more unknown fields than an answer has warnings for."""
    unknown = islice((name for name in names if name not in known), MOST_UNKNOWN, None)
    if (name := next(unknown, None)) is not None:
        raise InvalidInputError(
            f"unknown, as are {MOST_UNKNOWN} names before it", param=f"{place}{name[:60]}"
        )


def _check_supported(request: ForecastRequest) -> None:
    series = request.series
    check_texts(series.start_datetime or [], "series.start_datetime")
    if request.finetune_steps != 0 or request.finetuned_model_id is not None:
        raise NotSupportedError(
            "nothing is trained here: use `foretell train`, and serve the exported bundle",
            param="finetune_steps" if request.finetune_steps else "finetuned_model_id",
        )
    if request.multivariate:
        raise NotSupportedError("series are forecast each by itself", param="multivariate")


def inputs_of(request: ForecastRequest) -> list[dict[str, Any]]:
    """The series as inputs of `POST /forecast`; InvalidInputError if the lists do not match."""
    series, ends = request.series, [*accumulate(request.series.sizes)]
    starts, count = series.start_datetime, len(series.sizes)
    for place, values, expected, what in (
        ("series.y", series.y, ends[-1], "values, the sum of series.sizes"),
        ("series.start_datetime", starts, count, "times, one for each series"),
    ):
        if values is not None and len(values) != expected:
            raise InvalidInputError(
                f"expected {expected} {what}, got {shown(len(values))}", param=place
            )
    return [
        {
            "series": series.y[end - size : end],
            "start_timestamp": None if starts is None else starts[index],
        }
        for index, (size, end) in enumerate(zip(series.sizes, ends, strict=True))
    ]


# polars' names of units with other names in pandas; the client itself converts `mo`.
_POLARS = {"m": "min", "q": "Q", "y": "Y"}


def frequency_of(text: str) -> Frequency:
    """The frequency that the client names, as a pandas or polars alias."""
    count, letters = re.fullmatch(r"(\d*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    try:
        return Frequency.parse(count + _POLARS.get(letters, letters))
    except FrequencyError as error:
        raise InvalidInputError(str(error), param="freq") from None


# Places in requests of `/forecast`, and the same places in requests of the client.
_PLACES = (
    (re.compile(r"inputs\[(\d+)\]\.series"), r"series[\1].y"),
    (re.compile(r"inputs\[(\d+)\]\.start_timestamp"), r"series.start_datetime[\1]"),
    (re.compile(r"inputs\[(\d+)\]\.\w+_covariates\."), r"series[\1].X of "),
    (re.compile(r"^options$"), "series.sizes"),
    (re.compile(r"options\.(missing|calibration)"), r"model_parameters.\1"),
    (re.compile(r"options\.quantiles(\[\d+\])?"), "level, as quantiles"),
    (re.compile(r"options\.horizon"), "h"),
    (re.compile(r"options\.origins"), "n_windows"),
    (re.compile(r"options\.stride"), "step_size"),
)


def with_own_places(text: str) -> str:
    """A text of `/forecast`, such as an error, with places in the client's request."""
    for place, replacement in _PLACES:
        text = place.sub(replacement, text)
    return text
