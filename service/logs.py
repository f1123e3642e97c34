"""Logs: a line for each record, with the id of its request, written on a separate thread."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import select
import sys
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from queue import Empty, SimpleQueue
from typing import Any

import orjson
from pythonjsonlogger.orjson import OrjsonFormatter

from foretell.service.settings import LogFormat, LogLevel

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# Most queued records: a few megabytes.
_MAX_QUEUED = 10_000
# Writing lines together takes a fraction of the time.
_GATHER_SECONDS = 0.05
# Time to wait for another process that writes to the same file.
_LOCK_SECONDS = 0.5
# Time that the end of a process waits for the last lines.
_LAST_SECONDS = 1.0


class JsonFormatter(OrjsonFormatter):
    """Formats a record as a JSON object; `extra={"fields": {...}}` adds members."""

    def __init__(self) -> None:
        super().__init__(json_default=str)

    def add_fields(
        self, log_data: dict[str, Any], record: logging.LogRecord, message_dict: dict[str, Any]
    ) -> None:
        """Fill the object, without extra attributes from libraries."""
        moment = datetime.fromtimestamp(record.created, UTC)
        log_data["time"] = moment.isoformat(timespec="milliseconds")
        log_data["level"] = record.levelname.lower()
        log_data["process"] = record.process
        log_data["logger"] = record.name
        log_data["message"] = record.message
        log_data.update(getattr(record, "fields", {}))
        if "exc_info" in message_dict:
            log_data["exception"] = message_dict["exc_info"]

    def serialize_log_record(self, log_data: dict[str, Any]) -> str:
        try:
            return super().serialize_log_record(log_data)
        except orjson.JSONEncodeError:
            # orjson refuses lone surrogates, which names of files may have.
            return json.dumps(log_data, default=str)


class TextFormatter(logging.Formatter):
    """Formats a record as a line of text, with members as `key=value`; tracebacks follow."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        members = (f"{key}={value}" for key, value in getattr(record, "fields", {}).items())
        text = " ".join([super().formatMessage(record), *members])
        # Clients choose some of the text: it must not start a line or control a terminal.
        if text.isprintable():
            return text
        escaped = (c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
        return "".join(escaped)


class BackgroundHandler(logging.Handler):
    """Queues records and writes them on a thread, so that no request waits for the log's reader.

    When the queue is full, records are dropped, and their number is logged. A signal handler may
    log while its thread does, so the queues are reentrant. The file is a descriptor without a
    buffer: the lock of a buffer could keep the process from ending.
    """

    def __init__(self, file: int, max_queued: int = _MAX_QUEUED) -> None:
        super().__init__()
        self._file = file
        self._max_queued = max_queued
        self._queue = SimpleQueue[logging.LogRecord | threading.Event]()
        self._urgent = SimpleQueue[None]()
        self._dropped = self._reported = 0
        threading.Thread(target=self._serve, name="log", daemon=True).start()

    def emit(self, record: logging.LogRecord) -> None:
        if self._queue.qsize() >= self._max_queued:
            self._dropped += 1
            return
        try:
            self._queue.put(captured(record))
        except Exception:
            self._queue.put(_unwritable(record))
        if record.levelno >= logging.ERROR:
            self._hurry()

    def close(self) -> None:
        """Wait until all records are written, or for a second if the log's reader is stuck."""
        written = threading.Event()
        self._queue.put(written)
        self._hurry()
        written.wait(_LAST_SECONDS)
        super().close()

    def _hurry(self) -> None:
        if self._urgent.empty():
            self._urgent.put(None)

    def _serve(self) -> None:
        while True:
            first = self._queue.get()
            with suppress(Empty):
                self._urgent.get(timeout=_GATHER_SECONDS)
            batch = [first, *(self._queue.get() for _ in range(self._queue.qsize()))]
            lines = [self._line(each) for each in batch if isinstance(each, logging.LogRecord)]
            if dropped := self._dropped - self._reported:
                self._reported += dropped
                text = f"{dropped} records were dropped: the log's reader is too slow"
                lines.append(self._line(_warning(text)))
            # The service continues after the log's reader has gone.
            with suppress(OSError):
                self._write(lines)
            for each in batch:
                if isinstance(each, threading.Event):
                    each.set()

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception:
            return self.format(_unwritable(record)) + "\n"

    def _write(self, lines: list[str]) -> None:
        """Write lines under a lock that other processes respect."""
        end = time.monotonic() + _LOCK_SECONDS
        while time.monotonic() < end:
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except (BlockingIOError, PermissionError):
                time.sleep(0.01)
            except OSError:
                # Sockets, such as journald's, have no locks.
                break
        try:
            for data in _groups(lines):
                while data:
                    try:
                        data = data[os.write(self._file, data) :]
                    except BlockingIOError:
                        # A program that shares the file has made it non-blocking.
                        select.select([], [self._file], [])
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)


def configure(level: LogLevel, form: LogFormat) -> None:
    """Send the logs of the server and its libraries to stderr."""
    handler = BackgroundHandler(sys.stderr.fileno())
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    # They would log every request to a registry, with signed addresses.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    # It logs each of its own parts at the start; its migrations have another logger.
    logging.getLogger("alembic.runtime.plugins").setLevel(logging.WARNING)
    # The SDK of agents logs a line for each request, as the server itself does.
    logging.getLogger("mcp").setLevel(logging.ERROR)
    # Lines do not name the thread, the task or the kind of process, which take time to find.
    logging.logThreads = logging.logMultiprocessing = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False


def captured(record: logging.LogRecord) -> logging.LogRecord:
    """The record with its message, its traceback as text, and the id of the current request."""
    record.msg, record.args = record.getMessage(), None
    if record.exc_info:
        record.exc_text = logging.Formatter().formatException(record.exc_info)
        record.exc_info = None
    current = request_id.get()
    if current is not None:
        record.fields = {"request_id": current, **getattr(record, "fields", {})}
    return record


def _unwritable(record: logging.LogRecord) -> logging.LogRecord:
    return _warning(f"a record cannot be written: {record.pathname}:{record.lineno}")


def _warning(text: str) -> logging.LogRecord:
    return logging.LogRecord(__name__, logging.WARNING, __file__, 0, text, None, None)


def _groups(lines: Iterable[str]) -> list[bytes]:
    """Whole lines, joined up to the size that a pipe writes atomically."""
    groups = [b""]
    for line in lines:
        data = line.encode(errors="backslashreplace")
        if len(groups[-1]) + len(data) > select.PIPE_BUF:
            groups.append(b"")
        groups[-1] += data
    return groups
