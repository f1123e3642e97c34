"""Structured logs: one line a record, with the id of the request it belongs to.

Records are formatted and written on a thread of their own: no request waits for the log's reader.
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections import deque
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, TextIO

from service.settings import LogFormat, LogLevel

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)

# A few megabytes, should the log's reader be stuck.
_MOST_WAITING = 10_000
# Lines written together cost a fraction of what they cost one by one.
_GATHER_SECONDS = 0.05

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
    """Writes records to a stream, in order, on a thread of its own.

    Errors are written before the caller goes on, with all that came before them: a process may not
    outlive them. Of records that the stream's reader is too slow for, the latest are dropped, and
    their number is logged.

    Args:
        stream: Where lines go.
        most_waiting: Most records that are held.
    """

    def __init__(self, stream: TextIO, most_waiting: int = _MOST_WAITING) -> None:
        super().__init__()
        self._stream = stream
        self._most_waiting = most_waiting
        self._waiting: deque[logging.LogRecord] = deque()
        self._dropped = 0
        # Reentrant: a signal's handler may log while its own thread writes.
        self._writing = threading.RLock()
        self._some = threading.Event()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        """Take a record, complete with what only its own thread knows."""
        if len(self._waiting) >= self._most_waiting:
            self._dropped += 1
            return
        try:
            self._waiting.append(captured(record))
        except Exception:
            self.handleError(record)
        if record.levelno >= logging.ERROR or self._closing.is_set():
            self.flush()
        elif not self._some.is_set():
            self._some.set()

    def flush(self) -> None:
        """Write all that waits."""
        with self._writing:
            lines = []
            while self._waiting:
                lines.append(self._line(self._waiting.popleft()))
            if self._dropped:
                dropped, self._dropped = self._dropped, 0
                lines.append(self._line(_warning(dropped)))
            if lines:
                try:
                    self._stream.write("".join(lines))
                    self._stream.flush()
                except (OSError, ValueError):
                    # Nobody reads the log any more; the service goes on.
                    self._waiting.clear()

    def close(self) -> None:
        """Write all that waits; from then on records are written at once."""
        self._closing.set()
        self._some.set()
        self._thread.join()
        self.flush()
        super().close()

    def _serve(self) -> None:
        while not self._closing.is_set():
            self._some.wait()
            self._closing.wait(_GATHER_SECONDS)
            self._some.clear()
            self.flush()

    def _line(self, record: logging.LogRecord) -> str:
        try:
            return self.format(record) + "\n"
        except Exception:
            self.handleError(record)
            return ""


def configure(level: LogLevel, form: LogFormat) -> None:
    """Send every log, the server's and its libraries', to stderr in one form."""
    handler = BackgroundHandler(sys.stderr)
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


def _warning(dropped: int) -> logging.LogRecord:
    text = f"{dropped} records were dropped: the log's reader is too slow"
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
