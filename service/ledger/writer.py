"""The one thread that writes to the ledger, and what waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError

from foretell.service.errors import NotReadyError
from foretell.service.ledger.keeping import Record
from foretell.service.ledger.store import Store
from foretell.service.metrics import LEDGER_FORECASTS, Metrics

_logger = logging.getLogger(__name__)

# Most records in a transaction; fewer after one has failed.
_BATCH = 512
# Time between transactions, so that they are not small, and after a failure.
_PAUSE_SECONDS = 0.2
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
# Time to write what waits when the server stops.
_LAST_SECONDS = 5.0
_CHORES_SECONDS = 60.0
# Bytes of a record beside its arrays.
_RECORD_BYTES = 2048


@dataclass(eq=False)
class Task:
    """Work in a transaction of its own; its caller waits for the result."""

    work: Callable[[Connection], Any]
    done: Future[Any]


class Writer:
    """Writes records and tasks in their order, each batch of records in one transaction.

    While the database does not answer, records wait and are tried again; tasks fail.

    Args:
        write: Writes records; a transaction that fails is tried again with the same records.
        committed: Called after each transaction that succeeded.
        failed: Called after each transaction that failed.
        chores: Called about once a minute, outside transactions; its errors are logged.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        most_bytes: int,
        *,
        write: Callable[[Connection, list[Record]], None],
        committed: Callable[[], None],
        failed: Callable[[], None],
        chores: Callable[[], None],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._write, self._chores = write, chores
        self._committed, self._failed = committed, failed
        self._waiting: deque[Record | Task] = deque()
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._ends_at = 0.0
        self._batch = _BATCH
        self._failures = 0
        self.bytes = 0
        self.forecasts = 0
        self._thread = threading.Thread(target=self._run, name="ledger", daemon=True)
        self._thread.start()

    @property
    def full(self) -> bool:
        return self.bytes >= self._most_bytes

    @property
    def answers(self) -> bool:
        """Whether the last transaction succeeded."""
        return not self._failures

    def put(self, record: Record) -> None:
        """Queue a record, or drop it if the queue is full."""
        size, count = _size(record), len(record.message.names)
        with self._lock:
            if self.bytes + size > self._most_bytes or self._stopping.is_set():
                outcome = "dropped"
            else:
                self._waiting.append(record)
                self.bytes += size
                self.forecasts += count
                return
        self._metrics.counts.add(LEDGER_FORECASTS, outcome, amount=count)

    def run(self, work: Callable[[Connection], Any]) -> Any:  # noqa: ANN401 - the work's own
        """Do work in a transaction after all that waits, and return its result.

        Raises:
            NotReadyError: the database does not answer, or the server is stopping.
        """
        task = Task(work, Future())
        with self._lock:
            if self._stopping.is_set():
                raise NotReadyError("the server is stopping")
            if self._failures and self._waiting:
                # The writer tries waiting records again every few seconds.
                raise _no_answer()
            self._waiting.append(task)
        self._woken.set()
        return task.done.result()

    def close(self) -> None:
        """Write what waits, for a few seconds, and end the thread."""
        with self._lock:
            self._ends_at = time.monotonic() + _LAST_SECONDS
            self._stopping.set()
        self._woken.set()
        self._thread.join(2 * _LAST_SECONDS)
        left = self.forecasts
        if left:
            _logger.warning("%d forecasts were not written to the ledger", left)
            self._metrics.counts.add(LEDGER_FORECASTS, "dropped", amount=left)

    def _run(self) -> None:
        next_chores = time.monotonic() + _CHORES_SECONDS
        while not self._stopping.is_set() or (self._waiting and time.monotonic() < self._ends_at):
            try:
                self._run_once()
                if time.monotonic() >= next_chores and not self._stopping.is_set():
                    next_chores = time.monotonic() + _CHORES_SECONDS
                    self._chores()
            except Exception:
                _logger.exception("the ledger failed")
        with self._lock:
            left = [each for each in self._waiting if isinstance(each, Task)]
        for task in left:
            task.done.set_exception(NotReadyError("the server is stopping"))

    def _run_once(self) -> None:
        first = self._waiting[0] if self._waiting else None
        if first is None:
            self._pause(_PAUSE_SECONDS)
        elif isinstance(first, Task):
            self._do(first)
        else:
            records = self._records()
            self._write_records(records)
            if not self._stopping.is_set() and len(records) < self._batch:
                self._pause(_PAUSE_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._woken.wait(seconds)
        self._woken.clear()

    def _records(self) -> list[Record]:
        """The oldest records, which stay in the queue until they are written."""
        records: list[Record] = []
        with self._lock:
            for each in self._waiting:
                if isinstance(each, Task) or len(records) == self._batch:
                    break
                records.append(each)
        return records

    def _write_records(self, records: list[Record]) -> None:
        try:
            with self._store.write() as connection:
                self._write(connection, records)
        except Exception as error:
            self._failed()
            if _is_passing(error):
                self._note_failure(error)
                self._fail_tasks()
                self._batch = max(1, self._batch // 2)
                if not self._stopping.is_set():
                    self._stopping.wait(
                        _RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS)) - 1]
                    )
                return
            if len(records) > 1:
                # One of them is at fault.
                self._batch = 1
                return
            _logger.error("a forecast could not be written to the ledger", exc_info=error)
            self._remove(records, "failed")
            return
        self._note_success()
        self._remove(records, "kept")
        self._batch = min(_BATCH, 2 * self._batch)

    def _do(self, task: Task) -> None:
        with self._lock:
            self._waiting.popleft()
        try:
            with self._store.write() as connection:
                result = task.work(connection)
        except Exception as error:
            self._failed()
            if _is_passing(error):
                self._note_failure(error)
                error = _no_answer()
            task.done.set_exception(error)
        else:
            self._note_success()
            task.done.set_result(result)

    def _remove(self, records: list[Record], outcome: str) -> None:
        size = sum(map(_size, records))
        count = sum(len(record.message.names) for record in records)
        with self._lock:
            for _ in records:
                self._waiting.popleft()
            self.bytes -= size
            self.forecasts -= count
        self._metrics.counts.add(LEDGER_FORECASTS, outcome, amount=count)

    def _fail_tasks(self) -> None:
        """Let no task wait for a database that does not answer."""
        with self._lock:
            tasks = [each for each in self._waiting if isinstance(each, Task)]
            records = (each for each in self._waiting if isinstance(each, Record))
            self._waiting = deque(records)
        for task in tasks:
            task.done.set_exception(_no_answer())

    def _note_failure(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1:
            reason = str(getattr(error, "orig", None) or error).strip().splitlines()[0]
            _logger.error("the database of the ledger does not answer: %s", reason)

    def _note_success(self) -> None:
        self._committed()
        if self._failures:
            _logger.info("the database of the ledger answers again")
        self._failures = 0


def _no_answer() -> NotReadyError:
    return NotReadyError("the database of the ledger does not answer", retry_after=5)


def _size(record: Record) -> int:
    return _RECORD_BYTES + sum(each.nbytes for each in record.arrays.values())


def _is_passing(error: BaseException) -> bool:
    """Whether the same statements may succeed later."""
    at_fault = (DataError, ProgrammingError)
    if isinstance(error, IntegrityError):
        # Another server deleted a series whose id is remembered here.
        return True
    return isinstance(error, (DBAPIError, OSError)) and not isinstance(error, at_fault)
