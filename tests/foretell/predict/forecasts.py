"""Forecasts that no server made."""

import numpy as np

from foretell.data.table import Table
from foretell.predict.forecasts import Forecast
from foretell.timeaxis.frequency import Frequency
from foretell.timeaxis.timestamps import render


def forecast(channels: int, series: str = "") -> Forecast:
    """Six hours after a day of noise."""
    hourly = Frequency.parse("h")
    start = np.datetime64("2024-01-01", "us")
    names = tuple(f"channel {i}" for i in range(channels))
    values = np.random.default_rng(0).normal(size=(30, channels))
    history = Table(hourly.steps_from(start, 24), values[:24], names, hourly)
    times = render(hourly.steps_from(start, 6, first=24), None)
    return Forecast("weather@1", series, history, times, names, values[24:])
