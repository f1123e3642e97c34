"""Keeping forecasts within the physical limits of their channels, in standardised units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from foretell.bundle.bounds import Bound, limits, shown
from foretell.bundle.frequency import Frequency
from foretell.bundle.manifest import Scaler, TestResult
from foretell.bundle.nearness import suggestion
from foretell.models.batches import windows_that_fit
from foretell.models.data.errors import DataError
from foretell.models.data.panel import Panel
from foretell.models.data.windows import Windows
from foretell.models.evaluation import Predictor, against_baselines
from foretell.models.forecaster import Forecaster


def check_bounds(
    bounds: Mapping[str, Bound], channels: Sequence[str], panel: Panel | None = None
) -> None:
    """Refuse bounds of channels that are not forecast, and data that lie beyond them.

    Args:
        bounds: By the names of channels.
        channels: Those that the model forecasts.
        panel: What it is trained or verified on, if that is known; it has these channels.

    Raises:
        DataError: names the channel, how many rows lie beyond its bound, and the first of them.
    """
    for name, bound in bounds.items():
        if name not in channels:
            raise DataError(
                f"bounds: no channel {name!r} is forecast; {suggestion(name, channels)}"
            )
        if panel is None:
            continue
        column = panel.channels.index(name)
        values = np.concatenate([table.values[:, column] for table in panel.tables])
        for limit, side in ((bound.low, "below"), (bound.high, "above")):
            if limit is None:
                continue
            rows = np.flatnonzero(values < limit if side == "below" else values > limit)
            if len(rows):
                first = int(rows[0])
                raise DataError(
                    f"{panel.source.path if panel.source else 'the data'}: channel {name!r}: "
                    f"{len(rows)} of {len(panel)} rows are {side} its bound {shown(limit)}, "
                    f"the first at {panel.time_of(first)} ({shown(values[first])}); correct them "
                    f"or give it a wider bound than {bound}"
                )


def bounded(
    predict: Predictor, bounds: Mapping[str, Bound], channels: Sequence[str], scaler: Scaler
) -> Predictor:
    """What forecasts within the bounds, from what forecasts without, in standardised units.

    Args:
        predict: Forecasts.
        bounds: Of channels, by name; without any, `predict` is returned as it is.
        channels: Those that it forecasts, in order.
        scaler: Their standardisation.
    """
    known = limits(bounds, channels)
    if known is None:
        return predict
    mean, std = np.array(scaler.mean), np.array(scaler.std)
    low, high = (torch.from_numpy((limit - mean) / std) for limit in (known.low, known.high))

    def within(
        history: Tensor, history_calendar: Tensor | None, future_calendar: Tensor | None, /
    ) -> Tensor:
        forecast = torch.as_tensor(predict(history, history_calendar, future_calendar))
        return forecast.clamp(low.to(forecast), high.to(forecast))

    return within


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
        model: It.
        bounds: Of channels, by name.
        targets: Names of the channels that it forecasts.
        scaler: Of all channels that it reads.
        windows: Those of the test split, on its device.
        frequency: Of their steps.
    """
    within = bounded(model, bounds, targets, scaler.of(model.config.targets))
    return against_baselines(within, windows, frequency, windows_that_fit(model))
