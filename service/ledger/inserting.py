"""Writes many forecasts with few statements."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Insert,
    Integer,
    LargeBinary,
    Text,
    bindparam,
    cast,
    exists,
    func,
    literal_column,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.types import TypeEngine

from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import ACTUALS, CHANNELS, FORECASTS

# Most bytes of the bodies of a statement, and most rows of one of SQLite: some versions bound the
# parameters at 999. The interpreter's lock changes hands with each statement, not with each row.
_BYTES = 1 << 24
_ROWS = 64
_COLUMNS = (
    *("version", "series", "origin", "configuration", "ends", "answer", "made", "input", "body"),
)


class Row(NamedTuple):
    """A row of `FORECASTS`."""

    version: int
    series: int
    origin: int
    configuration: int
    ends: int
    answer: str
    made: int
    input: int
    body: bytes


def upsert(connection: Connection, store: Store, rows: Sequence[Row]) -> int:
    """Write forecasts of one configuration with bodies of one size.

    A forecast replaces an earlier one of the same version, series and origin, until a value of its
    horizon is known: later, it might come from what it should tell.

    Args:
        connection: In a transaction.
        store: The database.
        rows: At least one; no two may have the same version, series and origin.

    Returns:
        How many were written.
    """
    most, at, written = max(1, _BYTES // len(rows[0].body)), 0, 0
    while at < len(rows):
        count = min(most, len(rows) - at)
        if store.is_sqlite:
            # The next smaller power of two: each number of rows is a statement of its own.
            count = 1 << min(count, _ROWS).bit_length() - 1
            values = tuple(chain.from_iterable(rows[at : at + count]))
            result = connection.exec_driver_sql(_in_sqlite(count), values)
        else:
            result = connection.execute(_IN_POSTGRESQL, _lists(rows[at : at + count]))
        written += result.rowcount
        at += count
    return written


def _lists(rows: Sequence[Row]) -> dict[str, Any]:
    """The parameters of `_IN_POSTGRESQL`."""
    first = rows[0]
    return {
        "version": first.version,
        "configuration": first.configuration,
        "made": first.made,
        "series": [row.series for row in rows],
        "origin": [row.origin for row in rows],
        "ends": [row.ends for row in rows],
        "answer": [row.answer for row in rows],
        "input": [row.input for row in rows],
        "bodies": b"".join(row.body for row in rows),
        "size": len(first.body),
    }


def _replacing(insert: sqlite.Insert | postgresql.Insert) -> Insert:
    # Columns of the table itself would add it to the tables of the inner statement.
    series, origin, ends = (
        literal_column(f"{FORECASTS.name}.{name}", BigInteger)
        for name in ("series", "origin", "ends")
    )
    known = exists(
        select(ACTUALS.c.time)
        .join(CHANNELS, ACTUALS.c.channel == CHANNELS.c.id)
        .where(CHANNELS.c.series == series, ACTUALS.c.time > origin, ACTUALS.c.time <= ends)
    )
    keys = ("series", "version", "origin")
    return insert.on_conflict_do_update(
        index_elements=keys,
        set_={name: insert.excluded[name] for name in _COLUMNS if name not in keys},
        where=~known,
    )


@lru_cache
def _in_sqlite(rows: int) -> str:
    insert = sqlite.insert(FORECASTS).values([dict.fromkeys(_COLUMNS)] * rows)
    return str(_replacing(insert).compile(dialect=sqlite.dialect()))


def _in_postgresql() -> Insert:
    """One statement for any number of rows; the bodies are one after the other."""
    kinds: dict[str, type[TypeEngine[Any]]] = {
        "series": BigInteger,
        "origin": BigInteger,
        "ends": BigInteger,
        "answer": Text,
        "input": BigInteger,
    }
    arrays: list[ColumnElement[Any]] = [
        cast(bindparam(name), ARRAY(kind)) for name, kind in kinds.items()
    ]
    rows = func.unnest(*arrays).table_valued(*kinds, with_ordinality="number").render_derived()
    size, place = cast(bindparam("size"), Integer), cast(rows.c.number, Integer) - 1
    body = func.substring(bindparam("bodies", type_=LargeBinary), place * size + 1, size)
    given = {name: rows.c[name] for name in kinds} | {"body": body}
    columns = [given.get(name, cast(bindparam(name), BigInteger)) for name in _COLUMNS]
    return _replacing(postgresql.insert(FORECASTS).from_select(_COLUMNS, select(*columns)))


# Without the option SQLAlchemy does not look how many rows an `INSERT` wrote.
_IN_POSTGRESQL = _in_postgresql().execution_options(preserve_rowcount=True)
