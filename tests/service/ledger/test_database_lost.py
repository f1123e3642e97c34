"""A database that is gone, locked or full costs no forecast."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import event
from sqlalchemy.pool import Pool

from foretell.service.errors import NotReadyError
from foretell.service.ledger import store, writer
from tests.service.client import Client
from tests.service.ledger.conftest import (
    CONTEXT,
    Open,
    counted,
    forecast,
    observe,
    scores,
    series_of,
    settle,
)
from tests.service.ledger.sound import check
from tests.support.postgresql import Server, postgresql
from tests.support.waiting import until

VALUES = np.arange(float(CONTEXT))


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "_RETRY_SECONDS", (0.1,))
    monkeypatch.setattr(store, "_BUSY_SECONDS", 0.1)


@pytest.fixture
def own_server() -> Iterator[Server]:
    with postgresql() as running:
        yield running


def gauge(client: Client, name: str) -> float:
    text: str = client.get("/metrics").text
    [line] = [each for each in text.splitlines() if each.startswith(f"foretell_ledger_{name} ")]
    return float(line.split()[-1])


def ask(client: Client, name: str) -> bool:
    """Forecast a series; returns whether it is in the ledger."""
    answer = client.forecast({"model": "calibrated", "inputs": [series_of(name, VALUES)]})
    assert answer.status_code == 200, answer.text
    assert client.get("/readyz").status_code == 200
    found: bool = answer.json()["outputs"][0]["content"][0]["in_ledger"]
    return found


def names(client: Client) -> list[str]:
    """Names of the stored series, of 0 to 19."""
    found = []
    for number in range(20):
        path = f"/models/calibrated/trajectories?series=s{number}"
        if client.get(path).json()["forecasts"]:
            found.append(f"s{number}")
    return found


def test_postgresql_killed_and_back(own_server: Server, opened: Open) -> None:
    with opened(own_server.url) as client:
        forecast(client, series_of("s0", VALUES))
        assert gauge(client, "up") == 1
        own_server.kill()
        assert ask(client, "s1")
        until(lambda: gauge(client, "up") == 0)
        assert all(ask(client, f"s{number}") for number in range(2, 10))
        assert gauge(client, "queue_forecasts") == 9
        for call in (
            lambda: observe(client, "s1", VALUES[:, None]),
            lambda: client.ledger.call(
                "accuracy", [{"model": "calibrated"}, "total", 1, math.inf], {}
            ),
        ):
            with pytest.raises(NotReadyError, match="does not answer"):
                call()
        answer = client.get("/models/calibrated/accuracy")
        assert answer.status_code == 503
        assert int(answer.headers["retry-after"]) > 0
        own_server.start()
        until(lambda: gauge(client, "up") == 1)
        settle(client)
        assert names(client) == [f"s{number}" for number in range(10)]
        assert counted(client, "forecasts", "kept") == 10
        assert gauge(client, "queue_forecasts") == 0
        observe(client, "s1", VALUES[:, None], CONTEXT)
        [row] = scores(client)
        assert row["count"] == 4
    assert check(own_server.url) == 10


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Another program's transaction that writes."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("ROLLBACK")


def test_sqlite_locked_by_another_program(
    sqlite: str, tmp_path: Path, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(sqlite) as client:
        forecast(client, series_of("s0", VALUES))
        with locked(tmp_path / "ledger.db"):
            assert ask(client, "s1")
            until(lambda: gauge(client, "up") == 0)
            with pytest.raises(NotReadyError):
                observe(client, "s1", VALUES[:, None])
            # It can be read.
            assert names(client) == ["s0"]
        until(lambda: gauge(client, "up") == 1)
        settle(client)
        assert names(client) == ["s0", "s1"]
    assert caplog.text.count("does not answer") == 1


def test_full_queue_is_told_in_answers(
    sqlite: str, tmp_path: Path, opened: Open, caplog: pytest.LogCaptureFixture
) -> None:
    with opened(sqlite, ledger_queue_bytes=10_000) as client:
        with locked(tmp_path / "ledger.db"):
            kept = [ask(client, f"s{number}") for number in range(20)]
            taken = sum(kept)
            assert 0 < taken < 6
            assert kept == sorted(kept, reverse=True)
            assert counted(client, "forecasts", "dropped") == 20 - taken
            assert gauge(client, "queue_bytes") >= gauge(client, "queue_limit_bytes")
            # Unnamed series are never kept, and do not count as dropped.
            body = {"model": "calibrated", "inputs": [{"series": VALUES.tolist()}]}
            [output] = client.forecast(body).json()["outputs"]
            assert output["content"][0]["in_ledger"] is False
            assert counted(client, "forecasts", "dropped") == 20 - taken
        until(lambda: gauge(client, "queue_bytes") == 0)
        assert ask(client, "s19")
        settle(client)
        assert len(names(client)) == taken + 1
    assert caplog.text.count("the queue of the ledger is full") == 1


def test_full_disk(sqlite: str, opened: Open) -> None:
    connections: list[Any] = []

    def note(connection: Any, _: object) -> None:
        connections.append(connection)

    event.listen(Pool, "connect", note)
    try:
        with opened(sqlite) as client:
            forecast(client, series_of("s0", VALUES))
            [pages] = connections[0].execute("PRAGMA page_count").fetchone()
            for connection in connections:
                connection.execute(f"PRAGMA max_page_count={pages}")
            inputs = [series_of(f"t{number}", VALUES) for number in range(200)]
            answer = client.forecast({"model": "calibrated", "inputs": inputs})
            assert answer.status_code == 200
            until(lambda: gauge(client, "up") == 0)
            assert ask(client, "s1")
            with pytest.raises(NotReadyError):
                observe(client, "s1", VALUES[:, None])
            for connection in connections:
                connection.execute("PRAGMA max_page_count=1000000")
            until(lambda: gauge(client, "up") == 1)
            settle(client)
            assert names(client) == ["s0", "s1"]
            assert counted(client, "forecasts", "kept") == 202
    finally:
        event.remove(Pool, "connect", note)
    assert check(sqlite) == 202


def test_name_that_no_index_takes(database: str, opened: Open) -> None:
    rng = np.random.default_rng(0)
    long = "".join(map(chr, rng.integers(0x4E00, 0x9FFF, 500)))
    with opened(database) as client:
        found = forecast(
            client,
            series_of(long, VALUES),
            series_of(long + "a", VALUES),
            series_of("a\0", VALUES),
            series_of("b", VALUES),
        )
        assert [each["in_ledger"] for each in found] == [True, False, False, True]
        assert counted(client, "forecasts", "kept") == 2


def test_forecasts_of_an_unloaded_model_are_counted(sqlite: str, opened: Open) -> None:
    with opened(sqlite) as client:
        assert client.ledger is not None
        messages: list[Any] = []
        remember = client.ledger.remember
        client.ledger.remember = lambda *message: messages.append(message)
        ask(client, "s0")
        client.ledger.remember = remember
        client.repository.unload("calibrated", "1")
        client.ledger.remember(*messages[0])
        assert counted(client, "forecasts", "dropped") == 1
