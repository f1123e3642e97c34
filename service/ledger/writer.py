"""The one thread that writes to the ledger, and what waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from foretell.service.errors import NotReadyError
from foretell.service.ledger.faults import cause_of, log_error, reason_of
from foretell.service.ledger.keeping import Record
from foretell.service.ledger.store import Store
from foretell.service.metrics import LEDGER_FORECASTS, Metrics

_logger = logging.getLogger(__name__)

# Most records in a transaction; fewer after one has failed.
_BATCH = 512
# Time between transactions, so that they are not small, and after a failure.
_PAUSE_SECONDS = 0.2
_RETRY_SECONDS = (0.5, 1.0, 2.0, 5.0)
# Tries of a record that may be at fault itself.
_TRIES = 3
# Most tasks that wait, and how long each one waits for its turn.
_TASKS = 8
_TASK_SECONDS = 20.0
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

    def fail(self, error: Exception) -> None:
        """End it with an error, unless its caller has given up."""
        if self.done.set_running_or_notify_cancel():
            self.done.set_exception(error)


class Writer:
    """Writes records and tasks in their order, each batch of records in one transaction.

    While the database does not answer, records wait and are tried again; tasks fail.

    Args:
        most_bytes: Records are dropped while those that wait have as many bytes.
        write: Writes records, and returns how many forecasts were late; a transaction that fails is
            tried again with the same records.
        committed: Called after each transaction that succeeded.
        failed: Called after each transaction that failed.
        chores: Called about once a minute. The iterator does one transaction at a time; records
            and tasks are written in between.
    """

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        most_bytes: int,
        *,
        write: Callable[[Connection, list[Record]], int],
        committed: Callable[[], None],
        failed: Callable[[], None],
        chores: Callable[[], Iterator[None]],
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._write, self._chores = write, chores
        self._committed, self._failed = committed, failed
        self._waiting: deque[Record | Task] = deque()
        self._tasks = 0
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopping = threading.Event()
        self._ends_at = 0.0
        self._batch = _BATCH
        self._failures = 0
        # Whether it was logged that records are dropped, or could not be written.
        self._logged_full = self._logged_faulty = False
        self._chore: Iterator[None] | None = None
        self._chores_at = time.monotonic() + _CHORES_SECONDS
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
            is_taken = not self.full and not self._stopping.is_set()
            if is_taken:
                self._waiting.append(record)
                self.bytes += size
                self.forecasts += count
            logs_full = self.full and not self._logged_full
            self._logged_full |= logs_full
        if logs_full:
            _logger.warning(
                "the queue of the ledger is full; forecasts are not kept until the database has "
                "written some of it"
            )
        if not is_taken:
            self._metrics.counts.add(LEDGER_FORECASTS, "dropped", amount=count)

    def run(self, work: Callable[[Connection], Any]) -> Any:  # noqa: ANN401 - the work's own
        """Do work in a transaction after all that waits, and return its result.

        Raises:
            NotReadyError: the database does not answer, too much waits, or the server is stopping.
        """
        task = Task(work, Future())
        with self._lock:
            if self._stopping.is_set():
                raise NotReadyError("the server is stopping")
            if self._failures and self._waiting:
                # The writer tries waiting records again every few seconds.
                raise _no_answer()
            if self._tasks >= _TASKS:
                raise NotReadyError("too many changes wait for the ledger", retry_after=1)
            self._waiting.append(task)
            self._tasks += 1
        self._woken.set()
        try:
            return task.done.result(_TASK_SECONDS)
        except TimeoutError:
            if task.done.cancel():
                raise NotReadyError("the ledger is busy", retry_after=5) from None
            # It has begun.
            return task.done.result()
        finally:
            with self._lock:
                self._tasks -= 1

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
        while not self._stopping.is_set() or (self._waiting and time.monotonic() < self._ends_at):
            try:
                self._take_turn()
            except Exception as error:
                log_error(_logger, "the ledger failed", error)
                time.sleep(_PAUSE_SECONDS)
        self._fail_tasks(NotReadyError("the server is stopping"))

    def _take_turn(self) -> None:
        first = self._waiting[0] if self._waiting else None
        if isinstance(first, Task):
            self._do(first)
        elif first is not None:
            records = self._records()
            is_all = self._write_records(records) and len(records) < self._batch
            if is_all and not self._stopping.is_set():
                self._pause()
        elif self._failures:
            self._probe()
        else:
            self._pause()
        if not self._failures and not self._stopping.is_set():
            self._go_on_with_chores()

    def _pause(self) -> None:
        self._woken.wait(_PAUSE_SECONDS)
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

    def _write_records(self, records: list[Record]) -> bool:
        """Write records, or find the one at fault; returns whether they are written."""
        try:
            late: int = self._transact(lambda connection: self._write(connection, records))
        except Exception as error:
            cause = cause_of(error)
            if cause == "unclear" and len(records) == 1 and self._failures >= _TRIES:
                cause = "data"
            if cause != "data":
                self._note_failure(error)
                self._batch = max(1, self._batch // 2)
                self._rest()
            elif len(records) > 1:
                # One of them is at fault.
                self._batch = 1
            else:
                if not self._logged_faulty:
                    log_error(_logger, "forecasts could not be written to the ledger", error)
                self._logged_faulty = True
                self._remove(records, "failed")
            return False
        if self._batch == _BATCH:
            self._logged_faulty = False
        self._batch = min(_BATCH, 2 * self._batch)
        self._remove(records, "kept", late)
        self._note_success()
        return True

    def _do(self, task: Task) -> None:
        with self._lock:
            self._waiting.popleft()
        if not task.done.set_running_or_notify_cancel():
            return
        try:
            result = self._transact(task.work)
        except Exception as error:
            if cause_of(error) == "data":
                task.done.set_exception(error)
            else:
                self._note_failure(error)
                task.done.set_exception(_no_answer())
        else:
            self._note_success()
            task.done.set_result(result)

    def _probe(self) -> None:
        """Look whether the database answers again."""
        try:
            self._transact(lambda _: None)
        except Exception as error:
            self._note_failure(error)
            self._rest()
        else:
            self._note_success()

    def _go_on_with_chores(self) -> None:
        if self._chore is None:
            if time.monotonic() < self._chores_at:
                return
            self._chore = self._chores()
        try:
            next(self._chore)
        except StopIteration:
            self._end_chores()
        except Exception as error:
            self._end_chores()
            self._failed()
            if cause_of(error) == "database":
                self._note_failure(error)
            else:
                log_error(_logger, "the ledger could not be tidied", error)

    def _end_chores(self) -> None:
        self._chore = None
        self._chores_at = time.monotonic() + _CHORES_SECONDS

    def _transact(self, work: Callable[[Connection], Any]) -> Any:  # noqa: ANN401 - the work's own
        try:
            return self._attempt(work)
        except IntegrityError:
            # Another server has deleted rows whose ids were remembered here.
            return self._attempt(work)

    def _attempt(self, work: Callable[[Connection], Any]) -> Any:  # noqa: ANN401 - the work's own
        try:
            with self._store.write() as connection:
                return work(connection)
        except Exception:
            self._failed()
            raise

    def _remove(self, records: list[Record], outcome: str, late: int = 0) -> None:
        size = sum(map(_size, records))
        count = sum(len(record.message.names) for record in records)
        with self._lock:
            for _ in records:
                self._waiting.popleft()
            self.bytes -= size
            self.forecasts -= count
            if 2 * self.bytes < self._most_bytes:
                self._logged_full = False
        self._metrics.counts.add(LEDGER_FORECASTS, outcome, amount=count - late)
        self._metrics.counts.add(LEDGER_FORECASTS, "late", amount=late)

    def _rest(self) -> None:
        if self._stopping.is_set():
            time.sleep(_PAUSE_SECONDS)
        else:
            self._stopping.wait(_RETRY_SECONDS[min(self._failures, len(_RETRY_SECONDS)) - 1])

    def _note_failure(self, error: BaseException) -> None:
        self._failures += 1
        if self._failures == 1:
            _logger.error("the database of the ledger does not answer: %s", reason_of(error))
        self._fail_tasks(_no_answer())

    def _note_success(self) -> None:
        self._committed()
        if self._failures:
            _logger.info("the database of the ledger answers again")
        self._failures = 0

    def _fail_tasks(self, error: Exception) -> None:
        with self._lock:
            tasks = [each for each in self._waiting if isinstance(each, Task)]
            if tasks:
                self._waiting = deque(each for each in self._waiting if isinstance(each, Record))
        for task in tasks:
            task.fail(error)


def _no_answer() -> NotReadyError:
    return NotReadyError("the database of the ledger does not answer", retry_after=5)


def _size(record: Record) -> int:
    size = _RECORD_BYTES
    # A generator takes longer, and each request waits for it.
    for each in record.arrays.values():
        size += each.nbytes
    return size
