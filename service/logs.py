"""Structured logs: one line a record, with the id of the request it belongs to."""

from __future__ import annotations

import json
import logging
import sys
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from service.settings import LogFormat, LogLevel

request_id: ContextVar[str | None] = ContextVar("request_id", default=None)


class JsonFormatter(logging.Formatter):
    """A record as one JSON object; `extra={"fields": {...}}` adds members."""

    def format(self, record: logging.LogRecord) -> str:
        """Write the record."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_context(record),
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, default=str)


class TextFormatter(logging.Formatter):
    """A record for people, its members as `key=value`."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Write the record's line, without its traceback."""
        members = "".join(f" {key}={value}" for key, value in _context(record).items())
        return _on_one_line(super().formatMessage(record) + members)


def configure(level: LogLevel, form: LogFormat) -> None:
    """Send every log, the server's and its libraries', to stderr in one form."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


def _on_one_line(text: str) -> str:
    """Escape what would begin a new line or steer a terminal: callers choose some of the text."""
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode() for char in text
    )


def _context(record: logging.LogRecord) -> dict[str, Any]:
    fields: dict[str, Any] = getattr(record, "fields", {})
    current = request_id.get()
    return fields if current is None else {"request_id": current, **fields}
