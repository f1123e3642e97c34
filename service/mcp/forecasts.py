"""The tools that forecast and backtest."""

from __future__ import annotations

from typing import Any

from foretell.bundle.nearness import suggestion
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.requests import (
    BacktestOptions,
    BacktestRequest,
    ForecastOptions,
    ForecastRequest,
    SeriesInput,
)
from foretell.service.mcp import results
from foretell.service.mcp.caller import Caller
from foretell.service.mcp.counting import MOST_NUMBERS, check_size
from foretell.service.mcp.exchange import AnswerTooLargeError
from foretell.service.mcp.results import Fields
from foretell.service.mcp.schemas import Schema, arguments, fields
from foretell.service.mcp.tools import Tool, model_and_version

_FORECAST_OPTIONS = ("horizon", "quantiles", "calibration", "missing", "ledger")
_BACKTEST_OPTIONS = ("horizon", "stride", "origins", "quantiles", "calibration", "missing")
_INPUT = (
    *("name", "series", "channels", "frequency", "start_timestamp", "timestamps", "time_zone"),
    *("past_covariates", "future_covariates", "static_covariates"),
)
_TARGETS: Schema = {
    "type": "array",
    "items": {"type": "string"},
    "minItems": 1,
    "uniqueItems": True,
    "description": "Channels to return, of those that the model forecasts; all if absent.",
}
_EXAMPLE = """\
Example for a model of one channel and hourly rows:
{"model": "load", "inputs": [{"name": "office", "series": [20.1, 19.8, 19.5, …],
"start_timestamp": "2026-03-01T00:00:00"}], "horizon": 24, "quantiles": [0.1, 0.9]}
For several channels a row is a list: "series": [[20.1, 0.3], …], "channels": ["load", "wind"]."""
_FORECAST = f"""\
Forecast time series by a model. list_models has the models and what each needs: at least `context`
rows, evenly spaced, the newest last. Send all rows that you have, and never invent values: a
missing one is null, and the argument `missing` chooses how to fill it.
{_EXAMPLE}
An 80% interval lies between the quantiles 0.1 and 0.9. The result has the time and the forecasts of
each step, in the units of the series; at most {MOST_NUMBERS:,} numbers. One call takes many series.
Set `ledger` to false for experiments, such as a changed history."""
_BACKTEST = f"""\
Measure how well a model would have forecast the rows of a series: it forecasts from past rows and
compares with the rows that followed. Send more rows than `context` and `horizon` together, the more
the better, which the model was not trained on. Arguments are those of the tool forecast.
{_EXAMPLE}
The result has, of each channel, the mean absolute and squared error, and these over those of
repeating the last value or the last season: below 1 the model is better."""


def _schema(request: Any, options: Any, *names: str, **more: Schema) -> Schema:  # noqa: ANN401 - wire types
    inputs: Schema = {
        "type": "array",
        "minItems": 1,
        "description": "The series, each with its history.",
        "items": arguments(_inputs(request), "series"),
    }
    model = fields(request, "model")
    return arguments({**model, "inputs": inputs, **fields(options, *names), **more}, "inputs")


def _inputs(request: Any) -> dict[str, Schema]:  # noqa: ANN401 - a wire type
    # Scenarios are futures to compare, and a backtest knows what came true.
    names = (*_INPUT, "scenarios") if request is ForecastRequest else _INPUT
    return fields(
        SeriesInput,
        *names,
        series="Rows, oldest first: numbers for a model of one channel, else lists of a number for "
        "each channel. A longer history is welcome.",
        frequency="Distance of the rows: a pandas alias such as `15min`, `h`, `D` or `MS`; the "
        "model's if absent.",
    )


def _body(given: Fields, options: tuple[str, ...]) -> Fields:
    body: Fields = {name: given[name] for name in ("model", "inputs") if name in given}
    body["options"] = {name: given[name] for name in options if name in given}
    return body


async def _forecast(caller: Caller, given: Fields) -> Fields:
    targets = _names(given.get("targets"))
    card = await _card(caller, given)
    # Refused calls must not run the model, nor reach the ledger.
    if card is not None:
        _check_targets(targets, card)
        check_size(given, card, targets)
    answer = await caller.post("/forecast", _body(given, _FORECAST_OPTIONS))
    if card is None or card["digest"] != answer["model_digest"]:
        # The model has been replaced since.
        card = await caller.get(f"/models/{answer['model']}@{answer['model_version']}")
        _check_targets(targets, card)
    contents = results.contents(answer)
    forecasts = [results.forecast(each, card["targets"], targets) for each in contents]
    return results.answered(answer, "forecasts", forecasts)


async def _card(caller: Caller, given: Fields) -> Fields | None:
    """The model's card; None if the call names no model and the server has several."""
    if "model" in given:
        name, version = model_and_version(given)
        found: Fields = await caller.get(
            f"/models/{name}@{version}" if version else f"/models/{name}"
        )
        return found
    try:
        cards: list[Fields] = await caller.get("/models")
    except AnswerTooLargeError:
        return None
    return cards[0] if len(cards) == 1 else None


def _names(value: Any) -> list[str] | None:  # noqa: ANN401 - what the client sent
    if value is None:
        return None
    if not (isinstance(value, list) and value and all(isinstance(each, str) for each in value)):
        raise InvalidInputError("expected a list of names of channels", param="targets")
    if len({*value}) < len(value):
        raise InvalidInputError("expected each name once", param="targets")
    return value


def _check_targets(targets: list[str] | None, card: Fields) -> None:
    known = {*card["targets"]}
    for index, name in enumerate(targets or ()):
        if name not in known:
            raise InvalidInputError(
                f"no forecast channel {name[:60]!r}; {suggestion(name, card['targets'])}",
                param=f"targets[{index}]",
            )


async def _backtest(caller: Caller, given: Fields) -> Fields:
    answer = await caller.post("/backtest", _body(given, _BACKTEST_OPTIONS))
    backtests = [results.backtest(content) for content in results.contents(answer)]
    return results.answered(answer, "backtests", backtests)


FORECAST = Tool(
    "forecast",
    "Forecast",
    _FORECAST,
    _schema(ForecastRequest, ForecastOptions, *_FORECAST_OPTIONS, targets=_TARGETS),
    _forecast,
    results.forecast_text,
    "ask for fewer inputs, steps, quantiles or targets",
    reads_only=False,
)
BACKTEST = Tool(
    "backtest",
    "Backtest",
    _BACKTEST,
    _schema(BacktestRequest, BacktestOptions, *_BACKTEST_OPTIONS),
    _backtest,
    results.backtest_text,
    "ask for fewer inputs or quantiles",
)
