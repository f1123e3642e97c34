"""Forecasts of chunks by a model in this process."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from foretell.batch.chunks import Chunk
from foretell.batch.windows import Reader, Rejected, Windows
from foretell.service.arrays import DISTRIBUTION, FORECAST, MARGIN, Arrays
from foretell.service.engine.model import Capacity, Model
from foretell.service.engine.run import Run
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.signatures import Signers
from foretell.service.errors import ModelFailedError
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.metrics import Metrics
from foretell.service.settings import DeviceChoice, Settings

# A chunk is forecast as a whole: no other request waits.
_UNLIMITED = 10**12
_CLOSE_SECONDS = 5.0
_NOT_FINITE = (
    "the forecast of this series is not finite: its values are too far from the training data"
)


class Forecasts(NamedTuple):
    """Forecasts of series of a chunk.

    Attributes:
        series: Numbers of the series in the chunk, ascending `[windows]`.
        moments: Times of the forecast steps `[windows, horizon]`; None in tables without times.
        layers: Forecast and quantiles `[1 + levels, windows, horizon, targets]`, in the user's
            units.
        ill_conditioned: Whether rounding may have decided what the model chose `[windows]`.
    """

    series: NDArray[np.int64]
    moments: NDArray[np.datetime64] | None
    layers: NDArray[np.float32]
    ill_conditioned: NDArray[np.bool_]


class Forecaster:
    """A model on one device.

    Args:
        bundle: Folder of the bundle.
        options: Options of the forecasts.
        device: Device of the model; on a CPU it has one thread.
        signers: Check of the manifest; every manifest is accepted without it.

    Attributes:
        model: The model.
        options: Checked options.

    Raises:
        BundleError: the bundle is damaged; see `Model`.
        StartError: the device does not work.
        InvalidInputError, NotSupportedError: the model does not support the options.
    """

    def __init__(
        self,
        bundle: Path,
        options: ForecastOptions,
        device: DeviceChoice,
        signers: Signers | None = None,
    ) -> None:
        runtime = Runtime(device)
        self._scheduler = Scheduler(threads=runtime.inference_threads(1))
        capacity = Capacity(None, _UNLIMITED, _UNLIMITED)
        observer = Metrics().observer(bundle.parent.name, bundle.name)
        about = bundle, runtime, self._scheduler, capacity, observer
        self.model = Model(*about, signers=signers, anywhere=True)
        settings = unlimited(bundle)
        self.options = FORECASTING.read_options(options, 1, self.model, settings)
        self._reader = Reader(self.model, options, settings, self.options)
        # `asyncio.run` would create a loop for every chunk.
        self._loop = asyncio.new_event_loop()

    def forecast(self, chunk: Chunk) -> tuple[list[Forecasts], list[Rejected]]:
        """Forecast the series of a chunk; return forecasts and rejected series.

        Raises:
            InvalidInputError: a column has a wrong type; see `Reader.read`.
            ModelFailedError: the model does not run with any series.
        """
        windows, rejected = self._reader.read(chunk)
        ran = self._run(windows, rejected) if len(windows.series) else []
        return [self._forecasts(each, outputs, rejected) for each, outputs in ran], rejected

    def close(self) -> None:
        """Free the resources of the model."""
        self._loop.close()
        self.model.close(_CLOSE_SECONDS)
        self._scheduler.close(_CLOSE_SECONDS)

    def _run(self, windows: Windows, rejected: list[Rejected]) -> list[tuple[Windows, Arrays]]:
        """Run windows; reject those that make a working model fail."""
        model, count = self.model, len(windows.series)
        given = windows
        if count % model.max_batch == 1:
            # A matrix product of one row is rounded differently from one of several rows. Forecasts
            # must not depend on how windows are batched, so the last window is repeated.
            given = windows.of(np.append(np.arange(count), count - 1))
        # A job uses only these members of a model.
        here = cast("Model", _Here(model))
        job = Job(here, self.options, [], given.history, given.calendar, None)
        job.covariates, job.static = given.covariates, given.static
        try:
            outputs = self._loop.run_until_complete(job.run(math.inf, _wait))
            return [(windows, {name: rows[:count] for name, rows in outputs.items()})]
        except ModelFailedError as error:
            if model.failure is not None:
                raise
            if count == 1:
                rejected.append(Rejected(int(windows.series[0]), error.message))
                return []
            halves = windows.of(slice(count // 2)), windows.of(slice(count // 2, None))
            return [each for half in halves for each in self._run(half, rejected)]

    def _forecasts(self, windows: Windows, outputs: Arrays, rejected: list[Rejected]) -> Forecasts:
        model, options = self.model, self.options
        values = outputs[FORECAST][:, : options.horizon]
        layers = values[None]
        if options.quantiles:
            quantiles = model.intervals.quantiles(
                windows.history, values, options.quantiles, outputs.get(DISTRIBUTION)
            )
            layers = np.concatenate([layers, quantiles])
        unsure = np.zeros(len(values), np.bool_)
        if model.manifest.margin_bound is not None:
            unsure = outputs[MARGIN] < model.manifest.margin_bound
        is_finite = np.asarray(np.isfinite(layers).all(axis=(0, 2, 3)))
        if is_finite.all():
            return Forecasts(windows.series, windows.moments, layers, unsure)
        rejected += [Rejected(int(at), _NOT_FINITE) for at in windows.series[~is_finite]]
        good = windows.of(is_finite)
        return Forecasts(good.series, good.moments, layers[:, is_finite], unsure[is_finite])


class _Here:
    """A model that runs at once: no other job has work for it."""

    def __init__(self, model: Model) -> None:
        self.manifest = model.manifest
        self._model = model

    def submit(self, feeds: Arrays, **_: object) -> Arrays:
        return self._model.run(feeds)


async def _wait(pending: Run) -> Arrays:
    return cast("Arrays", pending)


def unlimited(bundle: Path) -> Settings:
    """Settings of a server that takes requests of any size."""
    return Settings(
        models=bundle, max_inputs=_UNLIMITED, max_queue=_UNLIMITED, max_answer_values=_UNLIMITED
    )
