"""Intervals that learn from what came true."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sqlalchemy import select

from foretell.bundle.calibration import Calibration
from foretell.service.engine.learned import Key, LearnedOffsets, Offsets
from foretell.service.ledger.adaptive import learn
from foretell.service.ledger.learner import Errors, read_errors
from foretell.service.ledger.ledger import DatabaseLedger
from foretell.service.ledger.tables import SERIES
from foretell.timeaxis.frequency import Frequency
from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, HORIZON, Open, forecast, observe, series_of

LEVELS = [0.1, 0.5, 0.9]
DIGEST = "of the bundle"
OPTIONS = {"calibration": "ledger", "quantiles": LEVELS}


def wait_for(found: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not found():
        assert time.monotonic() < end, "it was not learned"
        time.sleep(0.05)


def ask(client: Client, truth: NDArray[np.float64], origin: int, **fields: Any) -> dict[str, Any]:
    values = truth[origin : origin + CONTEXT]
    [content] = forecast(client, series_of("a", values, origin), options=OPTIONS, **fields)
    return content


def offsets_of(*, count: int = 1, value: float = 0.0) -> Offsets:
    levels = np.array([0.1, 0.5, 0.9])
    return Offsets(Calibration(levels, np.full((3, HORIZON, count), value, np.float32)), 5, DIGEST)


def test_without_errors_the_quantiles_are_the_stored_ones(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(0).normal(size=40)
    with opened(sqlite) as client:
        first = ask(client, truth, 0)
        [stored] = forecast(client, series_of("a", truth[:CONTEXT]), options={"quantiles": LEVELS})
        assert first["quantiles"] == stored["quantiles"]
        assert first["calibration"] == {"method": "ledger", "origins": 0, "of": "bundle"}


def test_offsets_come_from_the_errors_in_the_ledger(database: str, opened: Open) -> None:
    truth = np.random.default_rng(1).normal(10, 1, 200)
    with opened(database) as client:
        forecasts = [ask(client, truth, origin)["mean_forecast"] for origin in range(60)]
        observe(client, "a", truth[:100, None])
        assert client.ledger is not None
        learned = client.ledger.learned
        key = Key("calibrated", "1", "", "a")
        wait_for(lambda: key in dict(learned.items()))
        found = ask(client, truth, 60)
        assert found["calibration"] == {"method": "ledger", "origins": 60, "of": "series"}

        # The answers give the same offsets.
        model = client.repository.models[0]
        assert model.intervals.calibration is not None
        windows = np.stack([truth[at : at + CONTEXT] for at in range(61)]).astype(np.float32)
        scales = model.intervals.scale(windows[:, :, None])
        future = np.stack([truth[at + CONTEXT : at + CONTEXT + HORIZON] for at in range(60)])
        errors = (future - np.float32(forecasts))[:, :, None] / scales[:60]
        at = np.arange(60)
        of_series = learn(errors, at, model.intervals.calibration)
        offsets = of_series.calibration.at(np.array(LEVELS), HORIZON)[:, :, 0]
        expected = np.float32(found["mean_forecast"]) + scales[60, 0, 0] * offsets
        for level, values in zip(LEVELS, expected, strict=True):
            np.testing.assert_allclose(found["quantiles"][str(level)], values, rtol=1e-5)

        # A new series has its model's.
        [other] = forecast(client, series_of("b", truth[:CONTEXT]), options=OPTIONS)
        assert other["calibration"]["of"] == "model"


def learned_of(client: Client, name: str) -> Offsets:
    """The offsets of a series, after all is learned."""
    assert isinstance(client.ledger, DatabaseLedger)
    assert client.ledger.learner.settle(60)
    return dict(client.ledger.learned.items())[Key("calibrated", "1", "", name)]


def test_a_series_starts_from_what_others_show(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(3).normal(10, 1, 60)
    values = truth[: 20 + CONTEXT, None]
    with opened(sqlite) as client:
        assert isinstance(client.ledger, DatabaseLedger)
        client.ledger.learner.duty, client.ledger.learner.pool_seconds = 1.0, 0.0
        for origin in range(20):
            ask(client, truth, origin)
        observe(client, "a", values)
        alone = learned_of(client, "a").calibration
        for origin in range(20):
            window = truth[origin : origin + CONTEXT]
            forecast(client, series_of("b", window, origin))
        observe(client, "b", values)
        beside = learned_of(client, "b").calibration
        of_model = dict(client.ledger.learned.items())[Key("calibrated", "1", "")]
        model = client.repository.models[0]
        assert model.intervals.calibration is not None
        found = read(client, "a")
        by_stored, by_model = (
            learn(found.errors, found.positions, prior).calibration.offsets
            for prior in (model.intervals.calibration, of_model.calibration)
        )
        np.testing.assert_array_equal(alone.offsets, by_stored)
        np.testing.assert_array_equal(beside.offsets, by_model)
        assert (by_stored != by_model).any()


def read(client: Client, name: str) -> Errors:
    """The errors of a series in the ledger."""
    assert isinstance(client.ledger, DatabaseLedger)
    with client.ledger._store.read() as connection:
        row = connection.execute(select(SERIES.c.id).where(SERIES.c.name == name)).one()
        found = read_errors(connection, (1, row.id), ["load"], Frequency.parse("h"), HORIZON)
    assert found is not None
    return found


def test_a_forecast_alone_teaches_nothing(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.random.default_rng(4).normal(10, 1, 60)
    with opened(sqlite) as client:
        assert isinstance(client.ledger, DatabaseLedger)
        client.ledger.learner.duty = 1.0
        for origin in range(5):
            ask(client, truth, origin)
        observe(client, "a", truth[: 5 + CONTEXT, None])
        learned_of(client, "a")
        heard: list[Key] = []
        client.ledger.learned.listeners.append(lambda key, _: heard.append(key))
        ask(client, truth, 5)
        learned_of(client, "a")
        assert heard == []
        observe(client, "a", truth[5 + CONTEXT :][:1, None], 5 + CONTEXT)
        learned_of(client, "a")
        assert Key("calibrated", "1", "", "a") in heard


def test_the_learner_has_not_settled_while_it_rests(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(5).normal(10, 1, 60)
    with opened(sqlite) as client:
        assert isinstance(client.ledger, DatabaseLedger)
        learner = client.ledger.learner
        assert learner.settle(60)
        learner.duty = 1e-6
        ask(client, truth, 0)
        observe(client, "a", truth[: 1 + CONTEXT, None])
        assert not learner.settle(0.5)


def test_a_restart_learns_again(sqlite: str, opened: Open) -> None:
    truth = np.random.default_rng(2).normal(10, 1, 60)
    key = Key("calibrated", "1", "", "a")
    with opened(sqlite) as client:
        for origin in range(20):
            ask(client, truth, origin)
        observe(client, "a", truth[: 20 + CONTEXT, None])
        assert client.ledger is not None
        learned = client.ledger.learned
        wait_for(lambda: key in dict(learned.items()))
        before = ask(client, truth, 20)
    with opened(sqlite) as client:
        assert client.ledger is not None
        again = client.ledger.learned
        wait_for(lambda: key in dict(again.items()))
        assert ask(client, truth, 20)["quantiles"] == before["quantiles"]


def test_a_server_without_a_ledger_refuses(client: Client) -> None:
    values = np.arange(float(CONTEXT))
    error = client.error(
        {"model": "calibrated", "inputs": [series_of("a", values)], "options": OPTIONS}
    )
    assert (error["param"], "FORETELL_LEDGER" in error["message"]) == ("options.calibration", True)


def test_a_request_without_levels_is_refused(sqlite: str, opened: Open) -> None:
    values = np.arange(float(CONTEXT))
    options = {"calibration": "ledger"}
    with opened(sqlite) as client:
        error = client.error(
            {"model": "calibrated", "inputs": [series_of("a", values)], "options": options}
        )
        assert error["param"] == "options.calibration"


def test_snapshot_is_bounded() -> None:
    one = offsets_of()
    learned = LearnedOffsets(most_bytes=3 * one.bytes)
    for number in range(5):
        learned.put(Key("m", "1", "", f"s{number}"), one)
    learned.put(Key("m", "1", "", "s2"), offsets_of(value=1.0))
    learned.put(Key("m", "1", "", "s5"), one)
    assert [key.name for key, _ in learned.items()] == ["s4", "s2", "s5"]


def test_offsets_of_a_series_win_over_those_of_its_namespace() -> None:
    learned = LearnedOffsets()
    series = {(space, name): Key("m", "1", space, name) for space in ("", "x") for name in "ab"}
    assert learned.find(series["", "a"], DIGEST) is None
    learned.put(Key("m", "1", ""), offsets_of(value=1.0))
    learned.put(Key("m", "1", "x"), offsets_of(value=2.0))
    learned.put(series["x", "a"], offsets_of(value=3.0))
    for place, value in ((("x", "a"), 3.0), (("", "a"), 1.0), (("x", "b"), 2.0)):
        found = learned.find(series[place], DIGEST)
        assert found is not None
        assert found[0].calibration.offsets[0, 0, 0] == value
    assert learned.find(Key("m", "2", "x", "a"), DIGEST) is None
    assert learned.find(Key("m", "1", "y", "a"), DIGEST) is None
    assert learned.find(series["x", "a"], "of another bundle") is None


def test_listeners_hear_of_new_and_forgotten_offsets() -> None:
    learned = LearnedOffsets()
    heard: list[tuple[Key, Offsets | None]] = []
    learned.listeners.append(lambda *news: heard.append(news))
    one, other = Key("m", "1", "x", "a"), Key("m", "2", "x", "a")
    offsets = offsets_of()
    for key in (one, other, one.of_namespace):
        learned.put(key, offsets)
    learned.forget_series("x", "a")
    learned.forget(one.of_namespace)
    learned.forget(one)
    assert heard[:3] == [(one, offsets), (other, offsets), (one.of_namespace, offsets)]
    assert heard[3:] == [(one, None), (other, None), (one.of_namespace, None)]
    assert learned.items() == []


def test_forgotten_offsets_make_room() -> None:
    one = offsets_of()
    learned = LearnedOffsets(most_bytes=2 * one.bytes)
    for name in "ab":
        learned.put(Key("m", "1", "", name), one)
    learned.forget_series("", "b")
    learned.put(Key("m", "1", "", "c"), one)
    assert [key.name for key, _ in learned.items()] == ["a", "c"]
