"""A model in this process, and what it makes of chunks."""

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
from foretell.service.errors import ModelFailedError
from foretell.service.forecast.job import Job
from foretell.service.forecast.options import FORECASTING
from foretell.service.forecast.requests import ForecastOptions
from foretell.service.metrics import Metrics
from foretell.service.settings import DeviceChoice, Settings

# All that is read at a time is forecast: no other request waits.
_UNLIMITED = 10**12
_CLOSE_SECONDS = 5.0
_NOT_FINITE = (
    "the model's forecast of this series is not finite: its values are too far from those it was "
    "trained on"
)


class Forecasts(NamedTuple):
    """What came of series of a chunk.

    Attributes:
        series: `[windows]`, their numbers in the chunk, ascending.
        moments: `[windows, horizon]`; None in tables without times.
        layers: `[1 + levels, windows, horizon, targets]` in the user's units, the forecast and its
            quantiles.
        ill_conditioned: `[windows]`, whether rounding may have decided what the model chose.
    """

    series: NDArray[np.int64]
    moments: NDArray[np.datetime64] | None
    layers: NDArray[np.float32]
    ill_conditioned: NDArray[np.bool_]


class Forecaster:
    """A model on one device.

    Args:
        bundle: Its folder.
        options: What is forecast of every series.
        device: Where it runs; the CPU with one thread.

    Attributes:
        model: The model.
        options: The options, checked.

    Raises:
        BundleError: as `Model`.
        StartError: the device does not work.
        InvalidInputError: the model does not do what the options want; `NotSupportedError`
            likewise.
    """

    def __init__(self, bundle: Path, options: ForecastOptions, device: DeviceChoice) -> None:
        runtime = Runtime(device)
        self._scheduler = Scheduler(threads=runtime.inference_threads(1))
        capacity = Capacity(None, _UNLIMITED, _UNLIMITED)
        observer = Metrics().observer(bundle.parent.name, bundle.name)
        self.model = Model(bundle, runtime, self._scheduler, capacity, observer, anywhere=True)
        settings = unlimited(bundle)
        self.options = FORECASTING.read_options(options, 1, self.model, settings)
        self._reader = Reader(self.model, options, settings, self.options)
        # `asyncio.run` would make and end one for every chunk.
        self._loop = asyncio.new_event_loop()

    def forecast(self, chunk: Chunk) -> tuple[list[Forecasts], list[Rejected]]:
        """Forecast the series of a chunk: the forecasts in their order, and those that have none.

        Raises:
            InvalidInputError: as `Reader.read`.
            ModelFailedError: the model does not run, whatever the series.
        """
        windows, rejected = self._reader.read(chunk)
        ran = self._run(windows, rejected) if len(windows.series) else []
        return [self._forecasts(each, outputs, rejected) for each, outputs in ran], rejected

    def close(self) -> None:
        """Give back what the model holds."""
        self._loop.close()
        self.model.close(_CLOSE_SECONDS)
        self._scheduler.close(_CLOSE_SECONDS)

    def _run(self, windows: Windows, rejected: list[Rejected]) -> list[tuple[Windows, Arrays]]:
        """Outputs of windows; those with which a sound model fails are rejected."""
        model, count = self.model, len(windows.series)
        given = windows
        if count % model.max_batch == 1:
            # A product of one row is rounded in another way than one of several: which windows
            # share a batch is not to be seen in any forecast.
            given = windows.of(np.append(np.arange(count), count - 1))
        # All that a job uses of a model.
        here = cast("Model", _Here(model))
        job = Job(here, self.options, [], given.history, given.calendar, None)
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
