"""From what the nixtla client sends to a job, as `/forecast` and `/backtest` run them."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, islice
from typing import Any, NoReturn

from foretell.bundle.errors import FrequencyError
from foretell.bundle.frequency import Frequency
from foretell.bundle.nearness import listed
from foretell.service.engine.registry import Model, Registry
from foretell.service.errors import InvalidInputError, NotSupportedError, ServiceError
from foretell.service.forecast.backtest import BACKTESTING
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.options import Plan
from foretell.service.forecast.requests import (
    BacktestEnvelope,
    BacktestOptions,
    Envelope,
    ForecastOptions,
)
from foretell.service.nixtla.wire import ForecastRequest, Parameters, Request
from foretell.service.settings import Settings
from foretell.service.validation import MOST_IGNORED, check_texts, shown

# Names of models that the client sends on its own, or that its examples do.
_ANY = ("timegpt", "azureai")
# polars' names of what pandas calls otherwise; `mo` the client changes itself.
_POLARS = {"m": "min", "q": "Q", "y": "Y"}
# Where things stand in the requests of the other door, and in these.
_PLACES = (
    (re.compile(r"inputs\[(\d+)\]\.series"), r"series[\1].y"),
    (re.compile(r"inputs\[(\d+)\]\.start_timestamp"), r"series.start_datetime[\1]"),
    (re.compile(r"^options$"), "series.sizes"),
    (re.compile(r"options\.(missing|calibration)"), r"model_parameters.\1"),
    (re.compile(r"options\.quantiles(\[\d+\])?"), "level, as quantiles"),
    (re.compile(r"options\.horizon"), "h"),
    (re.compile(r"options\.origins"), "n_windows"),
    (re.compile(r"options\.stride"), "step_size"),
)


def own_places(text: str) -> str:
    """A text of `/forecast`, such as an error's, that names places of these requests."""
    for place, own in _PLACES:
        text = place.sub(own, text)
    return text


def frequency_of(text: str) -> Frequency:
    """The frequency that the client names, in pandas' words or polars'.

    Raises:
        InvalidInputError: there is none of that name.
    """
    count, letters = re.fullmatch(r"(\d*)(.*)", text, re.DOTALL).groups()  # type: ignore[union-attr]
    try:
        return Frequency.parse(count + _POLARS.get(letters, letters))
    except FrequencyError as error:
        raise InvalidInputError(str(error), param="freq") from None


def find(registry: Registry, name: str, frequency: Frequency) -> Model:
    """The model that a request means.

    Args:
        registry: What is served.
        name: A model's, which may have `@version`; or one of TimeGPT's, as the client sends unless
            told otherwise: then the only model served, or the only one of the frequency.
        frequency: Of the series.

    Raises:
        InvalidInputError: several models may be meant; otherwise as `Registry.find`.
    """
    if name.partition("@")[0] in registry.versions or not name.startswith(_ANY):
        return registry.find(name)
    fitting = [
        model
        for step, models in registry.univariate.items()
        if frequency.agrees_with(Frequency.parse(step))
        for model in models
    ]
    if len(fitting) == 1:
        return fitting[0]
    if registry.unavailable or len(registry.defaults) < 2:
        return registry.find(None)
    if not fitting:
        raise InvalidInputError(
            f"nothing that is served here forecasts one value every {frequency}: "
            f"{listed(registry.names.names)}",
            param="freq",
        )
    names = listed(sorted(model.name for model in fitting))
    raise InvalidInputError(f"{name!r} may mean any of {names}; pass model=…", param="model")


def check_model(model: Model, frequency: Frequency) -> None:
    """Refuse what a model cannot forecast.

    Raises:
        InvalidInputError: the frequency is not the model's.
        NotSupportedError: the model reads more than one value a step.
    """
    manifest = model.manifest
    if len(manifest.channels) != 1:
        raise NotSupportedError(
            f"{model.name} reads {len(manifest.channels)} values at every time "
            f"({listed(manifest.channels)}), and this interface has one; use POST /forecast",
            param="model",
        )
    if not frequency.agrees_with(manifest.step):
        raise InvalidInputError(
            f"expected the frequency of {model.name}, {manifest.step}, got {frequency}",
            param="freq",
        )


def check_counts(request: dict[str, Any], known: Container[str], most: int) -> None:
    """Refuse what is too long or has too many names, before all of it is looked at.

    Args:
        request: Parsed JSON.
        known: The names that it may have.
        most: Most series.

    Raises:
        InvalidInputError: it is.
    """
    check_names(request, known)
    series, parameters = request.get("series"), request.get("model_parameters")
    for name in ("sizes", "start_datetime"):
        given = series.get(name) if isinstance(series, dict) else None
        if isinstance(given, list) and len(given) > most:
            raise InvalidInputError(
                f"expected at most {most} series in a request (max_inputs), got {len(given)}; pass "
                "num_partitions",
                param=f"series.{name}",
            )
    if isinstance(parameters, dict):
        check_names(parameters, Parameters.model_fields, "model_parameters.")


def check_names(given: Iterable[str], known: Container[str], place: str = "") -> None:
    """Refuse more names that are not known than an answer warns of.

    Args:
        given: The names of an object.
        known: Those that it may have.
        place: What is before them in the request.

    Raises:
        InvalidInputError: there are more.
    """
    unknown = islice((name for name in given if name not in known), MOST_IGNORED, None)
    if (name := next(unknown, None)) is not None:
        raise InvalidInputError(
            f"unknown, as are {MOST_IGNORED} names before it", param=f"{place}{name[:60]}"
        )


def check_request(request: Request) -> None:
    """Refuse what no model here does.

    Raises:
        InvalidInputError: a time is no text.
        NotSupportedError: the request asks for it.
    """
    series = request.series
    check_texts(series.start_datetime or [], "series.start_datetime")
    exogenous = [series.X, series.X_future, series.categorical_exog]
    for asked, place, said in (
        (
            any(value is not None for value in exogenous),
            "series.X",
            "models here read no other columns: send the id, the time and the target alone",
        ),
        (
            request.finetune_steps != 0 or request.finetuned_model_id is not None,
            "finetune_steps" if request.finetune_steps else "finetuned_model_id",
            "nothing is trained here: train with `foretell train`, and serve what it exports",
        ),
        (request.multivariate, "multivariate", "series are forecast each by itself"),
    ):
        if asked:
            raise NotSupportedError(said, param=place)


def quantiles_of(levels: Sequence[float]) -> dict[str, float]:
    """The quantiles that bound intervals, by their names in answers, such as `lo-80`."""
    bounds = {}
    for level in levels:
        name = f"{level:.15g}"
        bounds[f"lo-{name}"] = (100 - level) / 200
        bounds[f"hi-{name}"] = (100 + level) / 200
    return bounds


def read_forecast(
    request: ForecastRequest, bounds: Mapping[str, float], model: Model, settings: Settings
) -> Job:
    """The job of a forecast.

    Args:
        request: What is asked for.
        bounds: The quantiles, by name.
        model: Who forecasts.
        settings: Limits.

    Raises:
        ServiceError: the request does not fit the model; of one bad series, its error.
    """
    options = ForecastOptions(
        horizon=request.h,
        quantiles=sorted(set(bounds.values())) or None,
        **request.model_parameters.model_dump(),
    )
    envelope = Envelope.model_construct(inputs=_inputs(request), metadata=None, options=options)
    return _sound(decode(envelope, {}, model, settings))


def read_backtest(
    request: Request,
    horizon: int,
    stride: int,
    windows: int | None,
    bounds: Mapping[str, float],
    model: Model,
    settings: Settings,
) -> Job:
    """The job of forecasts of known rows.

    Args:
        request: What is asked for.
        horizon: Steps of each.
        stride: Rows from one to the next.
        windows: How many of each series, the latest; None for as many as there are.
        bounds: The quantiles, by name.
        model: Who forecasts.
        settings: Limits.

    Raises:
        ServiceError: as `read_forecast`.
    """
    parameters = request.model_parameters
    if parameters.calibration != "stored":
        raise NotSupportedError(
            "only forecasts are corrected by the history", param="model_parameters.calibration"
        )
    options = BacktestOptions(
        horizon=horizon,
        stride=stride,
        origins=windows,
        quantiles=sorted(set(bounds.values())) or None,
        missing=parameters.missing,
    )
    envelope = BacktestEnvelope.model_construct(
        inputs=_inputs(request), metadata=None, options=options
    )
    return _sound(decode(envelope, {}, model, settings, _EXACTLY))


def read_history(
    request: Request, bounds: Mapping[str, float], model: Model, settings: Settings
) -> Job:
    """The job of forecasts of all rows that a model can forecast from those before, each once.

    The client takes them for the last rows of each series, so that no row between may be left out.
    What it is given is as in `read_forecast`.

    Raises:
        ServiceError: as `read_backtest`, and where a whole context is missing amid a series.
    """
    context, sizes = model.manifest.context, request.series.sizes
    # As many steps as the shortest series has rows for, at most the model's own.
    horizon = max(1, min(model.manifest.horizon, min(sizes) - context))
    job = read_backtest(request, horizon, horizon, None, bounds, model, settings)
    assert job.past is not None  # noqa: S101 - `read_backtest` has it made
    for number, (size, origins) in enumerate(zip(sizes, job.past.origins, strict=True)):
        if origins[0] + len(origins) * horizon != size:
            raise InvalidInputError(
                f"{context} rows, the model's context, are missing in a row, and the client has no "
                "place for a gap among forecasts; send what follows them",
                param=f"series[{number}].y",
            )
    return job


def _plan(options: BacktestOptions, inputs: int, model: Model, settings: Settings) -> Plan:
    """That of a backtest, but that no series has fewer windows than are asked for."""
    found = BACKTESTING.plan(options, inputs, model, settings)
    if found.rolling is not None and options.origins is not None:
        found.rolling = replace(found.rolling, least=options.origins)
    return found


_EXACTLY = replace(BACKTESTING, plan=_plan)


def _inputs(request: Request) -> list[dict[str, Any]]:
    """The series as the inputs of the other door."""
    series, ends = request.series, [*accumulate(request.series.sizes)]
    starts, count = series.start_datetime, len(series.sizes)
    if ends[-1] != len(series.y):
        _refuse("series.y", f"{ends[-1]} values, the sum of series.sizes", len(series.y))
    if starts is not None and len(starts) != count:
        _refuse("series.start_datetime", f"{count} times, one a series", len(starts))
    return [
        {
            "series": series.y[end - size : end],
            "start_timestamp": None if starts is None else starts[index],
        }
        for index, (size, end) in enumerate(zip(series.sizes, ends, strict=True))
    ]


def _refuse(place: str, expected: str, got: int) -> NoReturn:
    raise InvalidInputError(f"expected {expected}, got {shown(got)}", param=place)


def _sound(job: Job) -> Job:
    """A job none of whose series is wrong: the answer has no place for an error of one."""
    for entry in job.entries:
        if isinstance(entry, ServiceError):
            raise entry
    return job
