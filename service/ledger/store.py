"""The database of a ledger: SQLite within the server, or PostgreSQL for several servers."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    BigInteger,
    ColumnElement,
    Connection,
    Engine,
    Insert,
    Table,
    bindparam,
    cast,
    create_engine,
    event,
    func,
    select,
    text,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError

from foretell.service.errors import StartError
from foretell.service.ledger import size
from foretell.service.ledger.faults import reason_of
from foretell.service.ledger.migrations.upgrade import upgrade

_SETTING = "FORETELL_LEDGER"
_BUSY_SECONDS = 5
_CONNECT_SECONDS = 5
# A statement that takes longer has met a lock or a lost host; nor may a server that hangs keep
# others waiting for its transaction.
_OPTIONS = "-c statement_timeout=60000 -c idle_in_transaction_session_timeout=60000"
_LOST_MILLISECONDS = 30_000
# Connections for reading: of three requests, of the learner and of the thread that writes.
_READERS = 5
# Instructions of SQLite between looks at the deadline.
_INSTRUCTIONS = 10_000
# Most keys of a statement: databases bound the number of its parameters.
MOST_KEYS = 1000
# A checkpoint waits for the disk, so it comes after many transactions: 32 MB.
_PRAGMAS = (
    *("journal_mode=WAL", "synchronous=NORMAL", "foreign_keys=ON"),
    "wal_autocheckpoint=8000",
)
# The lock of all servers that write to one PostgreSQL database: "ledger" in ASCII.
_WRITING = 0x6C6564676572


class Store:
    """A database that one thread writes, and other threads read.

    Args:
        url: `sqlite:///PATH` or `postgresql://…`.

    Raises:
        StartError: the URL is of another kind, or a library is missing.
    """

    def __init__(self, url: str) -> None:
        parsed = _parse(url)
        self.is_sqlite = parsed.get_backend_name() == "sqlite"
        self.place = _without_secrets(parsed)
        if self.is_sqlite and parsed.database in (None, "", ":memory:"):
            raise StartError(f"{_SETTING}: expected sqlite:///PATH with the path of a file")
        # Messages of errors are logged; parameters are names and values of series.
        options: dict[str, Any] = {"pool_pre_ping": not self.is_sqlite, "hide_parameters": True}
        if self.is_sqlite:
            options["connect_args"] = {"timeout": _BUSY_SECONDS, "check_same_thread": False}
        else:
            options["connect_args"] = {
                "connect_timeout": _CONNECT_SECONDS,
                "tcp_user_timeout": _LOST_MILLISECONDS,
                "keepalives_idle": _LOST_MILLISECONDS // 1000,
                "options": _OPTIONS,
            }
        try:
            self._writer = create_engine(parsed, pool_size=1, max_overflow=0, **options)
            self._reader = create_engine(
                parsed,
                pool_size=_READERS,
                max_overflow=0,
                **options,
            )
        except ModuleNotFoundError as error:
            raise StartError(
                f"{_SETTING}: {error.name} is not installed; install foretell with the extra "
                "postgresql"
            ) from None
        if self.is_sqlite:
            _set_up_sqlite(self._writer, begin="BEGIN IMMEDIATE")
            _set_up_sqlite(self._reader, begin="BEGIN")
        self._lock = threading.Lock()

    def open(self) -> None:
        """Make or migrate the tables.

        Raises:
            StartError: the database cannot be opened, or belongs to a newer version of foretell.
        """
        path = self._writer.url.database
        try:
            if self.is_sqlite and path is not None:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            with self.write() as connection:
                upgrade(connection)
        except (SQLAlchemyError, OSError) as error:
            self.close()
            reason = reason_of(error)
            raise StartError(f"{_SETTING}: {self.place} cannot be opened: {reason}") from None
        except StartError:
            self.close()
            raise

    @contextmanager
    def write(self) -> Iterator[Connection]:
        """A connection in a transaction; one at a time, over all servers of the database."""
        with self._lock, self._writer.begin() as connection:
            if not self.is_sqlite:
                connection.execute(
                    text("SELECT pg_advisory_xact_lock(:number)"), {"number": _WRITING}
                )
            yield connection

    @contextmanager
    def read(self, deadline: float = math.inf) -> Iterator[Connection]:
        """A connection that sees one state of the database; statements end at a deadline."""
        with self._reader.connect() as connection:
            if not self.is_sqlite:
                connection = connection.execution_options(isolation_level="REPEATABLE READ")
            with connection.begin(), self._until(connection, deadline):
                yield connection

    @contextmanager
    def _until(self, connection: Connection, deadline: float) -> Iterator[None]:
        """End statements at a deadline of `time.monotonic`."""
        if math.isinf(deadline):
            yield
        elif self.is_sqlite:
            raw: Any = connection.connection.driver_connection
            raw.set_progress_handler(lambda: time.monotonic() >= deadline, _INSTRUCTIONS)
            try:
                yield
            finally:
                raw.set_progress_handler(None, 0)
        else:
            milliseconds = int(1000 * (deadline - time.monotonic()))
            connection.execute(
                text("SELECT set_config('statement_timeout', :milliseconds, true)"),
                {"milliseconds": str(max(1, milliseconds))},
            )
            yield

    def now(self, connection: Connection) -> int:
        """The time in seconds since 1970, by the clock that all servers of the database share."""
        if self.is_sqlite:
            return int(time.time())
        statement = text("SELECT CAST(floor(extract(epoch FROM clock_timestamp())) AS bigint)")
        return int(connection.execute(statement).scalar_one())

    def insert_new(self, table: Table) -> Insert:
        """An `INSERT` that leaves rows alone that are there."""
        return self._insert(table).on_conflict_do_nothing()

    def upsert(
        self,
        table: Table,
        keys: Collection[str],
        values: Iterable[str],
        where: ColumnElement[bool] | None = None,
    ) -> Insert:
        """An `INSERT` that replaces the values of rows with the same keys, if they are `where`."""
        insert = self._insert(table)
        return insert.on_conflict_do_update(
            index_elements=keys,
            set_={name: insert.excluded[name] for name in values},
            where=where,
        )

    def _insert(self, table: Table) -> sqlite.Insert | postgresql.Insert:
        return sqlite.insert(table) if self.is_sqlite else postgresql.insert(table)

    def bytes(self, connection: Connection) -> int:
        """Size of the stored data in bytes."""
        return size.in_sqlite(connection) if self.is_sqlite else size.in_postgresql(connection)

    def close(self) -> None:
        self._writer.dispose()
        self._reader.dispose()


def among(column: ColumnElement[int], name: str, *, is_sqlite: bool) -> ColumnElement[bool]:
    """Whether a column is among the numbers of one parameter, a list of any length."""
    if is_sqlite:
        numbers = func.json_each(bindparam(name, type_=JSON)).table_valued("value")
        return column.in_(select(numbers.c.value))
    return column == func.any(cast(bindparam(name), ARRAY(BigInteger)))


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
        backend = parsed.get_backend_name()
    except (ArgumentError, NoSuchModuleError):
        backend = ""
    if backend == "sqlite" and parsed.drivername == "sqlite":
        return parsed
    if backend == "postgresql":
        return parsed.set(drivername="postgresql+psycopg")
    raise StartError(f"{_SETTING}: expected sqlite:///PATH or postgresql://USER@HOST/DATABASE")


def _without_secrets(url: URL) -> str:
    """The URL for messages: options such as `password` may be secrets."""
    shown = {name: url.query[name] for name in ("host", "port") if name in url.query}
    return url.set(query=shown).render_as_string(hide_password=True)


def _set_up_sqlite(engine: Engine, *, begin: str) -> None:
    """Let SQLAlchemy begin transactions, as sqlite3 would begin them too late to be a snapshot."""

    @event.listens_for(engine, "connect")
    def connect(connection: Any, _: object) -> None:  # noqa: ANN401 - of sqlite3
        connection.isolation_level = None
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}").close()

    @event.listens_for(engine, "begin")
    def start(connection: Connection) -> None:
        connection.exec_driver_sql(begin)
