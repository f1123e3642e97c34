"""Deletes old forecasts and values, and single series."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, case, delete, exists, func, select, update

from foretell.service.ledger.days import DAY, DAY_SECONDS, NO_DAY
from foretell.service.ledger.store import Store
from foretell.service.ledger.tables import ACTUALS, CHANNELS, FORECASTS, SERIES, SUMS
from foretell.service.ledger.totals import mark_outdated

# Share of the time that is deleted at once while the database is too large.
_SHARE = 0.1
# Most forecasts, and most series, of a transaction: others wait for it.
_MOST = 5000
_MOST_SERIES = 500


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


def prune_forecasts(connection: Connection, before: int) -> bool:
    """Delete some forecasts made before a time in seconds; returns whether there are more.

    The sums of their days, up to the last day that has any, stay as they are until `prune_values`.
    Only today's and later days go on with the forecasts that are left.
    """
    oldest = connection.execute(
        select(FORECASTS.c.id, FORECASTS.c.series, FORECASTS.c.origin, FORECASTS.c.ends)
        .where(FORECASTS.c.made < before)
        .order_by(FORECASTS.c.made)
        .limit(_MOST)
    ).all()
    for series, day in _last_summed_days(connection, oldest).items():
        later = case((SERIES.c.frozen > day, SERIES.c.frozen), else_=day)
        connection.execute(update(SERIES).where(SERIES.c.id == series).values(frozen=later))
    ids = [each.id for each in oldest]
    connection.execute(delete(FORECASTS).where(FORECASTS.c.id.in_(ids)))
    return len(oldest) == _MOST


def _last_summed_days(connection: Connection, forecasts: Sequence[Any]) -> dict[int, int]:
    """The last day before today, by series, whose sums may have errors of the forecasts."""
    found = connection.execute(
        select(SUMS.c.series, func.max(SUMS.c.day))
        .where(SUMS.c.series.in_({each.series for each in forecasts}))
        .group_by(SUMS.c.series)
    )
    yesterday = int(time.time()) // DAY_SECONDS - 1
    known = {series: min(day, yesterday) for series, day in found}
    days: dict[int, int] = {}
    for each in forecasts:
        last = known.get(each.series)
        # Forecasts may reach years beyond the actual values, or lie there by mistake.
        if last is not None and each.origin // DAY <= last:
            days[each.series] = max(min(each.ends // DAY, last), days.get(each.series, NO_DAY))
    return days


def prune_values(connection: Connection, store: Store, before: int, after: int) -> int | None:
    """Delete actual values and sums that were written before a time in seconds.

    Args:
        connection: In a transaction.
        store: The database.
        before: The time.
        after: The id of a series: some that follow are looked at.

    Returns:
        The id of the last of them; None if no series follows.
    """
    following = select(SERIES.c.id).where(SERIES.c.id > after).order_by(SERIES.c.id)
    ids: list[int] = [*connection.execute(following.limit(_MOST_SERIES)).scalars()]
    if not ids:
        return None
    channels = select(CHANNELS.c.id).where(CHANNELS.c.series.in_(ids))
    connection.execute(
        delete(ACTUALS).where(ACTUALS.c.channel.in_(channels), ACTUALS.c.written < before)
    )
    old = SUMS.c.series.in_(ids) & (SUMS.c.written < before)
    days = connection.execute(
        select(SUMS.c.configuration, SERIES.c.namespace, SUMS.c.day)
        .join(SERIES, SUMS.c.series == SERIES.c.id)
        .where(old)
        .distinct()
    )
    mark_outdated(connection, store, {tuple(each) for each in days})
    connection.execute(delete(SUMS).where(old))
    of_channel = exists().where(ACTUALS.c.channel == CHANNELS.c.id)
    connection.execute(delete(CHANNELS).where(CHANNELS.c.series.in_(ids), ~of_channel))
    parts = (exists().where(table.c.series == SERIES.c.id) for table in (FORECASTS, CHANNELS, SUMS))
    connection.execute(delete(SERIES).where(SERIES.c.id.in_(ids), *(~part for part in parts)))
    return ids[-1]


def edge_of(connection: Connection, store: Store, most_bytes: int) -> int | None:
    """The time in seconds before which to delete for room; None if the database is small enough.

    It lies after a tenth of the time since the oldest forecast, actual value or sum was written.
    """
    if store.bytes(connection) <= most_bytes:
        return None
    columns = FORECASTS.c.made, ACTUALS.c.written, SUMS.c.written
    found = [connection.execute(select(func.min(each))).scalar() for each in columns]
    oldest = min((each for each in found if each is not None), default=None)
    if oldest is None:
        return None
    return int(oldest + max(1, _SHARE * (time.time() - oldest)))
