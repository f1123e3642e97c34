"""Slow reads end at their deadline, and keep nothing else from the database."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from foretell.service.errors import DeadlineExceededError
from foretell.service.ledger import ledger, writer
from tests.service.client import Client
from tests.service.ledger.conftest import CONTEXT, Open, forecast, observe, scores, series_of
from tests.support.waiting import until

# Counts up without an end.
ENDLESS = text(
    "WITH RECURSIVE counted(number) AS (SELECT 1 UNION ALL SELECT number + 1 FROM counted) "
    "SELECT max(number) FROM counted"
)


def test_writer_goes_on_during_slow_reads(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "_CHORES_SECONDS", 0.1)
    with opened(sqlite) as client, ExitStack() as reads:
        forecast(client, series_of("a", np.zeros(CONTEXT)))
        # Three requests read, and the learner.
        for _ in range(4):
            reads.enter_context(client.ledger._store.read())
        before = client.ledger._recent
        until(lambda: client.ledger._recent is not before)
        assert observe(client, "a", np.zeros((CONTEXT + 1, 1)))["new"] == CONTEXT + 1
        assert "foretell_ledger_up 1" in client.get("/metrics").text


def test_read_ends_at_its_deadline(
    database: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(database) as client:
        forecast(client, series_of("a", np.zeros(CONTEXT)))
        observe(client, "a", np.zeros((CONTEXT + 1, 1)))

        def slow(connection: Any, *_: object) -> Any:
            return connection.execute(ENDLESS).all()

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "accuracy", slow)
            asked = [{"model": "calibrated"}, "total", 1, time.monotonic() + 0.3]
            with pytest.raises(DeadlineExceededError):
                client.ledger.call("accuracy", asked, {})
        assert [row["count"] for row in scores(client)] == [1]


def test_client_gets_504_while_other_reads_take_all_turns(
    sqlite: str, opened: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = threading.Event()

    def wait(*_: Any) -> Any:
        go_on.wait(20)
        return b"", {}

    with opened(sqlite) as client:
        forecast(client, series_of("a", np.zeros(CONTEXT)))
        monkeypatch.setitem(client.ledger._methods, "accuracy", wait)
        for _ in range(4):
            answer = ask(client, 200)
            assert answer.status_code == 504, answer.text
            assert answer.json()["error"]["type"] == "deadline_exceeded"
        # Writing needs no turn of those that read.
        path = "/ledger/series?name=a"
        assert client.request("DELETE", path).json() == {"series": 1}
        go_on.set()


def ask(client: Client, milliseconds: int) -> Any:
    headers = {"X-Timeout-Ms": str(milliseconds)}
    return client.request("GET", "/models/calibrated/accuracy", headers=headers)
