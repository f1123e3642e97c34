"""Accuracy over all windows of a split."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle.bounds import Bound, limits
from foretell.bundle.results import Accuracy, TestResult
from foretell.bundle.scaler import Scaler
from foretell.data.errors import DataError
from foretell.models.batches import windows_that_fit
from foretell.models.forecaster import Forecaster
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.season import season_of
from foretell.training.windows import Batch, Windows


class Predictor(Protocol):
    """A forecaster in eval mode, an onnxruntime session or a baseline."""

    def __call__(self, history: Tensor, /, *others: Tensor | None) -> Tensor | NDArray[Any]:
        """Forecasts `[batch, horizon, targets]` in the units of a `Batch`, from its `inputs`."""
        ...


def evaluate(predict: Predictor, windows: Windows, batch_size: int) -> Accuracy:
    """Mean errors over all windows, in standard deviations of the training rows.

    Targets that were filled in do not count.

    Args:
        predict: Forecaster to measure.
        windows: Windows on the device of `predict`.
        batch_size: Number of windows per call (`foretell.models.batches`).
    """
    device = windows.values.device
    squared = torch.zeros((), dtype=torch.float64, device=device)
    absolute = torch.zeros_like(squared)
    count = 0
    with torch.inference_mode():
        for batch in windows.batches(batch_size):
            forecast = predict(*batch.inputs)
            error = torch.as_tensor(forecast, device=device).double() - batch.target.double()
            error = error / windows.unit
            if batch.known is not None:
                error = error[batch.known]
            squared += error.square().sum()
            absolute += error.abs().sum()
            count += error.numel()
    return Accuracy(mse=squared.item() / count, mae=absolute.item() / count)


@dataclass(frozen=True)
class Scores:
    """Mean errors `[horizon, targets]`.

    Attributes:
        mse: Mean squared errors; NaN where no target is known.
        mae: Mean absolute errors; NaN where no target is known.
        counts: Number of known targets.
    """

    mse: NDArray[np.float64]
    mae: NDArray[np.float64]
    counts: NDArray[np.int64]

    def overall(self, places: Sequence[int] | slice = slice(None)) -> Accuracy:
        """Accuracy over all steps and the targets at `places`, weighted by known values."""
        mse, mae = (
            mean_of_known(error[:, places], self.counts[:, places])
            for error in (self.mse, self.mae)
        )
        return Accuracy(mse=mse, mae=mae)


def score(
    forecasters: Mapping[str, Predictor],
    batches: Iterable[Batch],
    unit: NDArray[np.float64],
    look: Callable[[Batch, NDArray[np.float64]], None],
) -> dict[str, Scores]:
    """Mean errors of several forecasters over windows on the CPU, by step and channel.

    Args:
        forecasters: Forecasters by name.
        batches: The windows.
        unit: `[targets]`, divisor of the errors.
        look: Called with every batch and the forecasts of the first forecaster.

    Raises:
        DataError: no target is known.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    first, count = next(iter(forecasters)), np.zeros((), np.int64)
    with torch.inference_mode():
        for batch in batches:
            target = batch.target.numpy().astype(np.float64)
            known = known_targets(batch)
            count = count + known.sum(axis=0)
            for name, predict in forecasters.items():
                found = predict(*batch.inputs)
                forecast = np.asarray(found, np.float64)
                error = np.where(known, (forecast - target) / unit, 0)
                both = np.stack([np.square(error).sum(axis=0), np.abs(error).sum(axis=0)])
                sums[name] = sums.get(name, 0) + both
                if name == first:
                    look(batch, forecast)
    if not count.any():
        raise DataError("all values to forecast are missing and were filled in")
    with np.errstate(invalid="ignore"):
        return {
            name: Scores(squared / count, absolute / count, count)
            for name, (squared, absolute) in sums.items()
        }


def mean_of_known(means: NDArray[np.floating], counts: NDArray[np.integer]) -> float:
    """The mean over all values, from means and their numbers of values; NaN without any."""
    if not counts.any():
        return math.nan
    return float(np.average(means[counts > 0], weights=counts[counts > 0]))


def known_targets(batch: Batch) -> NDArray[np.bool_]:
    """`[batch, horizon, targets]`, whether each target was known and not filled in."""
    if batch.known is None:
        return np.ones(batch.target.shape, np.bool_)
    return batch.known.cpu().numpy()


def last_value(history: Tensor, horizon: int) -> Tensor:
    """Repeat the last value of `[batch, context, channels]`: `[batch, horizon, channels]`."""
    return history[:, -1:].expand(-1, horizon, -1)


def seasonal_naive(history: Tensor, horizon: int, season: int) -> Tensor:
    """Repeat the last `season` steps of `[batch, context, channels]` over the horizon."""
    repeats = -(-horizon // season)
    return history[:, -season:].repeat(1, repeats, 1)[:, :horizon]


def baselines(windows: Windows, frequency: Frequency) -> dict[str, Predictor]:
    """The baselines that a model must beat, by their fields of a `TestResult`.

    Args:
        windows: Windows to forecast.
        frequency: Frequency, whose season the seasonal baseline repeats if the context holds one.
    """
    horizon, season = windows.horizon, season_of(frequency, windows.context)
    at = windows.targets
    found: dict[str, Predictor] = {
        "last_value": lambda history, *_: last_value(history[..., at], horizon)
    }
    if season is not None:
        found["seasonal_naive"] = lambda history, *_: seasonal_naive(
            history[..., at], horizon, season
        )
    return found


def against_baselines(
    predict: Predictor, windows: Windows, frequency: Frequency, batch_size: int
) -> TestResult:
    """Accuracy of a model next to the baselines on the same windows.

    Args:
        predict: The model.
        windows: Windows of the test split.
        frequency: Frequency of the steps.
        batch_size: Number of windows per call (`foretell.models.batches`).
    """
    every = {"model": predict, **baselines(windows, frequency)}
    found: dict[str, Any] = {
        name: evaluate(each, windows, batch_size) for name, each in every.items()
    }
    season = season_of(frequency, windows.context)
    return TestResult(windows=len(windows), season=season, **found)


def measure_within(
    model: Forecaster,
    bounds: Mapping[str, Bound],
    targets: Sequence[str],
    scaler: Scaler,
    windows: Windows,
    frequency: Frequency,
) -> TestResult:
    """Errors of a model within its bounds, next to the baselines.

    Args:
        model: The model.
        bounds: Bounds of channels, by name.
        targets: Names of the channels that the model forecasts.
        scaler: Scaler of all channels that the model reads.
        windows: Windows of the test split, on the model's device.
        frequency: Frequency of the steps.
    """
    within = bounded(model, bounds, targets, scaler.of(model.config.targets))
    return against_baselines(within, windows, frequency, windows_that_fit(model))


def bounded(
    predict: Predictor, bounds: Mapping[str, Bound], channels: Sequence[str], scaler: Scaler
) -> Predictor:
    """A forecaster that clips forecasts in standardised units to the bounds.

    Args:
        predict: Forecaster without bounds.
        bounds: Bounds of channels, by name; without any, `predict` is returned unchanged.
        channels: Names of the forecast channels, in order.
        scaler: Standardisation of these channels.
    """
    known = limits(bounds, channels)
    if known is None:
        return predict
    mean, std = np.array(scaler.mean), np.array(scaler.std)
    low, high = (torch.from_numpy((limit - mean) / std) for limit in (known.low, known.high))

    def within(history: Tensor, /, *others: Tensor | None) -> Tensor:
        forecast = torch.as_tensor(predict(history, *others))
        return forecast.clamp(low.to(forecast), high.to(forecast))

    return within
