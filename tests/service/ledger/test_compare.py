"""Two versions of a model on the same windows."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.service.arrays import FORECAST, HISTORY, MOMENTS, Arrays
from foretell.service.engine.ipc import Remember
from foretell.service.engine.registry import Model
from foretell.service.errors import InvalidInputError
from foretell.service.ledger import pairing
from foretell.service.ledger.bodies import Bodies, Shape
from foretell.service.ledger.comparison import compare
from foretell.service.ledger.ids import Ids
from foretell.service.ledger.keeping import Record, keep
from foretell.service.ledger.observing import Observed, observe
from foretell.service.ledger.pairing import Pairs, read_pairs
from foretell.service.ledger.reading import Selection
from foretell.service.ledger.store import Store
from tests.service.client import Client
from tests.service.ledger.conftest import (
    CONTEXT,
    HORIZON,
    Open,
    forecast,
    series_of,
)
from tests.service.ledger.conftest import observe as send_actuals
from tests.support.bundles import Spec, write_bundle

HOUR = 3_600_000_000


class Scene:
    """A database in which two versions of a model forecast what a test wants."""

    def __init__(self, url: str, client: Client) -> None:
        self.store = Store(url)
        self.store.open()
        self.ids = Ids(self.store)
        self._models = {model.version: model for model in client.repository.models}
        self.digests = {model.version: model.digest for model in client.repository.models}

    def forecast(
        self,
        version: str,
        name: str,
        origins: NDArray[np.int64],
        values: NDArray[np.float64],
        *,
        namespace: str = "",
    ) -> None:
        """Forecasts `[origins, steps]` from origins in hours."""
        steps = np.arange(-CONTEXT + 1, HORIZON + 1)
        moments = (origins[:, None] + steps) * HOUR
        self.keep(self._models[version], name, moments, values[..., None], namespace=namespace)

    def keep(
        self,
        model: Model,
        name: str,
        moments: NDArray[np.int64],
        values: NDArray[np.float64],
        *,
        namespace: str = "",
    ) -> None:
        """Forecasts `[origins, steps, channels]`, with the moments of all rows."""
        count, _, channels = values.shape
        arrays: Arrays = {
            HISTORY: np.ones((count, CONTEXT, channels), np.float32),
            FORECAST: values.astype(np.float32),
            MOMENTS: moments,
        }
        message = Remember(
            model.name,
            model.version,
            model.digest,
            namespace,
            "forecast",
            "stored",
            (),
            [name] * count,
            (moments[:, CONTEXT - 1] // HOUR).tolist(),
        )
        record = Record(message, arrays, model.manifest, model.intervals)
        with self.store.write() as connection:
            keep(connection, self.store, self.ids, [record])

    def observe(self, name: str, values: NDArray[np.float64], namespace: str = "") -> None:
        """Actual values from hour 0 on."""
        self.observe_at(name, np.arange(len(values)) * HOUR, values, namespace)

    def observe_at(
        self,
        name: str,
        times: NDArray[np.int64],
        values: NDArray[np.float64],
        namespace: str = "",
        frequency: str = "h",
    ) -> None:
        key = (namespace, name, frequency)
        with self.store.write() as connection:
            one = Observed(key, ["load"], times, values[:, None])
            observe(connection, self.store, self.ids, [one])

    def pairs(self, a: str = "1", b: str = "2", **fields: Any) -> Pairs:
        with self.store.read() as connection:
            return read_pairs(connection, Selection("calibrated", **fields), (a, b))


@pytest.fixture(scope="module")
def two_versions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("versions")
    for version in ("1", "2", "3"):
        write_bundle(folder, Spec(name="calibrated", version=version, calibrated=3))
    return folder


@pytest.fixture
def scene(two_versions: Path, database: str) -> Any:
    with Client(two_versions) as client:
        made = Scene(database, client)
        yield made
        made.store.close()


def test_pairs_are_windows_that_both_forecast(scene: Scene) -> None:
    rng = np.random.default_rng(0)
    truth = {"a": rng.normal(10, 2, 60), "b": rng.normal(1000, 50, 60)}
    forecasts = {}
    for name, values in truth.items():
        for version, first in (("1", 0), ("2", 5)):
            origins = np.arange(10 + first, 40)
            forecasts[version, name] = rng.normal(values.mean(), 1, (len(origins), HORIZON))
            scene.forecast(version, name, origins, forecasts[version, name])
        known = values.copy()
        known[20] = np.nan
        scene.observe(name, known[:42])
    found = scene.pairs()
    # The last windows are not over; from 15 on both versions have them.
    origins = np.arange(15, 38)
    assert found.origins.tolist() == [*origins, *origins]
    assert found.horizon == HORIZON
    assert [*dict.fromkeys(found.series)] == ["1", "2"]
    for place, (name, values) in enumerate(truth.items()):
        known = values.copy()
        known[20] = np.nan
        future = np.stack([known[at + 1 : at + 1 + HORIZON] for at in origins])
        unit = np.nanmean([np.nanmean(row) for row in np.abs(1.0 - future)])
        for which, version in enumerate(("1", "2")):
            first = 0 if version == "1" else 5
            own = forecasts[version, name][5 - first : 5 - first + len(origins)]
            expected = np.nanmean(np.abs(np.float32(own) - future), axis=1) / unit
            losses = found.losses[which, place * len(origins) :][: len(origins)]
            np.testing.assert_allclose(losses, expected, rtol=1e-9)


def test_windows_can_be_chosen(scene: Scene) -> None:
    origins = np.arange(10, 70)
    zeros = np.zeros((len(origins), HORIZON))
    for name, namespace in (("a", ""), ("b", ""), ("a", "tenant")):
        for version in ("1", "2"):
            scene.forecast(version, name, origins, zeros, namespace=namespace)
        scene.observe(name, np.ones(100), namespace)
    assert len(scene.pairs().series) == 3 * len(origins)
    assert len(scene.pairs(namespace="").series) == 2 * len(origins)
    assert len(scene.pairs(namespace="tenant").series) == len(origins)
    assert len(scene.pairs(series="b").series) == len(origins)
    assert scene.pairs(since=2).origins.min() == 2 * 24 - HORIZON
    assert scene.pairs(until=1).origins.max() == 2 * 24 - 1
    assert scene.pairs("1", "3").losses.shape == (2, 0)


def test_comparison_through_the_server(two_versions: Path, sqlite: str) -> None:
    truth = np.random.default_rng(1).normal(size=300)
    with Client(two_versions, ledger=sqlite) as client:
        for version in ("1", "2"):
            for origin in range(60):
                one = series_of("a", truth[origin : origin + CONTEXT], origin)
                forecast(client, one, model=f"calibrated@{version}")
        answer = client.get("/models/calibrated/compare?a=1&b=2").json()
        assert (answer["verdict"], answer["windows"]) == ("too few", 0)
        send_actuals(client, "a", truth[:, None])
        answer = client.get("/models/calibrated/compare?a=1&b=2").json()
        assert answer["verdict"] == "no difference"
        assert answer["windows"] == answer["origins"] == 60
        assert answer["loss_a"] == answer["loss_b"] == pytest.approx(1.0)
        same = client.get("/models/calibrated/compare?a=1&b=1")
        assert (same.status_code, same.json()["error"]["param"]) == (422, "b")


def test_a_better_version_is_found(scene: Scene) -> None:
    rng = np.random.default_rng(2)
    truth = rng.normal(size=1000)
    origins = np.arange(10, 900)
    future = np.stack([truth[at + 1 : at + 1 + HORIZON] for at in origins])
    for version, error in (("1", 1.0), ("2", 0.8)):
        scene.forecast(version, "a", origins, future + error * rng.normal(size=future.shape))
    scene.observe("a", truth)
    found = scene.pairs()
    assert len(found.series) == len(origins)
    assert found.losses[1].mean() / found.losses[0].mean() == pytest.approx(0.8, rel=0.05)


def test_days_of_a_zone_are_one_step_apart(tmp_path: Path, database: str) -> None:
    for version in ("1", "2"):
        write_bundle(
            tmp_path, Spec(name="calibrated", version=version, frequency="D", calibrated=3)
        )
    zone = ZoneInfo("Europe/Berlin")
    # The first forecast has the day of 23 hours, 26 March, among its steps.
    days = [datetime(2023, 3, 17, tzinfo=zone) + timedelta(days=day) for day in range(420)]
    times = np.array([int(day.timestamp()) * 1_000_000 for day in days])
    rows = np.arange(CONTEXT + HORIZON)
    with Client(tmp_path) as client:
        scene = Scene(database, client)
        # The second series begins in winter.
        for name, first in (("a", 0), ("b", 260)):
            moments = times[np.arange(first, len(times) - len(rows) + 1)[:, None] + rows]
            values = np.zeros((len(moments), HORIZON, 1))
            for model in client.repository.models:
                scene.keep(model, name, moments, values)
            scene.observe_at(name, times, np.ones(len(times)), frequency="D")
        found = scene.pairs()
        scene.store.close()
    count = len(times) - len(rows) + 1
    first = int(found.origins[0])
    assert found.origins.tolist() == [
        *range(first, first + count),
        *range(first + 260, first + count),
    ]
    assert compare(*found.losses, found.series, found.origins, HORIZON).origins == count


def test_bundles_of_a_version_are_not_mixed(scene: Scene, tmp_path: Path) -> None:
    origins = np.arange(10, 50)
    for version in ("1", "2"):
        scene.forecast(version, "a", origins, np.zeros((len(origins), HORIZON)))
    write_bundle(tmp_path, Spec(name="calibrated", version="1", channels=("wind", "load")))
    moments = (origins[5:, None] + np.arange(-CONTEXT + 1, HORIZON + 1)) * HOUR
    with Client(tmp_path) as client:
        [model] = client.repository.models
        scene.keep(model, "a", moments, np.full((len(moments), HORIZON, 2), 3.0))
    scene.observe("a", np.full(100, 2.0))
    found = scene.pairs()
    # The later export has an error of 1, the earlier one of 2, the naive forecast of 1.
    assert found.origins.tolist() == origins[5:].tolist()
    assert found.losses.tolist() == [[1.0] * 35, [2.0] * 35]
    served = scene.pairs(served=scene.digests)
    assert served.origins.tolist() == origins.tolist()
    assert served.losses.tolist() == [[2.0] * 40, [2.0] * 40]
    assert scene.pairs(served={"1": "of a bundle without forecasts"}).losses.shape == (2, 0)


def test_forecasts_are_read_in_parts(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    origins = np.arange(10, 50)
    for version in ("1", "2"):
        scene.forecast(version, "a", origins, np.zeros((len(origins), HORIZON)))
    scene.observe("a", np.ones(100))
    whole = scene.pairs()
    counts = []
    read = pairing.Bodies.read

    def count(bodies: list[bytes], shape: Shape) -> Bodies:
        counts.append(len(bodies))
        return read(bodies, shape)

    monkeypatch.setattr(pairing.Bodies, "read", count)
    # Each pair has 2 forecasts, of 4 steps with mean, naive and three quantiles.
    monkeypatch.setattr(pairing, "_VALUES", 7 * 2 * HORIZON * 5)
    found = scene.pairs()
    assert counts == [7] * 10 + [5] * 2
    np.testing.assert_array_equal(found.losses, whole.losses)
    monkeypatch.setattr(pairing, "MOST_WINDOWS", 39)
    with pytest.raises(InvalidInputError, match="choose a series, or days by since and until"):
        scene.pairs()


def test_ledger_is_needed(client: Client) -> None:
    answer = client.get("/models/calibrated/compare?a=1&b=2")
    assert (answer.status_code, answer.json()["error"]["type"]) == (422, "not_supported")


def test_opened_server_compares_only_its_own_model(sqlite: str, opened: Open) -> None:
    with opened(sqlite) as client:
        answer = client.get("/models/pair/compare?a=1&b=2").json()
        assert (answer["verdict"], answer["windows"]) == ("too few", 0)
