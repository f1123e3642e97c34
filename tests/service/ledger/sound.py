"""Checks that the database of a ledger is whole and its sums are right."""

from __future__ import annotations

import numpy as np
from sqlalchemy import Connection, select, text

from foretell.service.ledger.days import Days
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import SELECT_FORECASTS, add_up, forecasts
from foretell.service.ledger.tables import FORECASTS, SUMS, TOTALS
from foretell.service.ledger.totals import add_up as total_of


def check(url: str) -> int:
    """Read every row, and compute all sums anew; returns the number of stored forecasts."""
    store = Store(url)
    try:
        with store.write() as connection:
            if store.is_sqlite:
                assert connection.execute(text("PRAGMA integrity_check")).scalar() == "ok"
                assert connection.execute(text("PRAGMA foreign_key_check")).all() == []
            count, days = _read_forecasts(connection)
            before = _sums(connection)
            for (configuration, namespace, day), sums in _totals(connection).items():
                total = total_of(connection, configuration, namespace, day)
                np.testing.assert_allclose(np.frombuffer(sums), np.frombuffer(total), rtol=1e-9)
            add_up(connection, store, days)
            after = _sums(connection)
        assert before.keys() <= after.keys()
        for key, sums in after.items():
            found = np.frombuffer(sums)
            # A day without a known value may have no sums.
            known = np.frombuffer(before[key]) if key in before else np.zeros_like(found)
            np.testing.assert_allclose(known, found, rtol=1e-9)
    finally:
        store.close()
    return count


def _read_forecasts(connection: Connection) -> tuple[int, Days]:
    """The number of forecasts, and the days of their steps."""
    count, days = 0, Days()
    rows = connection.execute(SELECT_FORECASTS.add_columns(FORECASTS.c.series)).all()
    for row in rows:
        [stored] = forecasts([row])
        bodies = stored.bodies
        assert np.isfinite(bodies.mean).all()
        assert (np.diff(bodies.times) > 0).all()
        days.add_times(np.array([row.series]), bodies.times)
        count += 1
    return count, days


def _sums(connection: Connection) -> dict[tuple[int, int, int], bytes]:
    rows = connection.execute(
        select(SUMS.c.series, SUMS.c.day, SUMS.c.configuration, SUMS.c.sums)
    ).all()
    return {tuple(row[:3]): row.sums for row in rows}


def _totals(connection: Connection) -> dict[tuple[int, str, int], bytes]:
    """The totals that are not outdated."""
    columns = (TOTALS.c.configuration, TOTALS.c.namespace, TOTALS.c.day)
    rows = connection.execute(select(*columns, TOTALS.c.sums)).all()
    return {tuple(row[:3]): row.sums for row in rows if row.sums}
