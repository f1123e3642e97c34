"""Challengers: requests are forecast again for the ledger, after their answers."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.bundle import serving
from foretell.bundle.serving import Challenger, Serving
from foretell.service.errors import (
    DeadlineExceededError,
    InvalidInputError,
    ModelFailedError,
    NotReadyError,
    QueueFullError,
)
from foretell.service.http import challenges
from foretell.service.http.challenges import _reason
from tests.service.client import Client
from tests.service.ledger.conftest import counted, observe, scores, series_of, settle
from tests.support.bundles import Spec, write_bundle
from tests.support.waiting import until

VALUES = np.arange(12.0)[:, np.newaxis]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with two versions of a model; the second one is the challenger of all."""
    folder = tmp_path / "models"
    for version in ("1", "2"):
        write_bundle(folder, Spec(name="energy", version=version, calibrated=1))
    serving.write(folder, "energy", roles("2"))
    return folder


@pytest.fixture
def client(folder: Path, sqlite: str) -> Iterator[Client]:
    with Client(folder, ledger=sqlite) as client:
        yield client


def roles(version: str, share: float = 1.0) -> Serving:
    return Serving(pin="1", challenger=Challenger(version=version, share=share))


def ask(client: Client, model: str | None = "energy", name: str = "a", **fields: Any) -> str:
    """The version that answered."""
    body = {"inputs": [series_of(name, VALUES[:8])], **fields}
    answer = client.forecast(body | ({} if model is None else {"model": model}))
    assert answer.status_code == 200, answer.text
    version: str = answer.json()["model_version"]
    return version


def skipped(client: Client) -> dict[str, float]:
    """Counts of requests that no challenger forecast, by reason, without those of 0."""
    found = {}
    for line in client.get("/metrics").text.splitlines():
        if line.startswith("foretell_challenger_skipped_total{"):
            reason, number = line.partition('reason="')[2].split('"} ')
            found[reason] = float(number)
    return {reason: number for reason, number in found.items() if number}


@pytest.mark.parametrize("model", ["energy", None])
def test_a_challenger_forecasts_for_the_ledger(client: Client, model: str | None) -> None:
    assert ask(client, model) == "1"
    until(lambda: counted(client, "forecasts", "kept") == 2)
    settle(client)
    observe(client, "a", VALUES)
    rows = scores(client, "?by=channel", "energy") + scores(
        client, "?by=channel&version=2", "energy"
    )
    assert {row["version"] for row in rows} == {"1", "2"}
    assert {row["count"] for row in rows} == {4}
    assert skipped(client) == {}
    # Only the answer counts as a run that a client waited for.
    assert client.windows("energy") == 1


def test_requests_that_name_a_version_have_no_challenger(client: Client) -> None:
    assert ask(client, "energy@1") == "1"
    assert ask(client, "energy@2", name="b") == "2"
    ask(client, name="c")
    until(lambda: counted(client, "forecasts", "kept") == 4)
    assert skipped(client) == {}


def test_forecasts_that_the_ledger_does_not_keep_have_no_challenger(client: Client) -> None:
    ask(client, options={"ledger": False})
    ask(client, name="b")
    until(lambda: counted(client, "forecasts", "kept") == 2)
    assert skipped(client) == {}


def test_only_a_share_of_the_requests_is_drawn(
    folder: Path, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    serving.write(folder, "energy", roles("2", 0.25))
    draws = iter([0.5, 0.2, 0.25, 0.24])
    with Client(folder, ledger=sqlite) as client:
        monkeypatch.setattr(challenges, "_draw", lambda: next(draws))
        for name in "abcd":
            ask(client, name=name)
        until(lambda: counted(client, "forecasts", "kept") == 6)


@pytest.mark.parametrize(
    ("bound", "reason"), [("MOST_BYTES", "too_large"), ("MOST_REQUESTS", "busy")]
)
def test_bounds_skip_requests(
    client: Client, monkeypatch: pytest.MonkeyPatch, bound: str, reason: str
) -> None:
    monkeypatch.setattr(challenges, bound, 0)
    assert ask(client) == "1"
    assert skipped(client) == {reason: 1}


def test_requests_that_have_ended_are_kept_no_longer(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(challenges, "MOST_REQUESTS", 1)
    body = {"model": "energy", "inputs": [series_of("a", VALUES[:8])], "options": {"horizon": 99}}
    assert client.forecast(body).status_code == 422
    ask(client)
    until(lambda: counted(client, "forecasts", "kept") == 2)
    ask(client, name="b")
    until(lambda: counted(client, "forecasts", "kept") == 4)
    assert skipped(client) == {}


def test_a_challenger_that_is_not_loaded_is_counted(folder: Path, sqlite: str) -> None:
    serving.write(folder, "energy", roles("9"))
    with Client(folder, ledger=sqlite) as client:
        assert ask(client) == "1"
        assert skipped(client) == {"not_loaded": 1}


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        (Spec(name="energy", version="3", channels=("load", "wind")), "refused"),
        (Spec(name="energy", version="3", fails=True), "failed"),
    ],
)
def test_errors_of_a_challenger_are_counted_and_logged_once(
    folder: Path, sqlite: str, caplog: pytest.LogCaptureFixture, spec: Spec, reason: str
) -> None:
    write_bundle(folder, spec)
    serving.write(folder, "energy", roles("3"))
    caplog.set_level(logging.DEBUG)
    with Client(folder, ledger=sqlite) as client:
        for count, name in enumerate("ab", 1):
            assert ask(client, name=name) == "1"
            until(lambda count=count: skipped(client) == {reason: count})
        settle(client)
        assert counted(client, "forecasts", "kept") == 2
    assert caplog.text.count("a challenger did not forecast: energy@3: ") == 1


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (QueueFullError("full"), "busy"),
        (NotReadyError("unloaded"), "not_loaded"),
        (DeadlineExceededError("late"), "expired"),
        (InvalidInputError("other channels"), "refused"),
        (ModelFailedError("broken"), "failed"),
        (ValueError("a mistake"), "failed"),
    ],
)
def test_reasons_are_a_bounded_set(error: Exception, reason: str) -> None:
    assert _reason(error) == reason


def test_without_a_ledger_nothing_is_forecast_again(folder: Path) -> None:
    with Client(folder) as client:
        assert ask(client) == "1"
        assert skipped(client) == {}
        text = client.get("/metrics").text
    assert 'stage="background"' not in text


def test_only_forecasts_of_one_request_are_compared(
    folder: Path, sqlite: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    early = VALUES[:8] + np.eye(8)[:, -1:]
    # The challenger forecasts the earlier request of the first series, and the later of the second.
    draws = iter([0.0, 1.0, 1.0, 0.0])
    serving.write(folder, "energy", roles("2", 0.5))
    with Client(folder, ledger=sqlite) as client:
        monkeypatch.setattr(challenges, "_draw", lambda: next(draws))
        for kept, (name, values) in enumerate(
            [("a", early), ("a", VALUES[:8]), ("b", early), ("b", VALUES[:8])], 1
        ):
            body = {"model": "energy", "inputs": [series_of(name, values)]}
            assert client.forecast(body).is_success
            drawn = (1, 1, 1, 2)[kept - 1]
            until(lambda count=kept + drawn: counted(client, "forecasts", "kept") == count)
        for name in "ab":
            observe(client, name, VALUES)
        assert client.get("/models/energy/compare?a=1&b=2").json()["windows"] == 1
        [found] = client.get("/models/energy/trajectories?series=b&version=1").json()["forecasts"]
        [other] = client.get("/models/energy/trajectories?series=b&version=2").json()["forecasts"]
        assert found["id"] == other["id"]


def test_forecasts_of_equal_histories_are_compared(folder: Path, sqlite: str) -> None:
    with Client(folder, ledger=sqlite) as client:
        for name, values in (("a", VALUES[:8]), ("b", VALUES[:8] + np.eye(8)[:, -1:])):
            ask(client, "energy@1", name=name)
            body = {"model": "energy@2", "inputs": [series_of(name, values)]}
            assert client.forecast(body).is_success
        settle(client)
        for name in "ab":
            observe(client, name, VALUES)
        assert client.get("/models/energy/compare?a=1&b=2").json()["windows"] == 1
