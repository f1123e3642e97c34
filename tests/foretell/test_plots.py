from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

from foretell.data.table import Table
from foretell.plots.forecasts import draw, figure_of
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


def svg(folder: Path, *forecasts: Forecast) -> str:
    with mpl.rc_context({"svg.fonttype": "none"}):
        draw(forecasts, folder / "out.svg")
    return (folder / "out.svg").read_text()


@pytest.mark.parametrize("channels", [1, 4, 7])
def test_png(tmp_path: Path, channels: int):
    draw([forecast(channels)], tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_svg_names_the_model_and_each_series_and_channel(tmp_path: Path):
    text = svg(tmp_path, forecast(2, series="east"), forecast(2, series="west"))
    assert "weather@1: 6 steps ahead<" in text
    assert all(f">{name}: channel {i}<" in text for name in ("east", "west") for i in range(2))


def test_svg_shows_the_first_of_very_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("foretell.plots.forecasts._MOST", 3)
    text = svg(tmp_path, forecast(4))
    assert "steps ahead; the first 3 of 4<" in text
    assert ">channel 3<" not in text


def test_svg_shows_the_targets_after_their_own_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.plot", lambda _, *given, **__: drawn.append(given[1]))
    whole = forecast(3)
    some = replace(whole, targets=whole.targets[1:], values=whole.values[:, 1:])
    draw([some], tmp_path / "out.svg")
    assert len(drawn) == 4
    for column, (history, following) in enumerate(zip(drawn[::2], drawn[1::2], strict=True), 1):
        np.testing.assert_array_equal(history, whole.history.values[:, column])
        np.testing.assert_array_equal(following[1:], whole.values[:, column])


def test_svg_has_intervals_actual_values_and_the_first_rolled_step(tmp_path: Path):
    plain = forecast(3)
    spread = {level: plain.values + level - 0.5 for level in (0.9, 0.025, 0.5, 0.1, 0.975, 0.3)}
    given = replace(plain, quantiles=spread, actual=plain.values[:4], rolled_from=3)
    counts = []
    for one in (plain, given):
        text = svg(tmp_path, one)
        looks = ("FillBetweenPolyCollection", "#1d2733", "stroke-dasharray: 2.96")
        counts.append([text.count(look) for look in looks])
    assert counts == [[0, 0, 0], [3 * 2, 3, 3]]
    assert (
        "steps ahead (red), with intervals of 80% and 95%; from forecasts after the dashed line; "
        "what followed (black)<"
    ) in text


def test_dollars_are_not_mathematics(tmp_path: Path):
    names = ("spent $ of $", r"$\foo$")
    plain = forecast(2)
    one = replace(plain, targets=names, history=replace(plain.history, channels=names))
    text = svg(tmp_path, one)
    assert all(f">{name}</text>" in text for name in names)


def test_dashed_line_is_at_the_last_step_of_the_first_pass():
    one = replace(forecast(1), rolled_from=3)
    (panel,) = figure_of([one], "").axes
    (line,) = [line for line in panel.lines if line.get_linestyle() == "--"]
    assert line.get_xdata()[0] == one.timestamps[2]
