"""The page on architectures is right about those there are, and its example can be plugged in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import manifest
from foretell.models.forecaster import ARCHITECTURES, ForecasterConfig
from foretell.timeaxis.frequency import Frequency
from tests.docs.plugged import CONTEXT, HORIZON, VALUES, ask, bundles_with, write_example
from tests.docs.tables import rows_below
from tests.support.process import ROOT, Server

PAGE = ROOT / "docs" / "guides" / "architectures.md"
HOURLY = Frequency.parse("h")


def smallest(family: type[ForecasterConfig]) -> ForecasterConfig:
    """A model with one layer of each kind."""
    layers = {name: 1 for name in family.model_fields if name.endswith("_layers")}
    return family(channels=1, context=96, horizon=24, **layers)


def test_the_table_is_of_those_there_are() -> None:
    for (name, _, calendar, attention, stages), family in zip(
        rows_below(PAGE, "| name |"), ARCHITECTURES.values(), strict=True
    ):
        config = smallest(family)
        found = config.build().stages
        assert name == f"`{config.architecture}`"
        assert calendar == ("yes" if family.calendar_for(HOURLY, {}) else "no")
        assert attention == ", ".join(sorted({f"`{stage.mechanism}`" for stage in found}))
        assert stages == ", ".join(f"`{stage.name}`" for stage in found)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundle of a model of the page's example."""
    folder = tmp_path_factory.mktemp("architecture")
    plugged = write_example(PAGE, folder, "seasonal.py")
    # Too small a rate to learn anything: the forecast is known.
    flags = [
        "--arch=seasonal",
        "--set=model.season=4",
        "--set=learning_rate=1e-9",
        "--set=model.window_norm=none",
    ]
    return bundles_with("foretell.models.architectures", plugged, {"seasonal": flags})


def test_it_is_exported_as_it_is(repository: Path) -> None:
    found = manifest.read(repository / "seasonal" / "1")
    assert found.architecture == "seasonal"
    assert found.attention == found.plain == found.rewrites == ()
    assert found.devices == ("cuda", "cpu")


def test_a_server_without_the_file_forecasts(repository: Path, tmp_path: Path) -> None:
    with Server(repository, tmp_path / "log") as server:
        answer = ask(server, "seasonal")
    std = np.array(manifest.read(repository / "seasonal" / "1").scaler.std)
    season = np.tile(VALUES[-4:], (2, 1))[:HORIZON]
    # What is left is the bias, which starts at most here.
    left = (answer["mean_forecast"] - season) / std
    assert np.abs(left).max() < CONTEXT**-0.5 + 1e-4
    np.testing.assert_allclose(left[:, 0], left[:, 1], atol=1e-4)
