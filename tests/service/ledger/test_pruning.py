"""Old forecasts and values are deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from sqlalchemy import Connection, func, select, update
from sqlalchemy.sql.expression import Executable

from foretell.service.ledger import deleting, ledger, writer
from foretell.service.ledger.deleting import edge_of, prune_forecasts, prune_values
from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import ACTUALS, FORECASTS, METADATA, SERIES, SUMS
from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, START, Open, forecast, observe, scores, series_of
from tests.support.waiting import until

TRUTH = np.arange(60.0)
# Later than the longest run of the tests ends.
FUTURE = int(time.time()) + 1_000_000
OLD = FUTURE - 2_000_000


class Clock:
    """The module `time` at a fixed time."""

    def __init__(self, now: np.datetime64) -> None:
        self._now = float(now.astype("datetime64[s]").astype(np.int64))

    def time(self) -> float:
        return self._now


@contextmanager
def writing(url: str) -> Iterator[tuple[Connection, Store]]:
    """A transaction beside the server."""
    store = Store(url)
    try:
        with store.write() as connection:
            yield connection, store
    finally:
        store.close()


def execute(url: str, *statements: Executable) -> None:
    with writing(url) as (connection, _):
        for statement in statements:
            connection.execute(statement)


def rows(url: str) -> dict[str, int]:
    """Numbers of rows by table."""
    store = Store(url)
    try:
        with store.read() as connection:
            return {
                each.name: connection.execute(select(func.count()).select_from(each)).scalar_one()
                for each in METADATA.sorted_tables
            }
    finally:
        store.close()


def replay(client: Client, name: str, origins: range) -> None:
    inputs = [series_of(name, TRUTH[origin : origin + CONTEXT], origin) for origin in origins]
    for each in inputs:
        forecast(client, each)


def test_sums_stay_when_forecasts_are_deleted(database: str, opened: Open) -> None:
    with opened(database) as client:
        replay(client, "a", range(10))
        observe(client, "a", TRUTH[:20, None] + 1)
        before = scores(client, "?by=step")
        with writing(database) as (connection, _):
            assert not prune_forecasts(connection, FUTURE)
        assert rows(database)["forecasts"] == 0
        assert scores(client, "?by=step") == before
        # Late values of these days, and forecasts of them, have no complete day to add up.
        observe(client, "a", TRUTH[:22, None])
        replay(client, "a", range(10, 12))
        assert scores(client, "?by=step") == before
        # Later days are added up.
        replay(client, "a", range(40, 41))
        observe(client, "a", TRUTH[:, None])
        [old, new] = scores(client, "?by=day")
        assert (old["day"], old["count"]) == ("2024-01-01", sum(row["count"] for row in before))
        assert (new["day"], new["count"]) == ("2024-01-03", 4)


def test_forecasts_are_deleted_in_parts(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "_MOST", 4)
    with opened(sqlite) as client:
        replay(client, "a", range(10))
    left = []
    for _ in range(3):
        with writing(sqlite) as (connection, _store):
            more = prune_forecasts(connection, FUTURE)
        left.append((rows(sqlite)["forecasts"], more))
    assert left == [(6, True), (2, True), (0, False)]


def test_old_values_and_empty_series_are_deleted(
    database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "_MOST_SERIES", 2)
    with opened(database) as client:
        for name in ("a", "b", "c", "d", "e"):
            replay(client, name, range(2))
            observe(client, name, TRUTH[:20, None])
        new = select(SERIES.c.id).where(SERIES.c.name == "c").scalar_subquery()
        execute(
            database,
            update(ACTUALS).values(written=1),
            update(SUMS).values(written=1).where(SUMS.c.series != new),
            update(FORECASTS).values(made=1).where(FORECASTS.c.series != new),
        )
        after: int | None = 0
        while after is not None:
            with writing(database) as (connection, store):
                prune_forecasts(connection, 2)
                after = prune_values(connection, store, 2, after)
        left = rows(database)
        assert (left["series"], left["channels"], left["actuals"]) == (1, 0, 0)
        assert (left["forecasts"], left["sums"]) == (2, 1)
        assert [row["series"] for row in scores(client, "?by=series")] == ["c"]
        [total] = scores(client)
        assert total["count"] == 8


def test_server_deletes_what_is_older_than_its_days(
    database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_CHORES_SECONDS", 0.05)
    monkeypatch.setattr(ledger, "_VALUES_SECONDS", 0.0)
    with opened(database, ledger_days=1) as client:
        replay(client, "a", range(3))
        observe(client, "a", TRUTH[:20, None])
        replay(client, "b", range(3))
        old = select(SERIES.c.id).where(SERIES.c.name == "a").scalar_subquery()
        execute(
            database,
            update(FORECASTS).values(made=1).where(FORECASTS.c.series == old),
            update(ACTUALS).values(written=1),
            update(SUMS).values(written=1),
        )
        until(lambda: (left := rows(database))["series"] == 1 and left["totals"] == 0)
        assert rows(database)["forecasts"] == 3
        assert scores(client) == []
        # The name is not bound to the deleted series.
        replay(client, "a", range(3))
        observe(client, "a", TRUTH[:20, None])
        [row] = scores(client)
        assert row["count"] == 3 * 4


def test_server_makes_room(sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(sqlite) as client:
        replay(client, "a", range(20))
    numbers = [*range(20)]
    with writing(sqlite) as (connection, _):
        ids = [*connection.execute(select(FORECASTS.c.id).order_by(FORECASTS.c.id)).scalars()]
        for number, one in zip(numbers, ids, strict=True):
            made = update(FORECASTS).values(made=OLD + number)
            connection.execute(made.where(FORECASTS.c.id == one))
    monkeypatch.setattr(writer, "_CHORES_SECONDS", 0.05)
    with opened(sqlite, ledger_bytes=1):
        until(lambda: rows(sqlite)["forecasts"] == 0)
    with opened(sqlite) as client:
        replay(client, "a", range(3))


def test_edge_is_after_a_tenth_of_the_time(database: str, opened: Open) -> None:
    with opened(database) as client:
        replay(client, "a", range(2))
        observe(client, "a", TRUTH[:20, None])
    now = int(time.time())
    with writing(database) as (connection, store):
        assert edge_of(connection, store, 1 << 40) is None
    until(lambda: size_of(database) > 1)

    def edge(made: int, observed: int, summed: int) -> int:
        execute(
            database,
            update(FORECASTS).values(made=now - made),
            update(ACTUALS).values(written=now - observed),
            update(SUMS).values(written=now - summed),
        )
        with writing(database) as (connection, store):
            found = edge_of(connection, store, 1)
        assert found is not None
        return found - now

    # The test may take some seconds.
    assert -9000 <= edge(10_000, 0, 0) < -8900
    assert -9000 <= edge(0, 10_000, 0) < -8900
    assert -9000 <= edge(0, 0, 10_000) < -8900
    # A clock was set back.
    assert edge(-5000, -6000, -7000) == 5001


def test_actual_values_that_fill_the_database_make_room(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(sqlite) as client:
        observe(client, "old", np.zeros((20_000, 1)))
        replay(client, "a", range(5))
    execute(sqlite, update(ACTUALS).values(written=OLD))
    monkeypatch.setattr(writer, "_CHORES_SECONDS", 0.05)
    limit = size_of(sqlite) // 2
    with opened(sqlite, ledger_bytes=limit):
        until(lambda: size_of(sqlite) <= limit)
    assert (rows(sqlite)["actuals"], rows(sqlite)["forecasts"]) == (0, 5)


def size_of(url: str) -> int:
    store = Store(url)
    try:
        with store.read() as connection:
            return store.bytes(connection)
    finally:
        store.close()


def test_size_falls_when_forecasts_are_deleted(database: str, opened: Open) -> None:
    with opened(database) as client:
        for part in range(10):
            inputs = [series_of(f"s{part}-{number}", TRUTH[:CONTEXT]) for number in range(100)]
            forecast(client, *inputs)

    until(lambda: size_of(database) > 100_000)
    full = size_of(database)
    with writing(database) as (connection, _):
        while prune_forecasts(connection, FUTURE):
            pass
    until(lambda: size_of(database) < full / 2)


def test_days_after_today_are_added_up_although_longer_forecasts_were_deleted(
    database: str, opened: Open
) -> None:
    with opened(database) as client:
        replay(client, "a", range(1))
        # One with a wrong year, and one that reaches far beyond the last actual value.
        forecast(client, {**series_of("a", TRUTH[:CONTEXT]), "start_timestamp": "2924-01-01"})
        observe(client, "a", TRUTH[: CONTEXT + 1, None])
        execute(database, update(FORECASTS).values(ends=10**17))
        with writing(database) as (connection, _):
            assert not prune_forecasts(connection, FUTURE)
        replay(client, "a", range(40, 41))
        observe(client, "a", TRUTH[:, None])
        [old, new] = scores(client, "?by=day")
        assert (old["day"], old["count"]) == ("2024-01-01", 1)
        assert (new["day"], new["count"]) == ("2024-01-03", 4)


def test_today_is_added_up_although_some_of_its_forecasts_were_deleted(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deleting, "time", Clock(START))
    with opened(sqlite) as client:
        replay(client, "a", range(2))
        observe(client, "a", TRUTH[: CONTEXT + 1, None])
        with writing(sqlite) as (connection, _):
            connection.execute(update(FORECASTS).values(made=1).where(FORECASTS.c.id == 1))
            prune_forecasts(connection, 2)
        assert rows(sqlite)["forecasts"] == 1
        observe(client, "a", TRUTH[:20, None])
        [row] = scores(client)
        assert row["count"] == 4


def test_forecast_made_by_mistake_for_another_year_freezes_no_day(
    sqlite: str, opened: Open
) -> None:
    with opened(sqlite) as client:
        forecast(client, {**series_of("a", TRUTH[:CONTEXT]), "start_timestamp": "2924-01-01"})
        replay(client, "a", range(2))
        observe(client, "a", TRUTH[: CONTEXT + 1, None])
        with writing(sqlite) as (connection, _):
            connection.execute(update(FORECASTS).values(made=1).where(FORECASTS.c.id == 1))
            prune_forecasts(connection, 2)
        observe(client, "a", TRUTH[:20, None])
        [row] = scores(client)
        assert row["count"] == 8
