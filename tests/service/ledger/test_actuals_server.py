"""`POST /actuals` and `DELETE /ledger/series` with keys, lost databases and several processes."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from tests.service.client import Client
from tests.service.ledger.conftest import (
    CONTEXT,
    HORIZON,
    Open,
    series_of,
)
from tests.support.postgresql import Server as Database
from tests.support.postgresql import postgresql
from tests.support.process import Server
from tests.support.waiting import until

KEYS = {
    "api_keys": "reader-a a,reader-b b,reader",
    "actuals_keys": "writer-a a,writer-b b",
    "ledger_keys": "scorer-a a,scorer-b b",
    "admin_keys": "boss",
}


def ask(client: Client, method: str, path: str, key: str = "", **options: Any) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return client.request(method, path, headers=headers, **options)


def body_of(*values: float, rows: int = CONTEXT + HORIZON) -> dict[str, Any]:
    """A request with a series `sensor_1` for each value, all of whose rows have it."""
    inputs = [series_of("sensor_1", np.full(rows, value)) for value in values]
    return {"model": "calibrated", "inputs": inputs}


def maes(client: Client, key: str, query: str = "") -> list[float]:
    answer = ask(client, "GET", f"/models/calibrated/accuracy{query}", key)
    assert answer.status_code == 200, answer.text
    return [row["mae"] for row in answer.json()["rows"]]


def test_only_keys_for_actual_values_write(sqlite: str, opened: Open) -> None:
    with opened(sqlite, **KEYS) as client:
        sent = body_of(1.0)
        statuses = {
            key: ask(client, "POST", "/actuals", key, json=sent).status_code
            for key in ("", "unknown", "reader", "scorer-a", "writer-a", "boss")
        }
        assert statuses == {
            "": 401,
            "unknown": 401,
            "reader": 403,
            "scorer-a": 403,
            "writer-a": 200,
            "boss": 200,
        }
        assert ask(client, "POST", "/forecast", "writer-a", json=sent).status_code == 403


def test_series_of_two_tenants_are_two(sqlite: str, opened: Open) -> None:
    with opened(sqlite, **KEYS) as client:
        for number, tenant in enumerate("ab", 1):
            history = body_of(0.0, rows=CONTEXT)
            assert ask(client, "POST", "/forecast", f"reader-{tenant}", json=history).is_success
            answer = ask(client, "POST", "/actuals", f"writer-{tenant}", json=body_of(number))
            [content] = answer.json()["outputs"][0]["content"]
            assert content["new"] == CONTEXT + HORIZON
        assert maes(client, "scorer-a") == [1.0]
        assert maes(client, "scorer-b") == [2.0]
        assert maes(client, "boss", "?namespace=b") == [2.0]
        assert maes(client, "boss") == [1.5]
        # Each key deletes in its namespace; admin keys in any.
        path = "/ledger/series?name=sensor_1"
        assert ask(client, "DELETE", path, "boss").json() == {"series": 0}
        answer = ask(client, "DELETE", f"{path}&namespace=b", "writer-a")
        assert (answer.status_code, answer.json()["error"]["param"]) == (422, "namespace")
        assert ask(client, "DELETE", path, "reader").status_code == 403
        assert ask(client, "DELETE", f"{path}&namespace=a", "writer-a").json() == {"series": 1}
        assert maes(client, "boss") == [2.0]
        assert ask(client, "DELETE", f"{path}&namespace=b", "boss").json() == {"series": 1}
        assert maes(client, "boss") == []


@pytest.fixture
def database() -> Iterator[Database]:
    """A PostgreSQL server that may be ended."""
    with postgresql() as running:
        yield running


@pytest.mark.parametrize("waits", [False, True], ids=["nothing waits", "forecasts wait"])
def test_lost_database_is_answered_with_a_time_to_retry(
    database: Database, opened: Open, *, waits: bool
) -> None:
    with opened(database.url) as client:
        assert client.request("POST", "/actuals", json=body_of(1.0)).is_success
        database.kill()
        if waits:
            assert client.forecast(body_of(0.0, rows=CONTEXT)).is_success
            assert client.ledger is not None
            until(lambda: b"foretell_ledger_up 0" in b"".join(client.ledger.gauges()))
        answer = client.request("POST", "/actuals", json=body_of(2.0))
        assert answer.status_code == 503
        assert "does not answer" in answer.json()["error"]["message"]
        assert int(answer.headers["retry-after"]) > 0
        database.start()

        def is_written() -> bool:
            return client.request("POST", "/actuals", json=body_of(2.0)).is_success

        until(is_written)
        [content] = client.request("POST", "/actuals", json=body_of(2.0)).json()["outputs"][0][
            "content"
        ]
        assert content["same"] == CONTEXT + HORIZON


def test_every_worker_takes_actual_values(repository: Path, tmp_path: Path, sqlite: str) -> None:
    """Each request comes through a connection of its own, to any of the workers."""
    with Server(repository, tmp_path / "log", workers=2, ledger=sqlite) as server:

        def send(number: int) -> None:
            name = f"s{number}"
            history = series_of(name, np.zeros(CONTEXT))
            truth = series_of(name, np.full(CONTEXT + HORIZON, float(number)))
            for path, entry in (("forecast", history), ("actuals", truth)):
                body = {"model": "calibrated", "inputs": [entry]}
                answer = httpx.post(f"{server.url}/{path}", json=body, timeout=60)
                assert answer.status_code == 200, answer.text

        with ThreadPoolExecutor(8) as pool:
            [*pool.map(send, range(24))]

        def counts() -> dict[str, int]:
            url = f"{server.url}/models/calibrated/accuracy?by=series"
            rows = httpx.get(url, timeout=60).json()["rows"]
            return {row["series"]: (row["count"], row["mae"]) for row in rows}

        wanted = {f"s{number}": (HORIZON, float(number)) for number in range(24)}
        until(lambda: counts() == wanted)
        assert all(counts() == wanted for _ in range(8))
