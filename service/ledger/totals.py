"""Totals of the sums of all series of a namespace, by configuration and day.

A change of sums marks their totals as outdated. The writer adds these up about once a minute; a
reader before it adds them up for itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np
from sqlalchemy import Connection, delete, select

from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import SERIES, SUMS, TOTALS

# Configuration, namespace and day.
Key = tuple[int, str, int]

_OUTDATED = b""


def mark_outdated(connection: Connection, store: Store, keys: Iterable[Key]) -> None:
    """Mark totals whose sums have changed."""
    _write(connection, store, [(key, _OUTDATED) for key in sorted(keys)])


def refresh(connection: Connection, store: Store, most: int, seconds: float) -> bool:
    """Add up outdated totals; returns whether there are more.

    Args:
        connection: In a transaction, which others wait for.
        store: The database.
        most: Most totals to add up.
        seconds: Time after which it begins with no other one.
    """
    end = time.monotonic() + seconds
    found = connection.execute(
        select(TOTALS.c.configuration, TOTALS.c.namespace, TOTALS.c.day)
        .where(TOTALS.c.sums == _OUTDATED)
        .limit(most)
    ).all()
    added = []
    for key in found:
        added.append((tuple(key), add_up(connection, *key)))
        if time.monotonic() > end:
            break
    _write(connection, store, [(key, sums) for key, sums in added if sums])
    for (configuration, namespace, day), sums in added:
        if not sums:
            connection.execute(
                delete(TOTALS).where(
                    TOTALS.c.configuration == configuration,
                    TOTALS.c.namespace == namespace,
                    TOTALS.c.day == day,
                )
            )
    return len(added) < len(found) or len(found) == most


def add_up(connection: Connection, configuration: int, namespace: str, day: int) -> bytes:
    """The total of a day; empty if no series has sums of it."""
    rows = connection.execute(
        select(SUMS.c.sums)
        .join(SERIES, SUMS.c.series == SERIES.c.id)
        .where(
            SUMS.c.configuration == configuration,
            SUMS.c.day == day,
            SERIES.c.namespace == namespace,
        ),
        execution_options={"yield_per": 1000},
    )
    total = None
    for part in rows.scalars().partitions():
        added = np.frombuffer(b"".join(part), np.float64).reshape(len(part), -1).sum(axis=0)
        total = added if total is None else total + added
    return b"" if total is None else bytes(total.tobytes())


def _write(connection: Connection, store: Store, totals: list[tuple[Key, bytes]]) -> None:
    if not totals:
        return
    keys = ("configuration", "namespace", "day")
    connection.execute(
        store.upsert(TOTALS, keys, ["sums"]),
        [dict(zip((*keys, "sums"), (*key, sums), strict=True)) for key, sums in totals],
    )
