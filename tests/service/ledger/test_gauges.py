"""Gauges of the latest scores."""

from __future__ import annotations

import numpy as np

from foretell.service.ledger.gauges import Recent, read_recent
from foretell.service.ledger.store import Store
from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, START, Open, forecast, observe, series_of

TRUTH = np.zeros(24 * 12)
DAYS = int(START.astype("datetime64[D]").astype(np.int64))


def served_by(client: Client) -> dict[str, dict[str, str]]:
    return {"calibrated": {"1": client.repository.registry.find("calibrated").digest}}


def read(url: str, served: dict[str, dict[str, str]], today: int) -> Recent:
    store = Store(url)
    try:
        with store.read() as connection:
            return read_recent(connection, served, today)
    finally:
        store.close()


def test_windows_are_of_one_day_and_of_seven(database: str, opened: Open) -> None:
    with opened(database) as client:
        served = served_by(client)
        # A day has as large an error as its number.
        for day in range(10):
            first = 24 * day
            forecast(client, series_of("a", TRUTH[:CONTEXT] + day, first))
        observe(client, "a", TRUTH[:, None])
    recent = read(database, served, DAYS + 9)
    assert recent.latest == {("calibrated", "1"): (DAYS + 9) * 86_400}
    assert recent.scores["calibrated", "1", "day"]["mae"] == 9
    assert recent.scores["calibrated", "1", "week"]["mae"] == np.mean([3, 4, 5, 6, 7, 8, 9])
    for nothing in ({}, {"calibrated": {"1": "of another bundle"}}):
        assert read(database, nothing, DAYS + 9) == ({}, {})


def test_values_of_days_after_tomorrow_do_not_count(database: str, opened: Open) -> None:
    with opened(database) as client:
        served = served_by(client)
        for day in (0, 4):
            forecast(client, series_of("a", TRUTH[:CONTEXT] + day, 24 * day))
        observe(client, "a", TRUTH[:, None])
    for today, last in ((0, 0), (2, 0), (3, 4), (9, 4)):
        recent = read(database, served, DAYS + today)
        assert recent.latest == {("calibrated", "1"): (DAYS + last) * 86_400}
        assert recent.scores["calibrated", "1", "day"]["mae"] == last
