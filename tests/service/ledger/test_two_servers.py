"""Two servers on one PostgreSQL database."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import numpy as np
import psycopg
import pytest
from sqlalchemy import text

from foretell.service.engine.learned import Key
from foretell.service.ledger.changes import Changes
from foretell.service.ledger.ledger import DatabaseLedger
from tests.service.client import Client
from tests.service.kserve import kserve_types
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
from tests.service.ledger.sound import check
from tests.support.postgresql import Server
from tests.support.waiting import until

SECONDS = time.time
TRUTH = np.random.default_rng(0).normal(size=60)


@pytest.fixture
def shared(server: Server) -> Iterator[str]:
    """The URL of an empty database."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE shared")
    yield server.url.replace("/postgres?", "/shared?")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP DATABASE shared")


def test_both_write_the_same_series_and_days(shared: str, opened: Open) -> None:
    origins = 12
    with ExitStack() as stack:
        clients = [stack.enter_context(opened(shared)) for _ in range(2)]

        def serve(client: Client, first: int) -> None:
            """Every other origin; the values that both write are the same."""
            for origin in range(first, origins, 2):
                inputs = [
                    series_of(name, TRUTH[origin : origin + CONTEXT], origin) for name in "ab"
                ]
                forecast(client, *inputs)
                for name in "ab":
                    observe(client, name, TRUTH[: origin + CONTEXT, None])

        threads = [
            threading.Thread(target=serve, args=(client, first))
            for first, client in enumerate(clients)
        ]
        # The threads would import KServe's classes at the same time, which breaks them.
        kserve_types()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for name in "ab":
            observe(clients[0], name, TRUTH[:, None])
        for client in clients:
            [row] = scores(client)
            assert row["count"] == 2 * origins * HORIZON
            assert counted(client, "forecasts", "kept") == origins
    assert check(shared) == 2 * origins


def test_series_deleted_by_the_other_server(shared: str, opened: Open) -> None:
    with opened(shared) as first, opened(shared) as second:
        for client in (first, second):
            forecast(client, series_of("a", TRUTH[:CONTEXT]), series_of("b", TRUTH[:CONTEXT]))
            observe(client, "a", TRUTH[:30, None])
        assert first.request("DELETE", "/ledger/series?name=a").json() == {"series": 1}
        # The second one remembers the ids of the series and its channel.
        observe(second, "a", TRUTH[:30, None])
        assert first.request("DELETE", "/ledger/series?name=a").json() == {"series": 1}
        forecast(second, series_of("a", TRUTH[2 : 2 + CONTEXT], 2))
        assert counted(second, "forecasts", "failed") == 0
        observe(second, "a", TRUTH[:30, None])
        for client in (first, second):
            [row] = scores(client)
            assert row["count"] == HORIZON
            assert "foretell_ledger_up 1" in client.get("/metrics").text
    assert check(shared) == 2


def test_intervals_learn_what_the_other_server_writes(shared: str, opened: Open) -> None:
    with opened(shared) as first, opened(shared) as second:
        assert isinstance(second.ledger, DatabaseLedger)
        learner, learned = second.ledger.learner, second.ledger.learned
        learner.duty, learner.poll_seconds = 1.0, 0.0
        for origin in range(5):
            forecast(first, series_of("a", TRUTH[origin : origin + CONTEXT], origin))
        observe(first, "a", TRUTH[:, None])
        key = Key("calibrated", "1", "", "a")
        until(lambda: key in dict(learned.items()))
        assert dict(learned.items())[key].origins == 5
        first.request("DELETE", "/ledger/series?name=a")
        until(lambda: learned.items() == [])


def test_intervals_learn_what_a_server_with_another_clock_writes(
    shared: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(shared) as first, opened(shared) as second:
        learner, learned = second.ledger.learner, second.ledger.learned
        learner.duty, learner.poll_seconds = 1.0, 0.0
        for name, seconds in (("ahead", 600), ("right", 0), ("behind", -600)):
            with monkeypatch.context() as patch:
                patch.setattr(time, "time", lambda seconds=seconds: SECONDS() + seconds)
                forecast(first, series_of(name, TRUTH[:CONTEXT]))
                observe(first, name, TRUTH[:30, None])
            key = Key("calibrated", "1", "", name)
            until(lambda key=key: key in dict(learned.items()))


def test_each_change_is_read_once(shared: str, opened: Open) -> None:
    with opened(shared) as client:
        forecast(client, series_of("a", TRUTH[:CONTEXT]))
        observe(client, "a", TRUTH[:30, None])
        store = client.ledger._store
        changes = Changes(store)

        def read() -> int:
            with store.read() as connection:
                return len(changes.read(connection))

        def wait_for_the_next_second() -> None:
            with store.read() as connection:
                now = store.now(connection)
                until(lambda: store.now(connection) > now)

        wait_for_the_next_second()
        assert [read() for _ in range(3)] == [1, 0, 0]
        with store.write() as connection:
            connection.execute(
                text(
                    "INSERT INTO series (namespace, name, frequency) "
                    "SELECT '', 's' || number, 'h' FROM generate_series(1, 3000) AS number"
                )
            )
            connection.execute(
                text(
                    "INSERT INTO sums (series, day, configuration, written, sums) "
                    "SELECT id, 1, 1, :now, '' FROM series WHERE name LIKE 's%'"
                ),
                {"now": store.now(connection)},
            )
        wait_for_the_next_second()
        assert [read() for _ in range(3)] == [3000, 0, 0]
        # The clock of the database was set back.
        changes._since += 1000
        assert read() == 0
        observe(client, "a", -TRUTH[:30, None])
        assert read() > 0


def test_series_that_was_deleted_by_the_other_server_and_forecast_again(
    shared: str, opened: Open
) -> None:
    with opened(shared) as first, opened(shared) as second:
        learner, learned = second.ledger.learner, second.ledger.learned
        learner.duty, learner.poll_seconds = 1.0, 0.0
        forecast(first, series_of("a", TRUTH[:CONTEXT]))
        observe(first, "a", TRUTH[:30, None])
        key = Key("calibrated", "1", "", "a")
        until(lambda: key in dict(learned.items()))
        # Between two looks.
        learner.poll_seconds = 1e9
        first.request("DELETE", "/ledger/series?name=a")
        forecast(first, series_of("a", TRUTH[:CONTEXT]))
        learner.poll_seconds = 0.0
        until(lambda: learned.items() == [])
