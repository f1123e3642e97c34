from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.bundles import Spec, write_bundle

AIR = Spec(name="air", context=24, horizon=12, frequency="MS", calibrated=2)
HOURLY = Spec(name="hourly", calibrated=1)
DAILY = Spec(name="daily", frequency="D", with_calendar=True)
MULTI = Spec(name="multi", channels=("load", "wind"), frequency="W-MON")


@pytest.fixture(scope="session")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models that repeat the last value: one for each frequency, two for hours."""
    folder = tmp_path_factory.mktemp("nixtla")
    for spec in (AIR, HOURLY, Spec(name="other"), DAILY, MULTI):
        write_bundle(folder, spec)
    return folder
