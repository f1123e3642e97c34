from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from foretell.bundle.bounds import Bound
from foretell.service.engine.model import Capacity, Model
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from tests.service.client import Client
from tests.support.bundles import Spec, lag_stage, softmax_stage, write_bundle

UNIVARIATE = Spec(name="repeat")
MULTIVARIATE = Spec(
    name="multi",
    channels=("load", "wind"),
    stages=(
        softmax_stage(),
        lag_stage(),
        softmax_stage(name="decoder.0.cross", channels=2),
    ),
)
CALENDAR = Spec(name="calendar", with_calendar=True, stages=(lag_stage(),))
MONTHLY = Spec(name="monthly", frequency="MS", horizon=12, with_calendar=True)
QUARTER_HOURLY = Spec(name="quarter-hourly", frequency="15min", stages=(lag_stage(),))
CALIBRATED = Spec(
    name="calibrated",
    stages=(softmax_stage(),),
    calibrated=3,
    changes={"bounds": {"load": Bound(high=1e6)}},
)


class Quiet:
    """A batch observer that ignores all calls."""

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        pass

    def ran_in_background(self, seconds: float) -> None:
        pass

    def dropped(self, reason: str) -> None:
        pass

    def changed(self) -> None:
        pass


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository of six models; `repeat` has two versions."""
    folder = tmp_path_factory.mktemp("models")
    for spec in (UNIVARIATE, MULTIVARIATE, CALENDAR, MONTHLY, QUARTER_HOURLY, CALIBRATED):
        write_bundle(folder, spec)
    write_bundle(folder, Spec(name="repeat", version="10"))
    return folder


@pytest.fixture(scope="session")
def client(models: Path) -> Iterator[Client]:
    """The application serving `models`."""
    with Client(models) as client:
        yield client


@pytest.fixture(scope="session")
def runtime() -> Runtime:
    return Runtime("cpu")


@pytest.fixture
def scheduler() -> Iterator[Scheduler]:
    """An inference thread for the models of a test."""
    scheduler = Scheduler(threads=1)
    yield scheduler
    scheduler.close(5)


@pytest.fixture
def open_model(runtime: Runtime, scheduler: Scheduler) -> Iterator[object]:
    """Opens models and closes them after the test."""
    opened: list[Model] = []

    def open_one(folder: Path) -> Model:
        opened.append(Model(folder, runtime, scheduler, Capacity(8, 64, 1 << 20), Quiet()))
        return opened[-1]

    yield open_one
    for model in opened:
        model.close(5)
