"""Reads which sums other servers of the database have written, and which series they deleted."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Connection, func, select

from foretell.service.ledger.recent_errors import Pair
from foretell.service.ledger.store import MOST_KEYS, Store
from foretell.service.ledger.tables import CONFIGURATIONS, SERIES, SUMS

# Rows that are read together.
_ROWS = 1000
# Seconds before the first look whose changes are new.
_FIRST_SECONDS = 120
# Seconds that are read again: the clock of the database may be set back.
_AGAIN_SECONDS = 60


class Changes:
    """Versions and series whose sums were written since the last look.

    Sums have the time of the database, and one server writes at a time: what is committed later
    never has an earlier time.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._since: int | None = None
        # When the sums of the latest pairs were written.
        self._seen: dict[Pair, int] = {}

    def read(self, connection: Connection) -> list[Pair]:
        """Pairs of a version and a series, those that were written first at first."""
        now = self._store.now(connection)
        since = now - _FIRST_SECONDS if self._since is None else self._since
        last = func.max(SUMS.c.written)
        rows = connection.execute(
            select(CONFIGURATIONS.c.version, SUMS.c.series, last.label("written"))
            .join(CONFIGURATIONS, SUMS.c.configuration == CONFIGURATIONS.c.id)
            .where(SUMS.c.written >= since)
            .group_by(CONFIGURATIONS.c.version, SUMS.c.series)
            .order_by(last),
            execution_options={"yield_per": _ROWS},
        )
        written = {(row.version, row.series): row.written for row in rows}
        new = [pair for pair, moment in written.items() if self._seen.get(pair) != moment]
        latest = max(written.values(), default=since + _AGAIN_SECONDS)
        self._since = min(latest, now) - _AGAIN_SECONDS
        # Sums may be written once more within this second.
        self._seen = {pair: moment for pair, moment in written.items() if moment < now}
        return new


def missing(connection: Connection, series: Iterable[int]) -> set[int]:
    """Select the ids of series that are no longer in the ledger."""
    ids = {*series}
    wanted, found = [*ids], set[int]()
    for start in range(0, len(wanted), MOST_KEYS):
        part = wanted[start : start + MOST_KEYS]
        found.update(connection.execute(select(SERIES.c.id).where(SERIES.c.id.in_(part))).scalars())
    return ids - found
