"""Statements that write many forecasts."""

from __future__ import annotations

import pytest
from sqlalchemy import select
from sqlalchemy.exc import IntegrityError

from foretell.service.ledger import inserting
from foretell.service.ledger.ids import Ids
from foretell.service.ledger.inserting import Row, upsert
from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import FORECASTS


@pytest.mark.parametrize("count", [1, 63, 64, 200])
def test_rows_are_written_and_replaced(database: str, count: int) -> None:
    store = Store(database)
    store.open()
    columns = [FORECASTS.c[name] for name in Row._fields]
    statement = select(*columns).order_by(FORECASTS.c.origin)
    with store.write() as connection:
        series = Ids(store).series(connection, [("", "a", "h")])["", "a", "h"]
        rows = [
            Row(3, series, -origin, 4, origin, f"{origin}\"'{{}},", 5, 6, origin.to_bytes(4))
            for origin in range(count, 0, -1)
        ]
        assert upsert(connection, store, rows) == len(rows)
        assert [Row(*row) for row in connection.execute(statement)] == rows
        # Other columns may be the same.
        again = [row._replace(configuration=7, made=9, body=row.body[::-1]) for row in rows[:70]]
        assert upsert(connection, store, again) == len(again)
        assert [Row(*row) for row in connection.execute(statement)] == again + rows[70:]
    store.close()


def test_large_bodies_are_written_in_parts(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inserting, "_BYTES", 10)
    store = Store(database)
    store.open()
    with store.write() as connection:
        series = Ids(store).series(connection, [("", "a", "h")])["", "a", "h"]
        rows = [Row(1, series, origin, 1, 1, "a", 1, 1, b"%03d" % origin) for origin in range(8)]
        upsert(connection, store, rows)
        found = select(FORECASTS.c.body).order_by(FORECASTS.c.origin)
        assert [*connection.execute(found).scalars()] == [row.body for row in rows]
        huge = [row._replace(body=bytes(20)) for row in rows]
        upsert(connection, store, huge)
        assert {*connection.execute(found).scalars()} == {bytes(20)}
    store.close()


def test_unknown_series_is_refused(database: str) -> None:
    """Another server may have deleted it."""
    store = Store(database)
    store.open()
    with pytest.raises(IntegrityError), store.write() as connection:
        upsert(connection, store, [Row(1, 99, 0, 1, 1, "a", 1, 1, b"a")])
    store.close()
