"""Errors of the database: what is at fault, and how to log them."""

from __future__ import annotations

import logging
import sqlite3
from typing import Literal

from sqlalchemy.exc import (
    DBAPIError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    SQLAlchemyError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

Cause = Literal["database", "data", "unclear"]

# Primary result codes of SQLite.
_SQLITE = {
    *(sqlite3.SQLITE_PERM, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_NOMEM),
    *(sqlite3.SQLITE_READONLY, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_FULL),
    *(sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_NOTADB),
    *(sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_AUTH),
}
# Classes of SQLSTATE: connections, transactions that must be repeated or may not write, passwords,
# missing databases, full disks, locks, shutdowns and failures of the system.
_POSTGRESQL = {"08", "25", "28", "3D", "40", "53", "55", "57", "58"}
# Missing tables, and missing rights.
_POSTGRESQL_STATES = {"42P01", "42501"}
# A statement that took too long.
_CANCELED = "57014"


def cause_of(error: BaseException) -> Cause:
    """The cause of an error in a transaction.

    `database`: the same statements succeed once it answers. `data`: they never will. `unclear`: one
    of both.
    """
    if isinstance(error, OSError):
        return "database"
    if isinstance(error, PoolTimeoutError):
        # All connections are in use.
        return "unclear"
    if not isinstance(error, DBAPIError):
        return "data"
    if isinstance(error, IntegrityError):
        return "unclear"
    original = error.orig
    if isinstance(original, sqlite3.Error):
        # Errors of the module itself have no code.
        code = getattr(original, "sqlite_errorcode", None)
        lacks_table = str(original).startswith("no such table")
        is_database = lacks_table if code is None else lacks_table or code & 0xFF in _SQLITE
        return "database" if is_database else "data"
    state = getattr(original, "sqlstate", None)
    if state is None:
        is_lost = isinstance(error, (OperationalError, InterfaceError))
        return "database" if is_lost or error.connection_invalidated else "data"
    if state == _CANCELED:
        return "unclear"
    is_database = state[:2] in _POSTGRESQL or state in _POSTGRESQL_STATES
    return "database" if is_database else "data"


def reason_of(error: BaseException) -> str:
    """The first line of the database's own message."""
    lines = str(getattr(error, "orig", None) or error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def log_error(logger: logging.Logger, message: str, error: BaseException) -> None:
    """Log an error, with its traceback unless it is of the database: that one shows stored data."""
    if isinstance(error, SQLAlchemyError):
        logger.error("%s: %s", message, reason_of(error))
    else:
        logger.error(message, exc_info=error)
