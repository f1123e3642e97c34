"""The queue and the thread that writes."""

from __future__ import annotations

import logging
import sqlite3
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError, OperationalError

from foretell.service.errors import NotReadyError
from foretell.service.ledger import writer as module
from foretell.service.ledger.keeping import Record
from foretell.service.ledger.store import Store
from foretell.service.ledger.writer import Writer
from foretell.service.metrics import LEDGER_FORECASTS, Metrics
from tests.support.waiting import until

Start = Callable[..., Writer]


class Database:
    """Stands for the tables that a writer fills.

    Attributes:
        written: Names of the written forecasts.
        errors: Makers of errors of names, raised instead of writing them.
        error: Makes the error of every transaction.
        gate: Transactions wait for it.
    """

    def __init__(self) -> None:
        self.written: list[str] = []
        self.errors: dict[str, Callable[[], Exception]] = {}
        self.error: Callable[[], Exception] | None = None
        self.gate = threading.Event()
        self.gate.set()
        self.tries = 0

    def write(self, _: Connection, records: list[Record]) -> int:
        self.tries += 1
        assert self.gate.wait(60)
        names = [name for record in records for name in record.message.names]
        for error in (self.error, *(self.errors.get(name) for name in names)):
            if error is not None:
                raise error()
        self.written.extend(names)
        return 0

    def work(self, _: Connection) -> str:
        if self.error is not None:
            raise self.error()
        return "done"


def record(name: str, values: int = 1) -> Record:
    message = SimpleNamespace(names=[name])
    return cast("Record", SimpleNamespace(message=message, arrays={"forecast": np.zeros(values)}))


def lost() -> OperationalError:
    error = sqlite3.OperationalError("unable to open")
    error.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
    return OperationalError("INSERT", {}, error)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
def start(
    sqlite: str, database: Database, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Start]:
    monkeypatch.setattr(module, "_RETRY_SECONDS", (0.01,))
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.01)
    store = Store(sqlite)
    writers: list[Writer] = []

    def begin(most_bytes: int = 1 << 20, **hooks: Any) -> Writer:
        own = {"write": database.write, "chores": lambda: iter(())}
        own |= {"committed": lambda: None, "failed": lambda: None}
        writers.append(Writer(store, metrics, most_bytes, **(own | hooks)))
        return writers[-1]

    yield begin
    database.error = None
    database.gate.set()
    for writer in writers:
        writer.close()
    store.close()


def counted(metrics: Metrics, outcome: str) -> float:
    return metrics.counts.count(LEDGER_FORECASTS, outcome)


def test_full_queue_drops_and_warns_once(
    start: Start, database: Database, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    database.gate.clear()
    writer = start(most_bytes=10_000)
    for number in range(20):
        writer.put(record(f"s{number}"))
    assert writer.full
    assert writer.forecasts == 5
    assert counted(metrics, "dropped") == 15
    warnings = [each for each in caplog.records if "queue of the ledger" in each.message]
    assert len(warnings) == 1
    database.gate.set()
    until(lambda: writer.forecasts == 0)
    assert not writer.full
    assert database.written == [f"s{number}" for number in range(5)]
    assert writer.bytes == 0


def test_record_larger_than_the_queue_is_kept_when_nothing_waits(
    start: Start, database: Database
) -> None:
    writer = start(most_bytes=1000)
    assert not writer.full
    writer.put(record("large", 10_000))
    until(lambda: database.written == ["large"])


def test_close_writes_what_waits(start: Start, database: Database) -> None:
    writer = start(most_bytes=1 << 24)
    names = [f"s{number}" for number in range(2000)]
    for name in names:
        writer.put(record(name))
    writer.close()
    assert database.written == names


def test_close_counts_what_a_lost_database_did_not_take(
    start: Start,
    database: Database,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_LAST_SECONDS", 0.2)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.05)
    database.error = lost
    writer = start()
    writer.put(record("a"))
    until(lambda: not writer.answers)
    tries = database.tries
    writer.close()
    assert counted(metrics, "dropped") == 1
    assert "1 forecasts were not written" in caplog.text
    # It did not try as fast as it could.
    assert database.tries - tries < 20
    writer.put(record("b"))
    assert counted(metrics, "dropped") == 2


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(ValueError, id="ours"),
        pytest.param(
            lambda: IntegrityError("INSERT", {}, sqlite3.IntegrityError("not null")),
            id="a constraint",
        ),
    ],
)
def test_forecasts_at_fault_do_not_stop_others(
    error: Callable[[], Exception],
    start: Start,
    database: Database,
    metrics: Metrics,
    caplog: pytest.LogCaptureFixture,
) -> None:
    database.gate.clear()
    writer = start()
    for name in ("a", "bad", "b", "worse", "c"):
        writer.put(record(name))
    database.errors = {"bad": error, "worse": error}
    database.gate.set()
    until(lambda: writer.forecasts == 0)
    assert database.written == ["a", "b", "c"]
    assert counted(metrics, "failed") == 2
    said = [each for each in caplog.records if "could not be written" in each.message]
    assert len(said) == 1


def test_lost_database_loses_nothing_that_fits(
    start: Start, database: Database, metrics: Metrics, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    database.error = lost
    writer = start()
    for name in ("a", "b", "c"):
        writer.put(record(name))
    until(lambda: database.tries > 5)
    assert not writer.answers
    assert writer.forecasts == 3
    database.error = None
    until(lambda: database.written == ["a", "b", "c"])
    until(lambda: writer.answers)
    assert counted(metrics, "kept") == 3
    said = [each.message for each in caplog.records if each.name == module.__name__]
    assert said == [
        "the database of the ledger does not answer: unable to open",
        "the database of the ledger answers again",
    ]


def test_tasks_fail_while_the_database_is_lost(start: Start, database: Database) -> None:
    database.error = lost
    writer = start()
    writer.put(record("a"))
    for _ in range(3):
        with pytest.raises(NotReadyError, match="does not answer"):
            writer.run(database.work)
    database.error = None
    until(lambda: writer.answers)
    assert writer.run(database.work) == "done"


def test_lost_database_that_answers_again_is_noticed_without_forecasts(
    start: Start, database: Database
) -> None:
    database.error = lost
    writer = start()
    with pytest.raises(NotReadyError):
        writer.run(database.work)
    database.error = None
    until(lambda: writer.answers)


def test_tasks_do_not_wait_for_ever(
    start: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TASK_SECONDS", 0.05)
    database.gate.clear()
    writer = start()
    writer.put(record("a"))
    until(lambda: database.tries > 0)
    calls: list[int] = []
    with pytest.raises(NotReadyError, match="busy"):
        writer.run(lambda _: calls.append(1))
    database.gate.set()
    monkeypatch.setattr(module, "_TASK_SECONDS", 60)
    assert writer.run(database.work) == "done"
    # Its caller has received the error.
    assert calls == []


def test_few_tasks_may_wait(
    start: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TASKS", 2)
    database.gate.clear()
    writer = start()
    writer.put(record("a"))
    results: list[str] = []
    threads = [
        threading.Thread(target=lambda: results.append(writer.run(database.work))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    until(lambda: len(writer._waiting) == 3)
    with pytest.raises(NotReadyError, match="too many"):
        writer.run(database.work)
    database.gate.set()
    for thread in threads:
        thread.join(60)
    assert results == ["done", "done"]


def test_forgotten_rows_are_found_again(start: Start, database: Database) -> None:
    """Another server may delete rows whose ids this one remembers."""
    gone = sqlite3.IntegrityError("foreign key")
    database.errors = {"a": lambda: IntegrityError("INSERT", {}, gone)}
    writer = start(failed=database.errors.clear)
    writer.put(record("a"))
    until(lambda: database.written == ["a"])
    assert database.tries == 2
    assert writer.answers


def test_records_are_written_between_chores(
    start: Start, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHORES_SECONDS", 0.0)
    stopped = threading.Event()

    def chores() -> Iterator[None]:
        while not stopped.is_set():
            yield

    writer = start(chores=chores)
    writer.put(record("a"))
    until(lambda: database.written == ["a"])
    assert writer.run(database.work) == "done"
    stopped.set()


def test_failing_chores_are_logged_and_stop_nothing(
    start: Start,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CHORES_SECONDS", 0.0)

    def chores() -> Iterator[None]:
        raise ValueError("a chore")
        yield

    writer = start(chores=chores)
    until(lambda: "could not be tidied" in caplog.text)
    writer.put(record("a"))
    until(lambda: database.written == ["a"])


def test_chores_tell_that_the_database_is_lost(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_CHORES_SECONDS", 0.0)
    down = threading.Event()
    seen: list[bool] = []

    def chores() -> Iterator[None]:
        if down.is_set():
            down.clear()
            raise lost()
        yield

    writer = start(chores=chores, failed=lambda: seen.append(True))
    assert writer.answers
    down.set()
    until(lambda: bool(seen))
    until(lambda: writer.answers)
