"""A panel: its tables, what bounds they keep, their scaler and their seasons."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from foretell.bundle.bounds import Bound
from foretell.bundle.scaler import Scaler
from foretell.data.errors import DataError
from foretell.data.panel import Panel, Source, check_bounds
from foretell.data.reading import Reading, read_frame
from foretell.data.scaler import fit, offset_warning, standardise, typical_share
from foretell.data.seasons import find_seasons
from foretell.data.splits import Span
from foretell.data.table import Table
from tests.data.panels import DAY, HOUR, table


def test_panel_has_the_rows_of_its_tables() -> None:
    panel = Panel((table(5, "x"), table(7, "y"), table(3, "x", "2024-02-01")))
    assert (panel.channels, panel.frequency) == (("a", "b"), HOUR)
    assert len(panel) == 15
    assert panel.series == {"x": [0, 2], "y": [1]}


def test_empty_panel_and_series_with_other_channels_are_refused() -> None:
    with pytest.raises(DataError, match="at least one series"):
        Panel(())
    first = table(5, "x")
    for other in (
        replace(first, series="y", channels=("a", "c")),
        replace(first, series="y", frequency=DAY),
    ):
        with pytest.raises(DataError, match=r"series 'y': .* not those of series 'x'"):
            Panel((first, other))


def test_some_channels_in_another_order() -> None:
    panel = Panel((table(5, "x", channels=3), table(4, "y", channels=3)))
    chosen = panel.select(("c", "a"))
    assert chosen.channels == ("c", "a")
    np.testing.assert_array_equal(chosen.tables[1].values, panel.tables[1].values[:, [2, 0]])


def test_the_fingerprint_is_of_the_content() -> None:
    one, other = table(5, "x"), table(4, "y")
    panel = Panel((one, other))
    same = Panel((replace(one, values=one.values.copy()), other))
    changed = replace(one, values=one.values + 1e-9)
    later = replace(one, timestamps=one.timestamps + np.timedelta64(1, "h"))
    renamed = replace(one, channels=("a", "c"))
    others = (
        Panel((changed, other)),
        Panel((later, other)),
        Panel((renamed,)),
        Panel((one,)),
        Panel((one, replace(other, series="z"))),
    )
    assert same.fingerprint() == panel.fingerprint()
    assert len({each.fingerprint() for each in (panel, *others)}) == 6


TABLE = replace(
    table(4),
    values=np.array([[0.0, 5.0], [-0.25, 50.0], [-3.0, 101.0], [1.0, 7.0]]),
    channels=("irradiance", "humidity"),
)
WEATHER = Panel((TABLE,), Source(Path("weather.csv"), Reading()))


def bounds(**texts: str) -> dict[str, Bound]:
    return {name: Bound.model_validate(text) for name, text in texts.items()}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"irradiance": "0:"},
            "weather.csv: channel 'irradiance': 2 of 4 rows are below its bound 0, the first at "
            "2024-01-01T01:00:00 (-0.25); correct them or give it a wider bound than 0:",
        ),
        ({"humidity": "0:100"}, "1 of 4 rows are above its bound 100, the first at 2024-01-01T0"),
        ({"irradience": "0:"}, "no channel 'irradience' is forecast; did you mean 'irradiance'?"),
        ({"wind": "0:"}, "bounds: no channel 'wind' is forecast; there are irradiance, humidity"),
    ],
)
def test_bounds_that_do_not_fit_the_data_are_refused(given: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=re.escape(message)):
        check_bounds(bounds(**given), TABLE.channels, WEATHER)


def test_the_series_beyond_a_bound_is_named() -> None:
    fine = replace(TABLE, values=np.ones((4, 2)), series="calm")
    panel = Panel((fine, replace(TABLE, series="windy")))
    with pytest.raises(DataError, match=r"2 of 8 rows .* 2024-01-01T01:00:00 of series 'windy' "):
        check_bounds(bounds(irradiance="0:"), TABLE.channels, panel)


def test_data_may_lie_on_a_bound() -> None:
    check_bounds(bounds(irradiance="-3:1", humidity="5:101"), TABLE.channels, WEATHER)
    check_bounds(bounds(irradiance="0:"), TABLE.channels)


def fitted(values: NDArray[np.float64]) -> Scaler:
    rows, channels = values.shape
    return fit(Panel((replace(table(rows, channels=channels), values=values),)), [Span(0, 0, rows)])


def test_values_are_standardised_by_mean_and_population_deviation() -> None:
    values = np.array([[1.0, 10.0], [3.0, 30.0]])
    scaler = fitted(values)
    assert (scaler.mean, scaler.std) == ((2.0, 20.0), (1.0, 10.0))
    result = standardise(values, scaler)
    assert result.dtype == np.float32
    assert result.tolist() == [[-1, -1], [1, 1]]


def test_fit_counts_every_row_of_the_spans_the_same() -> None:
    panel = Panel((table(20, "x"), table(9, "y")))
    scaler = fit(panel, [Span(0, 3, 10), Span(1, 0, 9)])
    rows = np.concatenate([panel.tables[0].values[3:10], panel.tables[1].values])
    np.testing.assert_allclose(scaler.mean, rows.mean(axis=0))
    np.testing.assert_allclose(scaler.std, rows.std(axis=0))


def test_a_constant_channel_has_deviation_one() -> None:
    values = np.full((1000, 1), 0.1)
    assert values.std() > 0
    assert fitted(values).std == (1.0,)


def test_offsets_that_float32_cannot_carry() -> None:
    scaler = Scaler(mean=(9_999.0, -10_001.0, 2e6, 0.0), std=(1.0, 1.0, 300.0, 1e-9))
    message = offset_warning(scaler, ("a", "b", "c", "d"))
    assert message is not None
    assert message.startswith("b: the mean is more than 10,000 times the standard deviation. ")
    assert offset_warning(Scaler(mean=(5.0,), std=(1.0,)), ("a",)) is None


def test_typical_share_is_of_the_median_series() -> None:
    def scaled(name: str, *factors: float) -> Table:
        one = table(50, name)
        return replace(one, values=one.values / one.values.std(axis=0) * factors)

    tables = (scaled("a", 1, 30), scaled("b", 3, 60), scaled("c", 0, 90), scaled("d", 700, 90))
    spans = [Span(place, 0, 50) for place in range(4)]
    scaler = Scaler(mean=(0.0, 0.0), std=(6.0, 300.0))
    # Deviations are 3 of 6 and 60 to 90 of 300; the third table is constant in one channel.
    assert typical_share(Panel(tables), spans, scaler) == pytest.approx(0.25)
    wide = Scaler(mean=(0.0, 0.0), std=(300.0, 300.0))
    assert typical_share(Panel(tables), spans, wide) == pytest.approx(0.01)
    assert typical_share(Panel(tables), spans, scaler, (0,)) == pytest.approx(0.5)
    assert typical_share(Panel(tables[:1]), spans[:1], scaler) == 1.0


HOURS = np.arange(24 * 7 * 12)


def seasons(*channels: np.ndarray) -> list[int]:
    noise = np.random.default_rng(0).normal(0, 0.1, (len(channels), len(HOURS)))
    frame = pd.DataFrame({f"c{i}": one + noise[i] for i, one in enumerate(channels)})
    frame["ds"] = pd.date_range("2024-01-01", periods=len(HOURS), freq="h")
    return [season.steps for season in find_seasons(read_frame(frame))]


def test_finds_days_and_weeks() -> None:
    day = np.sin(2 * np.pi * HOURS / 24)
    week = (HOURS // 24 % 7 >= 5) * 2.0
    assert seasons(day) == [24]
    assert seasons(day, day + week) == [24, 168]
    # A trend is no season, and does not hide one.
    assert seasons(day + HOURS / 100) == [24]


def test_noise_on_a_slow_change_is_not_a_season() -> None:
    steps = np.random.default_rng(3).normal(size=1461)
    year = 2 * np.sin(2 * np.pi * np.arange(1461) / 365.25) + steps
    frame = pd.DataFrame({"y": year, "ds": pd.date_range("2020-01-01", periods=1461)})
    ((steps, correlation),) = find_seasons(read_frame(frame))
    assert 345 < steps < 385
    assert correlation == pytest.approx(2 / 3, abs=0.05)


@pytest.mark.parametrize("values", [HOURS * 1.0, HOURS * 0.0])
def test_series_without_repetition_has_no_season(values: np.ndarray) -> None:
    frame = pd.DataFrame({"y": values, "ds": pd.date_range("2024-01-01", periods=len(HOURS))})
    assert find_seasons(read_frame(frame)) == []
    assert find_seasons(read_frame(frame.head(5))) == []
