"""Forecasts of one origin that are written together."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from foretell.service.ledger.keeping import Record
from foretell.service.ledger.ledger import DatabaseLedger
from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, Open, counted, forecast, observe, series_of

QUANTILES = {"quantiles": [0.3]}


def written_together(client: Client, *bodies: dict[str, Any]) -> list[float]:
    """The last values of the histories of the forecasts that stay, the oldest first."""
    ledger = client.ledger
    assert isinstance(ledger, DatabaseLedger)
    records: list[Record] = []
    put, ledger._writer.put = ledger._writer.put, records.append
    for body in bodies:
        answer = client.forecast({"model": "calibrated", **body})
        assert answer.status_code == 200, answer.text
    ledger._writer.put = put
    with ledger._store.write() as connection:
        ledger._write(connection, records)
    found = client.get("/models/calibrated/trajectories?series=a").json()["forecasts"]
    return [each["mean"][0][0] for each in found]


def body(value: float, first: int = 0, **options: Any) -> dict[str, Any]:
    return {"inputs": [series_of("a", np.full(CONTEXT, value), first)], "options": options}


def test_last_forecast_of_an_origin_stays(database: str, opened: Open) -> None:
    with opened(database) as client:
        assert written_together(client, body(1), body(2, **QUANTILES), body(3)) == [3]
        assert written_together(client, body(4), body(5), body(6, **QUANTILES)) == [6]
        assert written_together(client, body(7, 1, horizon=2), body(8), body(9, 1)) == [8, 9]


@pytest.mark.parametrize("together", [True, False])
def test_no_forecast_replaces_one_whose_future_is_in_a_history(
    database: str, opened: Open, together: bool
) -> None:
    bodies = [body(1), body(2, 2), body(3), body(4, 2), body(5, 1)]
    with opened(database, ledger_learn="requests") as client:
        if not together:
            written_together(client, bodies.pop(0))
        assert written_together(client, *bodies) == [1, 5, 4]


def test_histories_teach_nothing_without_the_setting(database: str, opened: Open) -> None:
    with opened(database) as client:
        assert written_together(client, body(1), body(2, 2), body(3)) == [3, 2]


def test_late_forecasts_are_counted(database: str, opened: Open) -> None:
    with opened(database) as client:
        for name in ("late", "late", "other"):
            forecast(client, series_of(name, np.zeros(CONTEXT)))
            observe(client, "late", np.ones((CONTEXT + 1, 1)))
        assert counted(client, "forecasts", "kept") == 2
        assert counted(client, "forecasts", "late") == 1
