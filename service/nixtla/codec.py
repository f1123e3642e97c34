"""The codecs of the nixtla client: its requests as jobs of `/forecast` and `/backtest`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
import orjson
from numpy.typing import NDArray
from starlette.requests import Request as HttpRequest

from foretell.bundle.nearness import listed
from foretell.service.arrays import DISTRIBUTION, FORECAST, Arrays
from foretell.service.engine.registry import Model, Registry
from foretell.service.errors import InvalidInputError, NotSupportedError, ServiceError
from foretell.service.forecast.backtest import BACKTESTING, Backtest
from foretell.service.forecast.encode import encoding_work, not_finite, quantiles_of, warn
from foretell.service.forecast.job import Job, decode
from foretell.service.forecast.options import FORECASTING, Operation, Options, check_options
from foretell.service.forecast.parse import JsonBody, parsing_bytes, reading_work
from foretell.service.forecast.requests import (
    BacktestEnvelope,
    BacktestOptions,
    Envelope,
    ForecastOptions,
)
from foretell.service.forecast.warnings import AnswerWarning, outside, unknown_fields
from foretell.service.http.body import ALWAYS, JSON, LARGE
from foretell.service.http.compression import Body
from foretell.service.http.pipeline import NotRemembered, Parsed
from foretell.service.nixtla.covariates import check_steps, fields_of
from foretell.service.nixtla.requests import (
    CrossValidationRequest,
    ForecastRequest,
    frequency_of,
    inputs_of,
    parse,
    with_own_places,
)
from foretell.service.settings import Settings
from foretell.timeaxis.frequency import Frequency

Floats = NDArray[np.float32]
# Names of models that the client sends by default, or its examples use.
_ANY = ("timegpt", "azureai")


def find(registry: Registry, name: str, frequency: Frequency) -> Model:
    """The model of a request.

    TimeGPT's names, which the client sends by default, mean the only served model or the only one
    of the frequency. Other names, which may have `@version`, are looked up by `Registry.find`.
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
            f"no served model forecasts one value every {frequency}: "
            f"{listed(registry.names.names)}",
            param="freq",
        )
    names = listed(sorted(model.name for model in fitting))
    raise InvalidInputError(f"{name!r} may mean any of {names}; pass model=…", param="model")


def check_model(model: Model, frequency: Frequency) -> None:
    """Refuse a model of several channels (`NotSupportedError`) or of another frequency."""
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


_Run = TypeVar("_Run", bound=Job | Backtest)


class _Decoded(NotRemembered, Generic[_Run]):
    """A decoded request: its job, and its quantiles by name in the answer (`lo-80`)."""

    timeout: ClassVar[float | None] = None
    coverage: ClassVar[Mapping[float, tuple[int, int]]] = MappingProxyType({})

    def __init__(self, request: ForecastRequest, bounds: Mapping[str, float], job: _Run) -> None:
        self.unknown = [name[:60] for name in request.model_extra or ()]
        self.sizes = request.series.sizes
        self.bounds = bounds
        self.job = job
        self.model, self.windows, self.held = job.model, job.windows, job.held
        self.run = job.run


class _Codec(ABC, JsonBody):
    kind: type[ForecastRequest]
    compress_from = 1024

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def parse(self, body: Body, request: HttpRequest) -> Parsed[ForecastRequest]:  # noqa: ARG002
        """Read the request, and refuse options that this server does not support."""
        parsed = parse(body, self.kind, self._settings.max_inputs)
        # Large bodies were reserved before.
        is_small = reading_work(body, len(body)) < LARGE
        lookup = partial(find, name=parsed.model or "", frequency=frequency_of(parsed.freq))
        # Windows may be cut out of all rows.
        return Parsed(parsed, lookup, ALWAYS, parsing_bytes(body) if is_small else 0)

    def decode(self, parsed: Parsed[ForecastRequest], model: Model) -> _Decoded[Any]:
        """Read the series as inputs of `/forecast` or `/backtest`."""
        request = parsed.release()
        check_model(model, frequency_of(request.freq))
        bounds = {}
        for level in request.level or ():
            bounds[f"lo-{level:.15g}"] = (100 - level) / 200
            bounds[f"hi-{level:.15g}"] = (100 + level) / 200
        quantiles = sorted(set(bounds.values())) or None
        try:
            return _Decoded(request, bounds, self._job(request, quantiles, model))
        except ServiceError as error:
            error.message = with_own_places(error.message)
            error.param = error.param and with_own_places(error.param)
            raise

    @abstractmethod
    def _job(self, request: Any, quantiles: list[float] | None, model: Model) -> Job | Backtest:  # noqa: ANN401
        """The job of the request."""

    def _read(self, envelope: Any, model: Model, operation: Operation) -> Job:  # noqa: ANN401
        """Decode a job; the first bad series fails it, as the answer has no place for its error."""
        job = decode(envelope, {}, model, self._settings, operation)
        for entry in job.entries:
            if isinstance(entry, ServiceError):
                raise entry
        return job


class ForecastCodec(_Codec):
    """`POST /nixtla/v2/forecast`."""

    kind = ForecastRequest

    def _job(self, request: ForecastRequest, quantiles: list[float] | None, model: Model) -> Job:
        options = ForecastOptions(
            horizon=request.h,
            quantiles=quantiles,
            **request.model_parameters.model_dump(),
        )
        # Covariates have the length that the options ask for.
        check_options(options, model, self._settings)
        check_steps(request.h, model.manifest)
        inputs = _inputs(request, request.h, model)
        envelope = Envelope.model_construct(inputs=inputs, metadata=None, options=options)
        return self._read(envelope, model, FORECASTING)

    def encoding_work(self, decoded: _Decoded[Job], outputs: Arrays) -> int:
        return encoding_work(decoded.job, outputs)

    def encode(self, decoded: _Decoded[Job], outputs: Arrays) -> tuple[bytes, dict[str, str]]:
        job = decoded.job
        forecast = outputs[FORECAST][:, : job.options.horizon]
        _check_finite(forecast, np.arange(len(forecast)))
        quantiles = quantiles_of(job, outputs) if job.options.quantiles else None
        answer = {
            "mean": forecast.ravel(),
            "intervals": _intervals(decoded, quantiles),
            "weights_x": None,
            # Not computed, but the client needs the field.
            "feature_contributions": None,
        }
        far = outside(job.model.manifest, job.history, forecast, "inputs[{}].series".format)
        return _written(answer, decoded, warn(job, far))


class CrossValidationCodec(_Codec):
    """`POST /nixtla/v2/cross_validation`."""

    kind = CrossValidationRequest

    def _job(
        self, request: CrossValidationRequest, quantiles: list[float] | None, model: Model
    ) -> Backtest:
        parameters, sizes = request.model_parameters, request.series.sizes
        if parameters.calibration != "stored":
            raise NotSupportedError(
                "only forecasts are corrected by the history", param="model_parameters.calibration"
            )
        horizon, stride = request.h, request.step_size or request.h
        windows: int | None = request.n_windows
        if request.full_history:
            # The steps that the shortest series has rows for, at most the model's horizon.
            manifest = model.manifest
            horizon = max(1, min(manifest.horizon, min(sizes) - manifest.context))
            stride, windows = horizon, None
        options = BacktestOptions(
            horizon=horizon,
            stride=stride,
            origins=windows,
            quantiles=quantiles,
            missing=parameters.missing,
        )
        envelope = BacktestEnvelope.model_construct(
            inputs=_inputs(request, 0, model), metadata=None, options=options
        )
        job = self._read(envelope, model, _EXACTLY)
        if request.full_history:
            _check_history(job, sizes, horizon)
        return Backtest(job)

    def encoding_work(self, decoded: _Decoded[Backtest], outputs: Arrays) -> int:  # noqa: ARG002
        """Large: the windows of all series are written."""
        return ALWAYS

    def encode(self, decoded: _Decoded[Backtest], outputs: Arrays) -> tuple[bytes, dict[str, str]]:
        """Write the forecasts of all windows as one list, with the index of each value's row."""
        job, past, sizes = decoded.job.job, decoded.job.past, decoded.sizes
        forecast = outputs[FORECAST][:, : job.options.horizon]
        owner = np.repeat(np.arange(len(past.spans)), [len(rows) for rows in past.origins])
        _check_finite(forecast, owner)
        rows = np.concatenate(past.origins)[:, None] + np.arange(forecast.shape[1])
        quantiles = None
        if levels := job.options.quantiles:
            parameters = outputs.get(DISTRIBUTION)
            quantiles = job.model.intervals.quantiles(job.history, forecast, levels, parameters)
        first = np.cumsum([0, *sizes[:-1]])
        answer = {
            "sizes": np.bincount(owner, minlength=len(sizes)) * forecast.shape[1],
            # Indices among the values of all series.
            "idxs": (rows + first[owner, None]).ravel(),
            "mean": forecast.ravel(),
            "intervals": _intervals(decoded, quantiles),
            "weights_x": None,
        }
        return _written(answer, decoded, decoded.job.warnings(outputs))


def _inputs(request: ForecastRequest, steps: int, model: Model) -> list[dict[str, Any]]:
    inputs = inputs_of(request)
    fields = fields_of(request.series, steps, model.manifest)
    return [entry | further for entry, further in zip(inputs, fields, strict=True)]


def _exact_options(
    given: BacktestOptions, inputs: int, model: Model, settings: Settings
) -> Options:
    """The options of a backtest in which each series must have all requested windows."""
    options = BACKTESTING.read_options(given, inputs, model, settings)
    if options.rolling is not None and given.origins is not None:
        options.rolling = replace(options.rolling, least=given.origins)
    return options


_EXACTLY = replace(BACKTESTING, read_options=_exact_options)


def _check_history(job: Job, sizes: Sequence[int], horizon: int) -> None:
    """Refuse series with a gap of a whole context: the client cannot omit rows."""
    assert job.past is not None  # noqa: S101 - it is a backtest
    for number, (size, origins) in enumerate(zip(sizes, job.past.origins, strict=True)):
        if origins[0] + len(origins) * horizon != size:
            raise InvalidInputError(
                f"{job.model.manifest.context} rows, the model's context, are missing in a row, "
                "and the client cannot omit forecasts; send the rows after them",
                param=f"series[{number}].y",
            )


def _check_finite(forecast: Floats, owner: NDArray[np.int64]) -> None:
    """Refuse forecasts `[windows, horizon, 1]` that are not finite; `owner` has their series."""
    is_finite = np.isfinite(forecast).all(axis=(1, 2))
    if not is_finite.all():
        raise not_finite(f"series[{owner[is_finite.argmin()]}].y")


def _intervals(
    decoded: _Decoded[Job] | _Decoded[Backtest], quantiles: Floats | None
) -> dict[str, Floats] | None:
    """Quantiles `[levels, windows, horizon, 1]` as one list each, by name."""
    if quantiles is None or not decoded.bounds:
        return None
    levels = decoded.job.options.quantiles
    return {name: quantiles[levels.index(level)].ravel() for name, level in decoded.bounds.items()}


def _written(
    answer: dict[str, Any],
    decoded: _Decoded[Job] | _Decoded[Backtest],
    warnings: list[AnswerWarning],
) -> tuple[bytes, dict[str, str]]:
    answer["model_digest"] = decoded.model.digest
    if warnings := unknown_fields(decoded.unknown) + warnings:
        answer["warnings"] = [
            {name: text and with_own_places(text) for name, text in each.items()}
            for each in warnings
        ]
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY), {"content-type": JSON}
