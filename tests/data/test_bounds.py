import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle.bounds import Bound
from foretell.data.errors import DataError
from foretell.data.panel import Panel, Source, check_bounds
from foretell.data.reading import Reading
from foretell.data.table import Table
from foretell.timeaxis.frequency import Frequency

HOUR = Frequency.parse("h")
TABLE = Table(
    timestamps=HOUR.steps_from(np.datetime64("2024-01-01T00:00", "us"), 4),
    values=np.array([[0.0, 5.0], [-0.25, 50.0], [-3.0, 101.0], [1.0, 7.0]]),
    channels=("irradiance", "humidity"),
    frequency=HOUR,
)
PANEL = Panel((TABLE,), Source(Path("weather.csv"), Reading()))


def bounds(**texts: str) -> dict[str, Bound]:
    return {name: Bound.model_validate(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            bounds(irradiance="0:"),
            "weather.csv: channel 'irradiance': 2 of 4 rows are below its bound 0, the first at "
            "2024-01-01T01:00:00 (-0.25); correct them or give it a wider bound than 0:",
        ),
        (
            bounds(humidity="0:100"),
            "1 of 4 rows are above its bound 100, the first at 2024-01-01T0",
        ),
        (
            bounds(irradience="0:"),
            "bounds: no channel 'irradience' is forecast; did you mean 'irradiance'?",
        ),
        (
            bounds(wind="0:"),
            "bounds: no channel 'wind' is forecast; there are irradiance, humidity",
        ),
    ],
)
def test_refuses_what_does_not_fit_the_data(given: dict[str, Bound], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        check_bounds(given, TABLE.channels, PANEL)


def test_names_the_series() -> None:
    fine = replace(TABLE, values=np.ones((4, 2)), series="calm")
    panel = Panel((fine, replace(TABLE, series="windy")))
    with pytest.raises(DataError, match=r"2 of 8 rows .* 2024-01-01T01:00:00 of series 'windy' "):
        check_bounds(bounds(irradiance="0:"), TABLE.channels, panel)


def test_data_may_lie_on_a_bound() -> None:
    check_bounds(bounds(irradiance="-3:1", humidity="5:101"), TABLE.channels, PANEL)
    check_bounds(bounds(irradiance="0:"), TABLE.channels)
