"""From a job's outputs to the answers that the nixtla client reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from foretell.service.arrays import DISTRIBUTION, FORECAST, Arrays
from foretell.service.forecast.backtest import Backtest
from foretell.service.forecast.encode import not_finite, quantiles_of
from foretell.service.forecast.job import Job, warn
from foretell.service.forecast.warnings import Notice, notice, outside
from foretell.service.nixtla.reading import own_places

Floats = NDArray[np.float32]


class Forecasting:
    """A request for forecasts, read whole.

    Args:
        unread: Names in it that nobody reads.
        bounds: The quantiles that it asks for, by their names in the answer.
        job: What to do.
    """

    def __init__(self, unread: list[str], bounds: Mapping[str, float], job: Job) -> None:
        self._unread = unread
        self._bounds = bounds
        self.job = job

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer.

        Raises:
            InvalidInputError: a forecast is not finite.
        """
        job = self.job
        forecast = outputs[FORECAST][:, : job.plan.horizon]
        _check_finite(forecast, np.arange(len(forecast)))
        quantiles = quantiles_of(job, outputs) if job.plan.quantiles else None
        intervals = _by_name(job, self._bounds, quantiles)
        answer = {
            "mean": forecast.ravel(),
            "intervals": {name: own.ravel() for name, own in intervals.items()} or None,
            "weights_x": None,
            # Who asks for them gets no forecast where the answer says nothing of them.
            "feature_contributions": None,
        }
        far = outside(job.model.manifest, job.history, forecast, "inputs[{}].series".format)
        return _written(answer, self._unread, warn(job, far))


class Backtesting:
    """A request for forecasts of rows that it holds, read whole.

    Args:
        unread: Names in it that nobody reads.
        sizes: Rows of each of its series.
        bounds: The quantiles that it asks for, by their names in the answer.
        job: What it would be as a request for forecasts; its past is what is forecast.
    """

    def __init__(
        self, unread: list[str], sizes: list[int], bounds: Mapping[str, float], job: Job
    ) -> None:
        assert job.past is not None  # noqa: S101 - `read_backtest` has it made
        self._unread = unread
        self._sizes = sizes
        self._bounds = bounds
        self._past = job.past
        self._backtest = Backtest(job, is_table=False)
        self.job = self._backtest.job

    def encode(self, outputs: Arrays) -> bytes:
        """Write the answer.

        Raises:
            InvalidInputError: a forecast is not finite.
        """
        job, past = self.job, self._past
        forecast = outputs[FORECAST][:, : job.plan.horizon]
        owner = np.repeat(np.arange(len(past.spans)), [len(own) for own in past.origins])
        _check_finite(forecast, owner)
        rows = np.concatenate(past.origins)[:, None] + np.arange(forecast.shape[1])
        quantiles = None
        if job.plan.quantiles:
            quantiles = job.model.intervals.quantiles(
                job.history, forecast, job.plan.quantiles, outputs.get(DISTRIBUTION)
            )
        intervals = _by_name(job, self._bounds, quantiles)
        sizes = self._sizes
        first = np.cumsum([0, *sizes[:-1]])
        answer = {
            "sizes": np.bincount(owner, minlength=len(sizes)) * forecast.shape[1],
            # Among the values of all series.
            "idxs": (rows + first[owner, None]).ravel(),
            "mean": forecast.ravel(),
            "intervals": {name: own.ravel() for name, own in intervals.items()} or None,
            "weights_x": None,
        }
        return _written(answer, self._unread, self._backtest.warnings(outputs))


def _check_finite(forecast: Floats, owner: NDArray[np.int64]) -> None:
    """Refuse what has no place in JSON.

    Args:
        forecast: `[windows, horizon, 1]`.
        owner: `[windows]`, the numbers of their series.
    """
    is_finite = np.isfinite(forecast).all(axis=(1, 2))
    if not is_finite.all():
        raise not_finite(f"series[{owner[is_finite.argmin()]}].y")


def _by_name(job: Job, bounds: Mapping[str, float], quantiles: Floats | None) -> dict[str, Floats]:
    """Quantiles `[levels, windows, horizon, 1]` by the name of each."""
    if quantiles is None:
        return {}
    levels = job.plan.quantiles
    return {name: quantiles[levels.index(level), ..., 0] for name, level in bounds.items()}


def _written(answer: dict[str, Any], unread: list[str], warnings: list[Notice]) -> bytes:
    warnings = [
        *(notice("ignored_field", "not known, and not read", name) for name in unread),
        *warnings,
    ]
    if warnings:
        answer["warnings"] = [
            {name: text and own_places(text) for name, text in each.items()} for each in warnings
        ]
    return orjson.dumps(answer, option=orjson.OPT_SERIALIZE_NUMPY)
