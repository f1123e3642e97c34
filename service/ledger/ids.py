"""The ids of rows that many others refer to; missing rows are added."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from sqlalchemy import Connection, Table, select, tuple_

from foretell.service.ledger.store import MOST_KEYS, Store
from foretell.service.ledger.tables import CHANNELS, CONFIGURATIONS, SERIES, VERSIONS

# Most remembered ids of a table.
_MOST = 100_000

Key = tuple[Any, ...]


class Ids:
    """Remembers ids between transactions; `forget` them after one that failed."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[str, dict[Key, int]] = {}

    def forget(self) -> None:
        self._known.clear()

    def versions(self, connection: Connection, keys: Iterable[Key]) -> dict[Key, int]:
        """Ids by `(model, version, channels, digest)`."""
        columns = ("model", "version", "channels", "digest")
        return self._ids(connection, VERSIONS, columns, keys)

    def configurations(self, connection: Connection, keys: Iterable[Key]) -> dict[Key, int]:
        """Ids by `(version, steps, levels, calibration)`."""
        columns = ("version", "steps", "levels", "calibration")
        return self._ids(connection, CONFIGURATIONS, columns, keys)

    def series(self, connection: Connection, keys: Iterable[Key]) -> dict[Key, int]:
        """Ids by `(namespace, name, frequency)`."""
        return self._ids(connection, SERIES, ("namespace", "name", "frequency"), keys)

    def channels(self, connection: Connection, keys: Iterable[Key]) -> dict[Key, int]:
        """Ids by `(series, name)`."""
        return self._ids(connection, CHANNELS, ("series", "name"), keys)

    def _ids(
        self, connection: Connection, table: Table, names: tuple[str, ...], keys: Iterable[Key]
    ) -> dict[Key, int]:
        known = self._known.setdefault(table.name, {})
        wanted = dict.fromkeys(keys)
        if len(known) > _MOST:
            known.clear()
        missing = [key for key in wanted if key not in known]
        columns = [table.c[name] for name in names]
        for start in range(0, len(missing), MOST_KEYS):
            part = missing[start : start + MOST_KEYS]
            rows = [dict(zip(names, key, strict=True)) for key in part]
            connection.execute(self._store.insert_new(table), rows)
            found = connection.execute(
                select(table.c.id, *columns).where(tuple_(*columns).in_(part))
            )
            known |= {tuple(row[1:]): row[0] for row in found}
        return {key: known[key] for key in wanted}
