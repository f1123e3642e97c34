"""Learns offsets of quantiles in the background, from the errors in the ledger."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from foretell.bundle.calibration import Calibration
from foretell.service.engine.learned import Key, LearnedOffsets, Offsets
from foretell.service.engine.registry import Registry
from foretell.service.ledger.adaptive import LATEST_ORIGINS, learn, pool
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import SELECT_FORECASTS, actuals, forecasts
from foretell.service.ledger.tables import ACTUALS, CHANNELS, FORECASTS, SERIES, VERSIONS

_logger = logging.getLogger(__name__)

# Series from which the offsets of a model are learned: those that changed last.
_POOLED = 20
# Series that are learned after a start: those with the latest forecasts.
_FIRST = 2000

# Ids of a version and of a series.
Pair = tuple[int, int]


class Errors(NamedTuple):
    """Errors of the latest origins of a series.

    Attributes:
        errors: `[origins, steps, channels]`, in units of the scale; NaN where unknown.
        positions: `[origins]`, in steps on one time axis of all series.
    """

    errors: NDArray[np.float64]
    positions: NDArray[np.int64]

    def equals(self, other: Errors) -> bool:
        return np.array_equal(self.positions, other.positions) and np.array_equal(
            self.errors, other.errors, equal_nan=True
        )


class Learner:
    """A thread that learns the offsets of series whose sums have changed.

    Attributes:
        duty: Share of one core that learning may take.
        pool_seconds: Least time between two times of learning a model's offsets.
    """

    def __init__(
        self, store: Store, registry: Callable[[], Registry], learned: LearnedOffsets
    ) -> None:
        self.duty = 0.1
        self.pool_seconds = 30.0
        self._store = store
        self._registry = registry
        self._learned = learned
        # Notified when there is something to learn, when it was learned, and at the end.
        self._condition = threading.Condition()
        self._is_learning = True
        self._pending: OrderedDict[Pair, None] = OrderedDict()
        self._stopping = threading.Event()
        # Errors by version and series, and when a version's offsets were last learned from them.
        self._errors: defaultdict[Key, OrderedDict[int, Errors]] = defaultdict(OrderedDict)
        self._pooled_at: dict[Key, float] = {}
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def changed(self, pairs: Iterable[Pair]) -> None:
        """Note pairs of a version and a series whose errors have changed."""
        with self._condition:
            self._pending.update(dict.fromkeys(pairs))
            self._condition.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait until everything is learned; returns whether it is after this many seconds."""
        with self._condition:
            return self._condition.wait_for(
                lambda: not self._pending and not self._is_learning, seconds
            )

    def close(self) -> None:
        self._stopping.set()
        with self._condition:
            self._condition.notify_all()
        self._thread.join(5)

    def _run(self) -> None:
        try:
            with self._store.read() as connection:
                self.changed(_latest(connection))
        except SQLAlchemyError as error:
            _logger.error("the ledger could not be read to learn intervals: %s", error)
        while (pair := self._next()) is not None:
            began = time.monotonic()
            try:
                self._learn(*pair)
            except SQLAlchemyError as error:
                _logger.error("the ledger could not be read to learn intervals: %s", error)
            except Exception:
                _logger.exception("intervals could not be learned")
            self._stopping.wait((time.monotonic() - began) * (1 / self.duty - 1))

    def _next(self) -> Pair | None:
        """The pair that has waited longest; None at the end."""
        with self._condition:
            self._is_learning = False
            self._condition.notify_all()
            self._condition.wait_for(lambda: self._pending or self._stopping.is_set())
            if self._stopping.is_set():
                return None
            self._is_learning = True
            return self._pending.popitem(last=False)[0]

    def _learn(self, version: int, series: int) -> None:
        """Learn the offsets of a series, and sometimes those of its model."""
        with self._store.read() as connection:
            named = connection.execute(
                select(VERSIONS.c.model, VERSIONS.c.version, SERIES.c.namespace, SERIES.c.name)
                .join(SERIES, SERIES.c.id == series)
                .where(VERSIONS.c.id == version)
            ).one_or_none()
            if named is None:
                # The series was deleted.
                return
            model = self._registry().get(named.model, named.version).model
            if model is None or model.intervals.calibration is None:
                return
            stored = model.intervals.calibration
            most = stored.offsets.shape[1]
            found = read_errors(connection, version, series, model.manifest.targets, most)
        if found is None:
            return
        of_model, key = Key(named.model, named.version), Key(*named)
        before, known = self._errors[of_model].get(series), self._learned.find(*named)
        if before is not None and found.equals(before) and known is not None and known[1] == key:
            # Only forecasts are new.
            return
        prior = self._learn_model(of_model, series, found, stored)
        learned = learn(found.errors, found.positions, prior)
        self._learned.put(key, Offsets(learned.calibration, int(learned.origins.max())))

    def _learn_model(
        self, key: Key, series: int, found: Errors, stored: Calibration
    ) -> Calibration:
        """The prior of a series: the offsets of its model, learned anew if they are not recent.

        It is the bundle's if no other series is known: else errors would count twice.
        """
        own = self._errors[key]
        own[series] = found
        own.move_to_end(series)
        if len(own) > _POOLED:
            own.popitem(last=False)
        known, now = self._learned.of_model(key), time.monotonic()
        if known is not None and now - self._pooled_at[key] < self.pool_seconds:
            return known.calibration if len(own) > 1 else stored
        steps = max(each.errors.shape[1] for each in own.values())
        errors, positions = pool(
            [_padded(each.errors, steps) for each in own.values()],
            [each.positions for each in own.values()],
        )
        learned = learn(errors, positions, stored)
        self._learned.put(key, Offsets(learned.calibration, int(learned.origins.max())))
        self._pooled_at[key] = now
        return learned.calibration if len(own) > 1 else stored


def read_errors(
    connection: Connection, version: int, series: int, channels: Sequence[str], most_steps: int
) -> Errors | None:
    """Errors of the latest forecasts of a series by a version; None without any.

    Forecasts from the last actual value or later have none yet.
    """
    last = (
        select(func.max(ACTUALS.c.time))
        .join(CHANNELS, ACTUALS.c.channel == CHANNELS.c.id)
        .where(CHANNELS.c.series == series)
        .scalar_subquery()
    )
    rows = connection.execute(
        SELECT_FORECASTS.add_columns(FORECASTS.c.origin, FORECASTS.c.ends)
        .where(
            FORECASTS.c.version == version, FORECASTS.c.series == series, FORECASTS.c.origin < last
        )
        .order_by(FORECASTS.c.origin.desc())
        .limit(LATEST_ORIGINS)
    ).all()
    if not rows:
        return None
    known = actuals(connection, series, rows[-1].origin, max(row.ends for row in rows) + 1)
    if known is None:
        return None
    steps = min(most_steps, max(row.steps for row in rows))
    parts, moments = [], []
    for stored in forecasts(rows):
        bodies = stored.bodies
        actual = known.at(bodies.times, channels)
        with np.errstate(all="ignore"):
            errors = (actual - bodies.mean) / bodies.scale[:, None]
        parts.append(_padded(errors[:, :steps], steps))
        moments.append(bodies.times[:, 0])
    errors, times = np.concatenate(parts), np.concatenate(moments)
    order = np.argsort(times, kind="stable")
    # Months are not equally long, but no two are mistaken for each other.
    step = (rows[0].ends - rows[0].origin) / rows[0].steps
    positions = np.round(times[order] / step).astype(np.int64)
    return Errors(errors[order], positions)


def _padded(errors: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Errors with unknown ones for further steps."""
    missing = steps - errors.shape[1]
    return np.pad(errors, ((0, 0), (0, missing), (0, 0)), constant_values=np.nan)


def _latest(connection: Connection) -> list[Pair]:
    """Versions and series with the latest forecasts, the latest first."""
    rows = connection.execute(
        select(FORECASTS.c.version, FORECASTS.c.series)
        .group_by(FORECASTS.c.version, FORECASTS.c.series)
        .order_by(func.max(FORECASTS.c.id).desc())
        .limit(_FIRST)
    )
    return [(row.version, row.series) for row in rows]
