"""Days whose sums are computed anew, and how they are computed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sqlalchemy import inspect

from foretell.service.ledger import summing
from foretell.service.ledger.days import Days
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import add_up
from tests.service.ledger.conftest import CONTEXT, HOUR, START, Open, forecast, observe, series_of

HOURS = 24 * 70


def test_days_are_those_of_the_steps() -> None:
    months = np.array(
        [["2024-01-31", "2024-02-29", "2024-03-31"], ["1969-12-31", "1970-01-01", "1970-01-31"]]
    ).astype("datetime64[us]")
    hours = (START + np.array([[22, 23, 24], [24, 25, 26]]) * HOUR).astype("datetime64[us]")
    days = Days()
    days.add_times(np.array([1, 2]), months.view(np.int64))
    days.add_times(np.array([2, 3]), hours.view(np.int64))
    assert days.series == [1, 2, 3]
    assert days.of([1, 2, 3]) == {
        1: [19753, 19782, 19813],
        2: [-1, 0, 30, 19723, 19724],
        3: [19724],
    }


def test_sums_are_written_in_parts(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.arange(float(HOURS))
    with opened(sqlite) as client:
        for first in range(0, HOURS - CONTEXT, 24):
            forecast(client, series_of("a", truth[first : first + CONTEXT], first))
        observe(client, "a", truth[:, None])
    written: list[int] = []
    write = summing._write

    def look(connection: Any, store: Store, rows: list[dict[str, Any]]) -> None:
        written.append(len(rows))
        write(connection, store, rows)

    monkeypatch.setattr(summing, "_BYTES", 1)
    monkeypatch.setattr(summing, "_write", look)
    days = Days()
    days.add(1, ((START + np.arange(HOURS) * HOUR).astype("datetime64[us]")).view(np.int64))
    store = Store(sqlite)
    with store.write() as connection:
        assert add_up(connection, store, days) == {(1, 1)}
    store.close()
    # Spans of 32 days.
    assert written == [32, 32, 6]


def test_index_has_all_that_selects_the_forecasts_of_days(database: str) -> None:
    """Else the origins of all later forecasts are read from the table."""
    store = Store(database)
    store.open()
    with store.read() as connection:
        indexes = inspect(connection).get_indexes("forecasts")
    store.close()
    assert ["series", "ends", "origin"] in [each["column_names"] for each in indexes]
