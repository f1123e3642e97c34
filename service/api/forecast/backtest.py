"""`POST /backtest`: how well a model would have forecast the rows that a request holds."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from foretell.bundle.season import season_of
from foretell.service.api.body import ALWAYS
from foretell.service.api.forecast.inputs import Plan, Series, check_horizon, check_quantiles
from foretell.service.api.forecast.job import Job, again, filled, warn
from foretell.service.api.forecast.origins import Rolling, room
from foretell.service.api.forecast.schemas import (
    BACKTEST_NAMES,
    BacktestEnvelope,
    BacktestOptions,
    TableBacktestOptions,
)
from foretell.service.api.forecast.task import Task
from foretell.service.api.notices import Notice, notice, outside
from foretell.service.arrays import FORECAST, Arrays
from foretell.service.engine.directory import Model
from foretell.service.errors import InvalidInputError, ServiceError, error_object
from foretell.service.settings import Settings
from foretell.service.web.middleware import new_identifier

Floats = NDArray[np.floating]
# Of two levels that make an interval.
_ROUNDING = 1e-9


def plan(options: BacktestOptions, inputs: int, model: Model, settings: Settings) -> Plan:
    """Read the options of a request; see `inputs.plan`."""
    manifest = model.manifest
    horizon = check_horizon(options.horizon, model, settings.max_horizon_multiple)
    levels = options.quantiles
    quantiles = check_quantiles(levels, horizon, model) if levels else ()
    passes = -(-horizon // manifest.horizon)
    most = room(inputs, horizon, passes, len(quantiles), manifest, settings)
    if most < (wanted := options.origins or 1):
        raise InvalidInputError(
            f"{inputs} inputs leave room for {most} origins of each, got {wanted} (max_origins, "
            "max_queue_bytes, max_answer_values); send fewer inputs, or ask for fewer origins, "
            "steps or quantiles",
            param="options" if options.origins is None else "options.origins",
        )
    rolling = Rolling(options.stride or horizon, 1, options.origins or most)
    return Plan(horizon, passes, options.missing, quantiles, None, rolling)


class Backtest:
    """A request to backtest, read whole.

    Args:
        job: What it would be as a request for forecasts; its past is what is forecast.
        is_table: Whether it came as a table.

    Attributes:
        job: What to do.
    """

    def __init__(self, job: Job, *, is_table: bool) -> None:
        assert job.past is not None  # noqa: S101 - `plan` has it made
        self._read = job
        self._is_table = is_table
        self._past = job.past
        self.job = again(job, job.past)

    def encoding_work(self, _: Arrays) -> int:
        """How much there is to do to write the answer, as `Offload` has it."""
        return ALWAYS

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer.

        Raises:
            ServiceError: no input could be forecast; it is the first one's error.
        """
        identifier = f"backtest-{new_identifier()}"
        answers: list[dict[str, Any]] = []
        failures: list[ServiceError] = []
        for index, entry in enumerate(self._read.entries):
            answer: dict[str, Any] = {
                "type": "time_series_backtest",
                "id": f"{identifier}-{index}",
                "status": "completed",
                "content": [],
                "error": None,
            }
            answers.append(answer)
            try:
                if isinstance(entry, ServiceError):
                    raise entry
                answer["content"] = [self._content(entry, outputs)]
            except ServiceError as error:
                failures.append(error)
                answer |= {"status": "error", "error": error_object(error)}
        if len(failures) == len(answers):
            raise failures[0]
        job = self._read
        response: dict[str, Any] = {
            "id": identifier,
            "created_at": int(time.time()),
            "status": "partial" if failures else "completed",
            "error": None,
            "model": job.model.name,
            "model_version": job.model.version,
            "outputs": answers,
        }
        if warnings := self._warnings(outputs):
            response["warnings"] = warnings
        if job.metadata is not None:
            response["metadata"] = orjson.Fragment(job.metadata)
        return orjson.dumps(response, option=orjson.OPT_SERIALIZE_NUMPY)

    def _warnings(self, outputs: Arrays) -> list[Notice]:
        """What the answer warns of; of windows and forecasts, those of the latest origins."""
        job, past = self.job, self._past
        latest = [span.stop - 1 for span in past.spans]
        forecast = outputs[FORECAST][latest, : job.plan.horizon]
        entries = [entry for entry in self._read.entries if isinstance(entry, Series)]
        far = outside(
            job.model.manifest, past.history[latest], forecast, lambda at: self._place(entries[at])
        )
        # Of a forecast's window it would count what is filled.
        warnings = warn(replace(job, notices=self._read.notices), far)
        if past.filled:
            warnings.append(filled(past.filled, job.plan))
        if past.left_out:
            text = f"the rows hold {past.left_out} earlier origins, which were left out"
            warnings.append(notice("origins_left_out", text, "options.origins"))
        return warnings

    def _place(self, series: Series) -> str:
        """Where a series stands in the request."""
        if self._is_table:
            return f"unique_id={series.name[:60]}"
        return f"inputs[{self._read.entries.index(series)}].series"

    def _content(self, series: Series, outputs: Arrays) -> dict[str, Any]:
        job, span = self.job, self._past.spans[series.row]
        origins = self._past.origins[series.row]
        forecast = outputs[FORECAST][span, : job.plan.horizon]
        if not np.isfinite(forecast).all():
            raise InvalidInputError(
                "a forecast from these rows is not finite: their values are too far from those "
                "the model was trained on",
                param=self._place(series),
            )
        manifest = job.model.manifest
        history, future = job.history[span], self._past.future[span]
        quantiles = None
        if job.plan.quantiles:
            quantiles = job.model.intervals.quantiles(history, forecast, job.plan.quantiles)
        results = _results(history, forecast, future, quantiles, job)
        names = manifest.channels
        order = range(len(names)) if series.columns is None else series.columns
        first, last = self._named(series, origins)
        return {
            "name": series.name,
            "horizon": job.plan.horizon,
            "stride": job.plan.rolling and job.plan.rolling.stride,
            "origins": len(origins),
            "first_origin": first,
            "last_origin": last,
            "channels": [{"name": names[at]} | results[at] for at in order],
        }

    def _named(self, series: Series, origins: NDArray[np.int64]) -> list[str | int]:
        """The first and the last origin: its time, or the number of its row."""
        ends = [int(origins[0]), int(origins[-1])]
        if series.timeline is None:
            return [*ends]
        rows = series.timeline.rows
        return [series.timeline.labels(row - rows, 1)[0] for row in ends]


def _results(
    history: Floats, forecast: Floats, future: Floats, quantiles: Floats | None, job: Job
) -> list[dict[str, Any]]:
    """What was found of each channel.

    Args:
        history: `[origins, context, channels]`.
        forecast: `[origins, horizon, channels]`.
        future: Likewise, what followed; NaN where it is missing.
        quantiles: `[levels, origins, horizon, channels]`, if any are asked for.
        job: What was done.
    """
    manifest = job.model.manifest
    season = season_of(manifest.step, manifest.context)
    own, last = _Errors(forecast, future), _Errors(history[:, -1:], future)
    seasonal = None
    if season is not None:
        steps = np.arange(job.plan.horizon) % season - season
        seasonal = _Errors(history[:, steps], future)
    found: list[dict[str, Any]] = []
    for channel, name in enumerate(manifest.channels):
        result = {"name": name, **own.of(channel), "steps": own.steps(channel)}
        result["last_value"] = last.beside(own, channel)
        result["seasonal_naive"] = None
        if seasonal is not None:
            result["seasonal_naive"] = {**seasonal.beside(own, channel), "season": season}
        if quantiles is not None:
            at = quantiles[..., channel]
            result |= _held(at, future[..., channel], job.plan.quantiles)
        found.append(result)
    return found


class _Errors:
    """Mean errors of a forecast.

    Args:
        forecast: `[origins, horizon, channels]`, or one step for all.
        future: `[origins, horizon, channels]`, what followed; NaN where it is missing.
    """

    def __init__(self, forecast: Floats, future: Floats) -> None:
        error = forecast.astype(np.float64) - future
        self._squared, self._absolute = np.square(error), np.abs(error)

    def of(self, channel: int) -> dict[str, float]:
        """Of a channel, over all origins and steps."""
        return {
            "mse": _mean(self._squared[..., channel]),
            "mae": _mean(self._absolute[..., channel]),
        }

    def steps(self, channel: int) -> dict[str, list[float]]:
        """Of a channel, by step."""
        return {
            "mse": _by_step(self._squared[..., channel]),
            "mae": _by_step(self._absolute[..., channel]),
        }

    def beside(self, model: _Errors, channel: int) -> dict[str, float | None]:
        """Of a channel, as of a baseline of a model."""
        own = self.of(channel)
        mae, models = own["mae"], model.of(channel)["mae"]
        return {**own, "relative_mae": models / mae if mae else None}


def _held(quantiles: Floats, future: Floats, levels: Sequence[float]) -> dict[str, Any]:
    """How often what followed was below quantiles, and between those that make an interval.

    Args:
        quantiles: `[levels, origins, horizon]`.
        future: `[origins, horizon]`, NaN where it is missing.
        levels: Of the quantiles.
    """
    is_missing = np.isnan(future)
    below = {
        str(level): _mean(np.where(is_missing, np.nan, future <= values))
        for level, values in zip(levels, quantiles, strict=True)
    }
    intervals = []
    for low, high in combinations(sorted(range(len(levels)), key=levels.__getitem__), 2):
        if abs(levels[low] + levels[high] - 1) > _ROUNDING:
            continue
        inside = (quantiles[low] <= future) & (future <= quantiles[high])
        held = np.where(is_missing, np.nan, inside)
        width = quantiles[high].astype(np.float64) - quantiles[low]
        intervals.append(
            {
                "level": round(levels[high] - levels[low], 9),
                "coverage": _mean(held),
                "width": _mean(width),
                "steps": {"coverage": _by_step(held), "width": _by_step(width)},
            }
        )
    return {"below": below, "intervals": intervals}


def _mean(values: Floats) -> float:
    """The mean of what is known; NaN, which JSON has as null, where nothing is."""
    return _by_step(values.reshape(-1, 1))[0]


def _by_step(values: Floats) -> list[float]:
    """Likewise of each step of `[origins, horizon]`."""
    is_known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        means: list[float] = (values.sum(axis=0, where=is_known) / is_known.sum(axis=0)).tolist()
    return means


BACKTESTING = Task(
    "backtest",
    "How well the model would have forecast the rows that the request holds: from rolling "
    "origins, in its units, next to repeating the last value and the last season.",
    BacktestEnvelope,
    BACKTEST_NAMES,
    TableBacktestOptions,
    BacktestOptions,
    plan,
)
