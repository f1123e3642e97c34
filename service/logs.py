"""Structured logs: one line a record, with the id of the request it belongs to.

Records are formatted and written on a thread of their own: no request waits for the log's reader.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

from foretell.service.settings import LogFormat, LogLevel

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# A few megabytes, should the log's reader be stuck.
_MOST_WAITING = 10_000
# Lines written together cost a fraction of what they cost one by one.
_GATHER_SECONDS = 0.05
# For other processes that write to the same file.
_LOCK_SECONDS = 0.5
_LOCK_PAUSE = 0.01
# For what is left when a process ends.
_LAST_SECONDS = 1.0

_encode = json.JSONEncoder(default=str).encode


class JsonFormatter(logging.Formatter):
    """A record as one JSON object; `extra={"fields": {...}}` adds members."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "process": record.process,
            "logger": record.name,
            "message": record.getMessage(),
            **_fields(record),
        }
        if record.exc_text:
            entry["exception"] = record.exc_text
        return _encode(entry)


class TextFormatter(logging.Formatter):
    """A record for people, its members as `key=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Write the record's line, without its traceback."""
        members = "".join(f" {key}={value}" for key, value in _fields(record).items())
        return _on_one_line(super().formatMessage(record) + members)


class BackgroundHandler(logging.Handler):
    """Writes records to a file, in order, on a thread of its own: who logs never waits for it.

    Of records that the file's reader is too slow for, the latest are dropped, and their number is
    logged. A signal's handler may log while its own thread does.

    Args:
        file: A descriptor that lines are written to, past all buffers: whoever waits with a lock
            of theirs would hold up the end of the process.
        most_waiting: Most records that are held.
    """

    def __init__(self, file: int, most_waiting: int = _MOST_WAITING) -> None:
        super().__init__()
        self._file = file
        self._most_waiting = most_waiting
        # Unlike other queues and events these may be entered again by the same thread.
        self._waiting = SimpleQueue[logging.LogRecord | threading.Event]()
        self._urgent = SimpleQueue[None]()
        self._dropped = 0
        self._told = 0
        self._is_locked_out = False
        threading.Thread(target=self._serve, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record, complete with what only its own thread knows."""
        if self._waiting.qsize() >= self._most_waiting:
            self._dropped += 1
            return
        try:
            self._waiting.put(captured(record))
        except Exception:
            self._waiting.put(_unwritable(record))
        if record.levelno >= logging.ERROR:
            self._hurry()

    def close(self) -> None:
        """Wait until all is written, unless the file's reader is stuck."""
        written = threading.Event()
        self._waiting.put(written)
        self._hurry()
        written.wait(_LAST_SECONDS)
        super().close()

    def _hurry(self) -> None:
        if self._urgent.empty():
            self._urgent.put(None)

    def _serve(self) -> None:
        while True:
            first = self._waiting.get()
            with suppress(Empty):
                self._urgent.get(timeout=_GATHER_SECONDS)
            self._write([first, *(self._waiting.get() for _ in range(self._waiting.qsize()))])

    def _write(self, taken: list[logging.LogRecord | threading.Event]) -> None:
        lines = [self._line(record) for record in taken if isinstance(record, logging.LogRecord)]
        if dropped := self._dropped - self._told:
            self._told += dropped
            text = f"{dropped} records were dropped: the log's reader is too slow"
            lines.append(self._line(_own(text)))
        # If nobody reads the log any more, the service goes on.
        with suppress(OSError):
            is_locked = self._lock()
            try:
                for data in _groups(lines):
                    self._put(data)
            finally:
                if is_locked:
                    fcntl.lockf(self._file, fcntl.LOCK_UN)
        for waiter in taken:
            if isinstance(waiter, threading.Event):
                waiter.set()

    def _lock(self) -> bool:
        """Whether no other process writes to the file until it is unlocked.

        Whoever never lets go of it is waited for once.
        """
        end = time.monotonic() + (0.0 if self._is_locked_out else _LOCK_SECONDS)
        while True:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                self._is_locked_out = time.monotonic() >= end
                if self._is_locked_out:
                    return False
                time.sleep(_LOCK_PAUSE)
            except OSError:
                # Sockets, such as journald's, know no locks.
                return True
            else:
                self._is_locked_out = False
                return True

    def _put(self, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(self._file, data) :]
            except BlockingIOError:
                # Another process that has the file open can turn waiting off.
                select.select([], [self._file], [])

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception:
            return self.format(_unwritable(record)) + "\n"


def _groups(lines: Iterable[str]) -> Iterator[bytes]:
    """Whole lines, together up to what a pipe does not tear, also without a lock."""
    group = b""
    for line in lines:
        data = line.encode(errors="backslashreplace")
        if group and len(group) + len(data) > select.PIPE_BUF:
            yield group
            group = b""
        group += data
    if group:
        yield group


def configure(level: LogLevel, form: LogFormat) -> None:
    """Send every log, the server's and its libraries', to stderr in one form."""
    handler = BackgroundHandler(sys.stderr.fileno())
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # No line names the thread, task or kind of process it comes from, and finding out takes time.
    logging.logThreads = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False


def captured(record: logging.LogRecord) -> logging.LogRecord:
    """The record, no longer tied to its thread, its request or its arguments."""
    record.msg, record.args = record.getMessage(), None
    if record.exc_info:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    current = request_id.get()
    if current is not None:
        record.fields = {"request_id": current, **_fields(record)}
    return record


def _unwritable(record: logging.LogRecord) -> logging.LogRecord:
    return _own(f"a record cannot be written: {record.pathname}:{record.lineno}")


def _own(text: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


def _on_one_line(text: str) -> str:
    """Escape what would begin a new line or steer a terminal: callers choose some of the text."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _fields(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    return fields
