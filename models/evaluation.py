"""Accuracy over all windows of a split."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Accuracy, TestResult
from foretell.bundle.season import season_of
from foretell.models.baselines import last_value, seasonal_naive
from foretell.models.data.windows import Batch, Windows


class Predictor(Protocol):
    """A forecaster in eval mode, an onnxruntime session or a baseline."""

    def __call__(
        self, history: Tensor, history_calendar: Tensor | None, future_calendar: Tensor | None, /
    ) -> Tensor | NDArray[Any]:
        """Forecasts `[batch, horizon, targets]` from what a `Batch` holds, in its units."""
        ...


def evaluate(predict: Predictor, windows: Windows, batch_size: int) -> Accuracy:
    """Mean errors over all windows.

    Args:
        predict: What to measure.
        windows: On the device that `predict` reads from.
        batch_size: Windows a call (`foretell.models.batches`).
    """
    device = windows.values.device
    squared = torch.zeros((), dtype=torch.float64, device=device)
    absolute = torch.zeros_like(squared)
    count = 0
    with torch.inference_mode():
        for batch in windows.batches(batch_size):
            forecast = predict(batch.history, batch.history_calendar, batch.future_calendar)
            error = torch.as_tensor(forecast, device=device).double() - batch.target.double()
            squared += error.square().sum()
            absolute += error.abs().sum()
            count += error.numel()
    return Accuracy(mse=squared.item() / count, mae=absolute.item() / count)


@dataclass(frozen=True)
class Scores:
    """Mean errors `[horizon, targets]`."""

    mse: NDArray[np.float64]
    mae: NDArray[np.float64]

    def overall(self) -> Accuracy:
        """Over all steps and channels."""
        return Accuracy(mse=float(self.mse.mean()), mae=float(self.mae.mean()))


def score(
    forecasters: Mapping[str, Predictor],
    batches: Iterable[Batch],
    unit: NDArray[np.float64],
    look: Callable[[Batch, NDArray[np.float64]], None],
) -> dict[str, Scores]:
    """Mean errors of several forecasters over windows on the CPU, by step and channel.

    Args:
        forecasters: By name.
        batches: The windows.
        unit: `[targets]`, what an error of 1 is.
        look: Is shown every batch, and what the first of them forecasts of it.
    """
    sums: dict[str, NDArray[np.float64]] = {}
    first, count = next(iter(forecasters)), 0
    with torch.inference_mode():
        for batch in batches:
            target = batch.target.numpy().astype(np.float64)
            count += len(target)
            for name, predict in forecasters.items():
                found = predict(batch.history, batch.history_calendar, batch.future_calendar)
                forecast = np.asarray(found, np.float64)
                error = (forecast - target) / unit
                both = np.stack([np.square(error).sum(axis=0), np.abs(error).sum(axis=0)])
                sums[name] = sums.get(name, 0) + both
                if name == first:
                    look(batch, forecast)
    return {name: Scores(*(both / count)) for name, both in sums.items()}


def baselines(windows: Windows, frequency: Frequency) -> dict[str, Predictor]:
    """The forecasts that a model has to beat, by their fields of a `TestResult`.

    Args:
        windows: What is to be forecast.
        frequency: Its season is the seasonal baseline's, where the context holds one.
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
        windows: Those of the test split.
        frequency: Of their steps.
        batch_size: Windows a call (`foretell.models.batches`).
    """
    every = {"model": predict, **baselines(windows, frequency)}
    return TestResult(
        windows=len(windows),
        season=season_of(frequency, windows.context),
        **{name: evaluate(each, windows, batch_size) for name, each in every.items()},
    )
