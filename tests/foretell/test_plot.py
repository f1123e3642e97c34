from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle.frequency import Frequency
from foretell.forecast_file import Forecast
from foretell.models.data.table import Table
from foretell.plot import draw

PNG = b"\x89PNG\r\n\x1a\n"


def forecast(channels: int) -> Forecast:
    hourly = Frequency.parse("h")
    start = np.datetime64("2024-01-01", "us")
    names = tuple(f"channel {i}" for i in range(channels))
    values = np.random.default_rng(0).normal(size=(30, channels))
    history = Table(hourly.steps_from(start, 24), values[:24], names, hourly)
    return Forecast("weather@1", history, hourly.steps_from(start, 6, first=24), names, values[24:])


@pytest.mark.parametrize("channels", [1, 3, 4, 7])
def test_png(tmp_path: Path, channels: int):
    draw(forecast(channels), tmp_path / "out.png")
    assert (tmp_path / "out.png").read_bytes().startswith(PNG)


def test_svg_names_model_and_channels(tmp_path: Path):
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        draw(forecast(5), tmp_path / "out.svg")
    text = (tmp_path / "out.svg").read_text()
    assert "weather@1: 6 steps ahead<" in text
    assert all(f">channel {i}<" in text for i in range(5))


def test_svg_shows_the_targets_after_their_own_histories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    drawn = []
    monkeypatch.setattr("matplotlib.axes.Axes.plot", lambda _, *given, **__: drawn.append(given[1]))
    whole = forecast(3)
    some = replace(whole, targets=whole.targets[1:], values=whole.values[:, 1:])
    draw(some, tmp_path / "out.svg")
    assert len(drawn) == 4
    for column, (history, following) in enumerate(zip(drawn[::2], drawn[1::2], strict=True), 1):
        np.testing.assert_array_equal(history, whole.history.values[:, column])
        np.testing.assert_array_equal(following[1:], whole.values[:, column])


def test_svg_has_a_band_for_each_pair_of_levels_and_what_followed(tmp_path: Path):
    import matplotlib as mpl

    plain = forecast(3)
    spread = {level: plain.values + level - 0.5 for level in (0.9, 0.025, 0.5, 0.1, 0.975, 0.3)}
    given = replace(plain, quantiles=spread, actual=plain.values[:4])
    counts = {}
    with mpl.rc_context({"svg.fonttype": "none"}):
        for name, one in {"plain": plain, "given": given}.items():
            draw(one, tmp_path / f"{name}.svg")
            text = (tmp_path / f"{name}.svg").read_text()
            counts[name] = (text.count("FillBetweenPolyCollection"), text.count("#1d2733"))
    assert counts == {"plain": (0, 0), "given": (3 * 2, 3)}
    assert "steps ahead (red), with intervals of 80% and 95%; what followed (black)<" in text


def test_an_unknown_format(tmp_path: Path):
    with pytest.raises(ValueError, match="xyz"):
        draw(forecast(1), tmp_path / "out.xyz")
