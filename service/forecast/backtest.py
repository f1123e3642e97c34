"""`POST /backtest`: errors of a model's forecasts of the rows in a request."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from foretell.service.arrays import DISTRIBUTION, FORECAST, Arrays
from foretell.service.engine.recalibration import LEAST_ORIGINS, MOST_ORIGINS, stride_of
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError
from foretell.service.forecast.encode import gaps, respond, warn
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import Operation, Options, check_corrected, check_options
from foretell.service.forecast.origins import LIMITS, RollingOrigins, max_origins
from foretell.service.forecast.requests import (
    BACKTEST_NAMES,
    BacktestEnvelope,
    BacktestOptions,
    TableBacktestOptions,
)
from foretell.service.forecast.series import Series
from foretell.service.forecast.warnings import AnswerWarning, outside, warning
from foretell.service.http.pipeline import NotRemembered
from foretell.service.settings import Settings
from foretell.timeaxis.gaps import fill
from foretell.timeaxis.season import season_of

Floats = NDArray[np.floating]
# Tolerance for the levels of an interval, which add up to 1.
_ROUNDING = 1e-9
# Most origins of a backtest with corrected quantiles; half have `MOST_ORIGINS` before them.
_MOST_CORRECTED = 2 * MOST_ORIGINS
# Most errors that correct the quantiles of a request: more take too many seconds.
_MOST_ERRORS = 32_000_000


def read_options(given: BacktestOptions, inputs: int, model: Model, settings: Settings) -> Options:
    """Read the options of a backtest; arguments and result as of `options.read_options`."""
    manifest = model.manifest
    horizon, passes, quantiles = check_options(given, model, settings)
    most = max_origins(inputs, horizon, passes, len(quantiles), manifest, settings)
    if quantiles and (searched := model.intervals.most) is not None:
        values = inputs * horizon * len(manifest.targets) * len(quantiles)
        most = min(most, searched // values)
    stride, least = given.stride or horizon, 1
    is_corrected = given.calibration == "history"
    if is_corrected:
        check_corrected(quantiles, model)
        stride = given.stride or stride_of(horizon)
        # The last origin needs enough earlier ones whose steps are known there.
        least = LEAST_ORIGINS - (-horizon // stride)
        if least > _MOST_CORRECTED:
            shortest = -(-horizon // (_MOST_CORRECTED - LEAST_ORIGINS))
            raise InvalidInputError(
                f"expected at least {shortest}, so that one of {_MOST_CORRECTED} origins has "
                f"{LEAST_ORIGINS} before it whose {horizon} steps are known there, got {stride}",
                param="options.stride",
            )
        if given.origins is not None and given.origins < least:
            raise InvalidInputError(
                f"expected at least {least}, so that one has {LEAST_ORIGINS} to be corrected by, "
                f"got {given.origins}",
                param="options.origins",
            )
    if most < (wanted := given.origins or least):
        raise InvalidInputError(
            f"{inputs} inputs leave room for {most} origins of each, got {wanted} ({LIMITS}); send "
            "fewer inputs, or ask for fewer origins, steps or quantiles",
            param="options" if given.origins is None else "options.origins",
        )
    most = min(given.origins or most, _MOST_CORRECTED if is_corrected else most)
    rolling = RollingOrigins(stride, least, most, is_explicit=given.origins is not None)
    return Options(horizon, passes, given.missing, quantiles, None, rolling, is_corrected, True)


class Backtest(NotRemembered):
    """A decoded backtest: the job that forecasts its windows.

    After `encode`, `coverage` has the number of values inside the intervals of each level, and the
    number of compared values.
    """

    timeout: ClassVar[float | None] = None

    def __init__(self, request: Job) -> None:
        assert request.past is not None  # noqa: S101 - its options have windows
        self._request = request
        self.past = request.past
        self.job = request.of_past(request.past)
        self.options = self.job.options
        self.model, self.windows, self.held = request.model, len(request.past), request.held
        self.run = self.job.run
        self.coverage: dict[float, tuple[int, int]] = {}

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer; if no input could be forecast, raise the first one's error."""
        content = partial(self._content, outputs)
        return respond(self._request, "backtest", content, self.warnings(outputs))

    def warnings(self, outputs: Arrays) -> list[AnswerWarning]:
        """The warnings of the answer; forecasts are checked at each series' latest origin."""
        job, past = self.job, self.past
        latest = [span.stop - 1 for span in past.spans]
        forecast = outputs[FORECAST][latest, : job.options.horizon]
        far = outside(
            job.model.manifest,
            past.history[latest],
            forecast,
            lambda row: self._place(*self._request.entry_of(row)),
        )
        # Gaps are counted in all rows, not in the window of a forecast.
        warnings = warn(replace(job, warnings=self._request.warnings), far)
        if past.filled:
            warnings.append(gaps(past.filled, job.options))
        if past.covariates is not None:
            text = (
                "the future covariates of each origin are those that came true; with forecasts of "
                "them, errors are larger"
            )
            warnings.append(warning("actual_covariates", text, None))
        if past.left_out and not (job.options.rolling and job.options.rolling.is_explicit):
            text = (
                f"there was no room for {past.left_out} earlier origins of the rows "
                f"({LIMITS}); with a longer stride they reach further back"
            )
            warnings.append(warning("origins_left_out", text, "options.stride"))
        return warnings

    def _place(self, index: int, series: Series) -> str:
        if self._request.table is not None:
            return f"unique_id={series.name[:60]}"
        return f"inputs[{index}].series"

    def _content(self, outputs: Arrays, index: int, series: Series) -> dict[str, Any]:
        job, span = self.job, self.past.spans[series.row]
        origins = self.past.origins[series.row]
        forecast = outputs[FORECAST][span, : job.options.horizon]
        if not np.isfinite(forecast).all():
            raise InvalidInputError(
                "a forecast from these rows is not finite: their values are too far from those "
                "the model was trained on",
                param=self._place(index, series),
            )
        manifest = job.model.manifest
        history, future = job.history[span], self.past.future[span]
        quantiles, notes = None, {}
        if job.options.is_corrected:
            quantiles = self._corrected(history, forecast, future, origins)
            notes["calibration"] = {"method": "history", "origins": quantiles.shape[1]}
        elif job.options.quantiles:
            further = outputs[DISTRIBUTION][span] if DISTRIBUTION in outputs else None
            quantiles = job.model.intervals.quantiles(
                history, forecast, job.options.quantiles, further
            )
        results = _results(history, forecast, future, quantiles, job)
        if not job.options.is_corrected:
            # For comparison with the coverage of the stored offsets in the test split.
            self._count(results, future)
        names, order = manifest.targets, series.columns
        if order is None or manifest.columns is not None:
            order = [*range(len(names))]
        # Origins are times, or numbers of rows without timestamps.
        ends: list[str | int] = [int(origins[0]), int(origins[-1])]
        if (timeline := series.timeline) is not None:
            ends = [timeline.labels(row - timeline.rows, 1)[0] for row in origins[[0, -1]].tolist()]
        return {
            "name": series.name,
            "horizon": job.options.horizon,
            "stride": job.options.rolling and job.options.rolling.stride,
            "origins": len(origins),
            "first_origin": ends[0],
            "last_origin": ends[1],
            "channels": [{"name": names[at]} | results[at] for at in order],
            **notes,
        }

    def _count(self, results: list[dict[str, Any]], future: Floats) -> None:
        """Add the values that the intervals of each target covered."""
        columns = self.job.model.manifest.columns
        known = np.isfinite(future if columns is None else future[..., columns]).sum(axis=(0, 1))
        for result, values in zip(results, known.tolist(), strict=True):
            for interval in result.get("intervals", ()) if values else ():
                inside, compared = self.coverage.get(interval["level"], (0, 0))
                inside += round(interval["coverage"] * values)
                self.coverage[interval["level"]] = inside, compared + values

    def _corrected(
        self, history: Floats, forecast: Floats, future: Floats, origins: NDArray[np.int64]
    ) -> Floats:
        """Quantiles `[levels, origins, horizon, targets]`, corrected by errors known at an origin.

        Only origins with enough earlier ones have quantiles, the latest ones if time is short.
        """
        options, intervals = self.job.options, self.job.model.intervals
        assert options.rolling is not None  # noqa: S101 - as above
        errors = intervals.errors(history, forecast, future)
        known = np.searchsorted(origins, origins - options.horizon, side="right")
        most = _MOST_ERRORS // (MOST_ORIGINS * errors[0].size * len(self.past.spans))
        first = np.searchsorted(known, LEAST_ORIGINS)
        latest = slice(int(max(first, len(origins) - max(1, most))), None)
        return intervals.corrected(
            history[latest],
            forecast[latest],
            options.quantiles,
            [errors[max(0, end - MOST_ORIGINS) : end] for end in known[latest]],
            options.rolling.stride,
        )


def _results(
    history: Floats, forecast: Floats, future: Floats, quantiles: Floats | None, job: Job
) -> list[dict[str, Any]]:
    """The results of each channel.

    `history` is `[origins, context, channels]` and `future` `[origins, horizon, channels]`, NaN
    where a value is missing; `forecast` `[origins, horizon, targets]`; `quantiles` `[levels, latest
    origins, horizon, targets]`.
    """
    manifest, steps = job.model.manifest, np.arange(job.options.horizon)
    season = season_of(manifest.step, manifest.context)
    if manifest.columns is not None:
        history, future = history[..., manifest.columns], future[..., manifest.columns]
    results: list[dict[str, Any]] = []
    # One channel at a time: all at once would take several times the memory of the forecasts.
    for channel, name in enumerate(manifest.targets):
        known, actual = _filled(history[..., channel]), future[..., channel].astype(np.float64)
        error = forecast[..., channel] - actual
        mean = _errors(error)
        result = {"name": name, **mean, "steps": _errors(error, axis=0)}
        result["last_value"] = _baseline(mean, known[:, -1:] - actual)
        result["seasonal_naive"] = None
        if season is not None:
            seasonal = _baseline(mean, known[:, steps % season - season] - actual)
            result["seasonal_naive"] = {**seasonal, "season": season}
        if quantiles is not None:
            latest = actual[-quantiles.shape[1] :]
            result |= _coverage(quantiles[..., channel], latest, job.options.quantiles)
        results.append(result)
    return results


def _filled(history: Floats) -> Floats:
    """Histories `[origins, context]` for baselines, with interpolated gaps."""
    if not (holes := np.isnan(history).any(axis=1)).any():
        return history
    filled = history.astype(np.float64)
    for row in np.flatnonzero(holes):
        fill(filled[row], np.flatnonzero(np.isnan(filled[row])), "interpolate")
    return filled


def _errors(error: Floats, axis: int | None = None) -> dict[str, Any]:
    return {"mse": _mean(np.square(error), axis), "mae": _mean(np.abs(error), axis)}


def _baseline(model: dict[str, Any], error: Floats) -> dict[str, Any]:
    errors = _errors(error)
    return {**errors, "relative_mae": model["mae"] / errors["mae"] if errors["mae"] else None}


def _coverage(quantiles: Floats, future: Floats, levels: Sequence[float]) -> dict[str, Any]:
    """Shares of the future `[origins, horizon]` below each quantile and within intervals."""
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
        inside = np.where(is_missing, np.nan, inside)
        width = quantiles[high].astype(np.float64) - quantiles[low]
        intervals.append(
            {
                "level": round(levels[high] - levels[low], 9),
                "coverage": _mean(inside),
                "width": _mean(width),
                "steps": {"coverage": _mean(inside, axis=0), "width": _mean(width, axis=0)},
            }
        )
    return {"below": below, "intervals": intervals}


def _mean(values: Floats, axis: int | None = None) -> Any:  # noqa: ANN401 - nested by axis
    """The mean of the known values; NaN, in JSON null, without known values."""
    is_known = ~np.isnan(values)
    with np.errstate(invalid="ignore"):
        return (values.sum(axis=axis, where=is_known) / is_known.sum(axis=axis)).tolist()


BACKTESTING = Operation(
    BacktestEnvelope,
    BACKTEST_NAMES,
    "backtest",
    "Errors of the model's forecasts of the rows in the request: from rolling "
    "origins, in the rows' units, next to repeating the last value and the last season.",
    TableBacktestOptions,
    BacktestOptions,
    read_options,
)
