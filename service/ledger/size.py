"""How many bytes the data of a ledger take."""

from __future__ import annotations

from sqlalchemy import Connection, text

# PostgreSQL's bytes of a row beside its values, with its entries in indexes.
_OF_ROWS = {"forecasts": 150, "actuals": 60, "sums": 100}


def in_sqlite(connection: Connection) -> int:
    """Bytes of all pages that are in use."""
    pages, free, size = (
        connection.execute(text(f"PRAGMA {name}")).scalar_one()
        for name in ("page_count", "freelist_count", "page_size")
    )
    return int((pages - free) * size)


def in_postgresql(connection: Connection) -> int:
    """Bytes of the living rows, by the server's own counts and the size of some of them.

    The size of the files is no measure: it stays when rows are deleted.
    """
    largest = connection.execute(text("SELECT pg_database_size(current_database())")).scalar_one()
    counts = connection.execute(text("SELECT relname, n_live_tup FROM pg_stat_user_tables"))
    rows = {name: count for name, count in counts if name in _OF_ROWS}
    total = 0.0
    for name, count in rows.items():
        part = f"SELECT * FROM {name} LIMIT 100"  # noqa: S608 - a name of above
        size = connection.execute(
            text(f"SELECT avg(pg_column_size(part.*)) FROM ({part}) AS part")  # noqa: S608
        ).scalar()
        total += count * (float(size or 0) + _OF_ROWS[name])
    return int(min(total, largest))
