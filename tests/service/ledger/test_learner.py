"""The learner learns what came true, forgets what was deleted, and keeps tenants apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shutil import move, rmtree
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration
from foretell.service.engine.ipc import Remember
from foretell.service.engine.learned import Key, Offsets
from foretell.service.ledger import learner as module
from foretell.service.ledger.ledger import DatabaseLedger
from tests.service.client import Client
from tests.service.ledger.conftest import (
    CONTEXT,
    HORIZON,
    Open,
    counted,
    forecast,
    observe,
    scores,
    series_of,
)
from tests.support.bundles import Spec, write_bundle

ORIGINS = 20
TRUTH = np.random.default_rng(0).normal(10, 1, 60)
LEVELS = [0.1, 0.5, 0.9]
OPTIONS: dict[str, Any] = {"calibration": "ledger", "quantiles": LEVELS}
KEY_OF = {"a": "one", "b": "two"}
KEYS = {"api_keys": "one a,two b", "admin_keys": "boss"}


def ledger_of(client: Client) -> DatabaseLedger:
    assert isinstance(client.ledger, DatabaseLedger)
    return client.ledger


def learned_of(client: Client) -> dict[Key, Offsets]:
    """The offsets, after all is learned."""
    assert ledger_of(client).learner.settle(60)
    return dict(ledger_of(client).learned.items())


def key(name: str | None = None, namespace: str = "") -> Key:
    return Key("calibrated", "1", namespace, name)


@pytest.fixture
def quick(opened: Open, sqlite: str) -> Any:
    """Opens a server that learns at once."""

    @contextmanager
    def start(**settings: Any) -> Iterator[Client]:
        with opened(sqlite, **settings) as client:
            learner = ledger_of(client).learner
            learner.duty, learner.pool_seconds = 1.0, 0.0
            yield client

    return start


def teach(
    client: Client,
    name: str,
    truth: NDArray[np.float64] = TRUTH,
    *,
    horizon: int = HORIZON,
    space: str = "",
) -> None:
    """Forecast a series from some origins, and send what came true."""
    headers = {"authorization": f"Bearer {KEY_OF[space]}"} if space else {}
    for origin in range(ORIGINS):
        window = series_of(name, TRUTH[origin : origin + CONTEXT], origin)
        body = {"model": "calibrated", "inputs": [window], "options": {"horizon": horizon}}
        assert client.request("POST", "/forecast", json=body, headers=headers).is_success
    observe(client, name, truth[: ORIGINS + CONTEXT, None], namespace=space)


def ask(client: Client, horizon: int = HORIZON, factor: float = 1.0) -> dict[str, Any]:
    values = series_of("a", factor * TRUTH[ORIGINS : ORIGINS + CONTEXT], ORIGINS)
    [content] = forecast(client, values, options={**OPTIONS, "horizon": horizon})
    return content


def stored_quantiles(client: Client, horizon: int = HORIZON, factor: float = 1.0) -> Any:
    values = series_of("b", factor * TRUTH[ORIGINS : ORIGINS + CONTEXT])
    [content] = forecast(client, values, options={"quantiles": LEVELS, "horizon": horizon})
    return content["quantiles"]


def test_a_longer_forecast_than_all_before_has_quantiles(quick: Any) -> None:
    with quick() as client:
        teach(client, "a", horizon=2)
        assert {*learned_of(client)} == {key(), key("a")}
        found, stored = ask(client, horizon=6)["quantiles"], stored_quantiles(client, 6)
        assert found["0.9"][2:] == stored["0.9"][2:]
        assert found["0.9"][:2] != stored["0.9"][:2]
        before = learned_of(client)[key()].calibration.offsets
        teach(client, "b", horizon=6)
        after = learned_of(client)[key()].calibration.offsets
        assert (before[:, 2:6] != after[:, 2:6]).any()
        assert (before[:, 6:] == after[:, 6:]).all()


def test_offsets_of_another_bundle_are_not_used(quick: Any) -> None:
    other = Calibration(np.array(LEVELS), np.zeros((3, 1, 2), np.float32))
    with quick() as client:
        ledger_of(client).learned.put(key("a"), Offsets(other, 5, "of another bundle"))
        assert ask(client)["calibration"] == {"method": "ledger", "origins": 0, "of": "bundle"}


def test_offsets_that_give_no_finite_quantile_are_not_used(quick: Any) -> None:
    with quick() as client:
        [model] = [each for each in client.repository.models if each.name == "calibrated"]
        intervals = model.intervals
        assert intervals.calibration is not None
        offsets = np.full_like(intervals.calibration.offsets, 3.4e38)
        large = Calibration(intervals.calibration.levels, offsets)
        ledger_of(client).learned.put(key("a"), Offsets(large, 5, model.digest))
        found = ask(client, factor=100.0)
        assert found["quantiles"] == stored_quantiles(client, factor=100.0)
        assert found["calibration"]["of"] == "bundle"


def test_values_too_far_away_teach_nothing(quick: Any, caplog: pytest.LogCaptureFixture) -> None:
    with quick() as client:
        teach(client, "a", np.full_like(TRUTH, 1e300))
        assert learned_of(client) == {}
        assert "the actual values of the series 'a'" in caplog.text
        assert ask(client)["quantiles"] == stored_quantiles(client)


def test_a_version_exported_anew_learns_from_its_own_errors(tmp_path: Path, sqlite: str) -> None:
    models, stored = tmp_path / "models", tmp_path / "stored"
    models.mkdir()
    write_bundle(models, Spec(name="calibrated", calibrated=1))
    with Client(models, ledger=sqlite) as client:
        teach(client, "a", TRUTH + 50)
        first = learned_of(client)[key("a")]
        forecast(client, series_of("b", TRUTH[:CONTEXT]))
        observe(client, "b", TRUTH[:, None])
        [row] = scores(client, "?series=b")
        move(models / "calibrated", stored)
        # Its calibration is the same.
        write_bundle(models, Spec(name="calibrated", calibrated=1, changes={"config": {"seed": 2}}))
        client.repository.load("calibrated", "1")
        learned_of(client)
        assert ask(client)["calibration"] == {"method": "ledger", "origins": 0, "of": "bundle"}
        assert scores(client) == scores(client, "?series=b") == []
        teach(client, "a")
        own = learned_of(client)[key("a")]
        assert own.stored != first.stored
        assert (own.calibration.offsets[-1] < 10).all()
        assert (first.calibration.offsets[-1] > 50).all()
        assert ask(client)["calibration"]["of"] == "series"
        rmtree(models / "calibrated")
        move(stored, models / "calibrated")
        client.repository.load("calibrated", "1")
        assert learned_of(client)[key("a")].stored == first.stored
        assert scores(client, "?series=b") == [row]


def test_forecasts_of_a_bundle_that_was_replaced_are_dropped(quick: Any) -> None:
    with quick() as client:
        message = Remember(
            *("calibrated", "1", "sha256:of another bundle", "", "forecast-1", "stored"),
            *((), ["a"], [0]),
        )
        ledger_of(client).remember(message, {})
        assert counted(client, "forecasts", "dropped") == 1


def test_a_tenant_does_not_change_the_intervals_of_another(quick: Any) -> None:
    with quick(**KEYS) as client:
        teach(client, "a", space="a")
        before = learned_of(client)
        teach(client, "wild", TRUTH + 100, space="b")
        teach(client, "a", TRUTH - 100, space="b")
        after = learned_of(client)
        assert {*after} - {*before} == {key("wild", "b"), key("a", "b"), key(None, "b")}
        for each in (key("a", "a"), key(None, "a")):
            offsets = (found[each].calibration.offsets for found in (before, after))
            np.testing.assert_array_equal(*offsets)


def test_a_deleted_series_is_forgotten(quick: Any) -> None:
    with quick() as client:
        teach(client, "a")
        alone = learned_of(client)
        teach(client, "b", TRUTH + 50)
        assert {*learned_of(client)} == {key(), key("a"), key("b")}
        client.request("DELETE", "/ledger/series?name=b")
        rest = learned_of(client)
        assert {*rest} == {key(), key("a")}
        for each in rest:
            np.testing.assert_array_equal(
                rest[each].calibration.offsets, alone[each].calibration.offsets
            )
        client.request("DELETE", "/ledger/series?name=a")
        assert learned_of(client) == {}
        assert ask(client)["calibration"]["of"] == "bundle"


def test_a_series_deleted_while_it_is_learned_is_forgotten(
    quick: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = module.learn
    with quick() as client:

        def learn(*arguments: Any) -> Any:
            ledger_of(client).call("delete", ("", "a"), {})
            return plain(*arguments)

        monkeypatch.setattr(module, "learn", learn)
        teach(client, "a")
        assert learned_of(client) == {}


def test_months_are_counted_in_whole_steps(tmp_path: Path, sqlite: str) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write_bundle(models, Spec(name="calibrated", frequency="MS", calibrated=1))
    # The last forecast is of the shortest month.
    months = (np.datetime64("2018-12") + np.arange(60)).astype("M8[us]")
    with Client(models, ledger=sqlite) as client:
        for origin in range(ORIGINS):
            start = {"start_timestamp": str(months[origin])[:19]}
            values = TRUTH[origin : origin + CONTEXT].tolist()
            window = {"name": "a", "series": values, **start}
            forecast(client, window, options={"horizon": 1})
        arrays = {"times": months.astype(np.int64), "values": TRUTH}
        ledger_of(client).call("observe", [[("", "a", "MS", ["load"], len(TRUTH))]], arrays)
        learned_of(client)
        found = ledger_of(client).learner._errors.get(key("a"))
        assert found is not None
        np.testing.assert_array_equal(np.diff(found.positions), 1)


def test_errors_of_unloaded_versions_are_forgotten(tmp_path: Path, sqlite: str) -> None:
    models = tmp_path / "models"
    models.mkdir()
    write_bundle(models, Spec(name="calibrated", calibrated=1))
    with Client(models, ledger=sqlite) as client:
        teach(client, "a")
        learned_of(client)
        errors = ledger_of(client).learner._errors
        assert [*errors] == [key("a")]
        client.repository.unload("calibrated", "1")
        learned_of(client)
        assert [*errors] == []
        client.repository.load("calibrated", "1")
        learned_of(client)
        assert [*errors] == [key("a")]
