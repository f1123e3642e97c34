"""Reads which sums other servers of the database have written, and which series they deleted."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, func, select, tuple_

from foretell.service.ledger.recent_errors import Pair
from foretell.service.ledger.store import MOST_KEYS
from foretell.service.ledger.tables import CONFIGURATIONS, SERIES, SUMS

# Most pairs at a time, those that were written last.
_MOST = 2000


def changed_since(connection: Connection, written: int) -> tuple[list[Pair], int]:
    """Versions and series whose sums were written at a time in seconds or later.

    Returns:
        Pairs of their ids, and the last time at which one was written.
    """
    last = func.max(SUMS.c.written)
    rows = connection.execute(
        select(CONFIGURATIONS.c.version, SUMS.c.series, last.label("written"))
        .join(CONFIGURATIONS, SUMS.c.configuration == CONFIGURATIONS.c.id)
        .where(SUMS.c.written >= written)
        .group_by(CONFIGURATIONS.c.version, SUMS.c.series)
        .order_by(last.desc())
        .limit(_MOST)
    ).all()
    return [(row.version, row.series) for row in rows], max(
        (row.written for row in rows), default=written
    )


def missing(connection: Connection, series: Iterable[tuple[str, str]]) -> set[tuple[str, str]]:
    """Select the namespaces and names of series that the ledger does not know."""
    names = [*series]
    found: set[tuple[str, str]] = set()
    for start in range(0, len(names), MOST_KEYS):
        columns = SERIES.c.namespace, SERIES.c.name
        rows = connection.execute(
            select(*columns).where(tuple_(*columns).in_(names[start : start + MOST_KEYS]))
        )
        found.update((row.namespace, row.name) for row in rows)
    return {*names} - found
