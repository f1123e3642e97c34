"""Deletes old forecasts and values, and single series."""

from __future__ import annotations

from sqlalchemy import Connection, case, delete, exists, func, select, update

from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import ACTUALS, CHANNELS, FORECASTS, SERIES, SUMS
from foretell.service.ledger.totals import mark_outdated

# Share of the forecasts that are deleted at a time while the database is too large.
_SHARE = 0.1
# Most forecasts of a transaction: others wait for it.
_MOST = 20_000


def delete_series(connection: Connection, store: Store, namespace: str, name: str) -> int:
    """Delete all that is stored of a series; returns in how many frequencies it was known."""
    series = connection.execute(
        select(SERIES.c.id).where(SERIES.c.namespace == namespace, SERIES.c.name == name)
    )
    ids = [*series.scalars()]
    days = connection.execute(
        select(SUMS.c.configuration, SUMS.c.day).where(SUMS.c.series.in_(ids))
    )
    mark_outdated(connection, store, {(each.configuration, namespace, each.day) for each in days})
    # The other tables follow by their foreign keys.
    connection.execute(delete(SERIES).where(SERIES.c.id.in_(ids)))
    return len(ids)


def prune(connection: Connection, store: Store, before: int) -> bool:
    """Delete what was written before a time in seconds; returns whether there is more.

    The sums of days whose forecasts are deleted stay as they are, until they are as old.
    """
    oldest = connection.execute(
        select(FORECASTS.c.id, FORECASTS.c.series, FORECASTS.c.ends)
        .where(FORECASTS.c.made < before)
        .order_by(FORECASTS.c.id)
        .limit(_MOST)
    ).all()
    ends: dict[int, int] = {}
    for each in oldest:
        ends[each.series] = max(each.ends, ends.get(each.series, each.ends))
    for series, last in ends.items():
        later = case((SERIES.c.pruned > last, SERIES.c.pruned), else_=last)
        connection.execute(update(SERIES).where(SERIES.c.id == series).values(pruned=later))
    if oldest:
        connection.execute(
            delete(FORECASTS).where(FORECASTS.c.id <= oldest[-1].id, FORECASTS.c.made < before)
        )
    if len(oldest) == _MOST:
        return True
    connection.execute(delete(ACTUALS).where(ACTUALS.c.written < before))
    old = connection.execute(
        select(SUMS.c.configuration, SERIES.c.namespace, SUMS.c.day)
        .join(SERIES, SUMS.c.series == SERIES.c.id)
        .where(SUMS.c.written < before)
        .distinct()
    )
    mark_outdated(connection, store, {tuple(each) for each in old})
    connection.execute(delete(SUMS).where(SUMS.c.written < before))
    _delete_unused(connection)
    return False


def edge_of(connection: Connection, store: Store, most_bytes: int) -> int | None:
    """The time in seconds before which `prune` makes room; None if the database is small enough."""
    if store.bytes(connection) <= most_bytes:
        return None
    lowest, highest = connection.execute(
        select(func.min(FORECASTS.c.id), func.max(FORECASTS.c.id))
    ).one()
    if lowest is None:
        return None
    place = lowest + int(_SHARE * (highest - lowest)) + 1
    made = connection.execute(
        select(FORECASTS.c.made).where(FORECASTS.c.id >= place).order_by(FORECASTS.c.id).limit(1)
    ).scalar()
    newest = select(func.max(FORECASTS.c.made))
    return int(made if made is not None else connection.execute(newest).scalar_one() + 1)


def _delete_unused(connection: Connection) -> None:
    """Delete channels without values, and series without anything."""
    of_channel = exists().where(ACTUALS.c.channel == CHANNELS.c.id)
    connection.execute(delete(CHANNELS).where(~of_channel))
    parts = (exists().where(table.c.series == SERIES.c.id) for table in (FORECASTS, CHANNELS, SUMS))
    connection.execute(delete(SERIES).where(*(~part for part in parts)))
