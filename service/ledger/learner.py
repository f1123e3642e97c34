"""Learns offsets of quantiles in the background, from the errors in the ledger."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, func, select
from sqlalchemy.exc import SQLAlchemyError

from foretell.bundle.calibration import Calibration
from foretell.service.engine.learned import Key, LearnedOffsets, Offsets
from foretell.service.engine.registry import Model, Registry
from foretell.service.ledger.adaptive import LATEST_ORIGINS, learn, pool
from foretell.service.ledger.changes import Changes, missing
from foretell.service.ledger.faults import log_error
from foretell.service.ledger.positions import positions
from foretell.service.ledger.recent_errors import Errors, Pair, RecentErrors
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import SELECT_FORECASTS, actuals, forecasts
from foretell.service.ledger.tables import ACTUALS, CHANNELS, FORECASTS, SERIES, VERSIONS
from foretell.timeaxis.frequency import Frequency

_logger = logging.getLogger(__name__)

# Series from which the offsets of a namespace are learned: those that changed last.
_POOLED = 20
# Most bytes of the errors of these series, of all versions and namespaces.
_ERRORS_BYTES = 256 * 1024 * 1024
# Most series with the latest forecasts that are learned after their versions were loaded.
_FIRST = 2000
# How often it looks for loaded versions, and its rest after a failure of the database.
_LOOK_SECONDS = 1.0
_FAILURE_SECONDS = 5.0


class Learner:
    """A thread that learns the offsets of series whose sums have changed.

    Attributes:
        duty: Share of one core that learning may take.
        pool_seconds: Least time between two times of learning the offsets of a namespace.
        poll_seconds: Time between looks for what other servers of the database have changed.
    """

    def __init__(
        self, store: Store, registry: Callable[[], Registry], learned: LearnedOffsets
    ) -> None:
        self.duty = 0.1
        self.pool_seconds = 30.0
        self.poll_seconds = 30.0
        self._store = store
        self._registry = registry
        self._learned = learned
        # Notified when there is something to learn, when it was learned, and at the end.
        self._condition = threading.Condition()
        self._is_learning = True
        self._pending: OrderedDict[Pair, None] = OrderedDict()
        self._stopping = threading.Event()
        # Series that were deleted since the learning of the current one began.
        self._deleted: set[tuple[str, str]] = set()
        self._errors = RecentErrors(_ERRORS_BYTES, _POOLED)
        # When the offsets of all series of a namespace were last learned.
        self._pooled_at: dict[Key, float] = {}
        # The last registry it has seen, and its versions with the digests of their manifests.
        self._seen: Registry | None = None
        self._loaded: dict[tuple[str, str], str] = {}
        self._polled_at = time.monotonic()
        self._changes = Changes(store)
        # Ids of the versions and series whose offsets are learned.
        self._ids: dict[Key, Pair] = {}
        self._thread = threading.Thread(target=self._run, name="learner", daemon=True)
        self._thread.start()

    def changed(self, pairs: Iterable[Pair]) -> None:
        """Note pairs of a version and a series whose errors have changed."""
        with self._condition:
            self._pending.update(dict.fromkeys(pairs))
            self._condition.notify_all()

    def forget(self, namespace: str, name: str) -> None:
        """Forget a series that is deleted, and learn anew what others have learned from it."""
        with self._condition:
            self._deleted.add((namespace, name))
            self._learned.forget_series(namespace, name)
            for key in self._errors:
                if key[2:] == (namespace, name):
                    self._errors.remove(key)
                    self._pooled_at.pop(key.of_namespace, None)
                    rest = self._errors.of_namespace(key)
                    if not rest:
                        self._learned.forget(key.of_namespace)
                    else:
                        self._pending[[*rest.values()][-1].pair] = None
            self._condition.notify_all()

    def settle(self, seconds: float) -> bool:
        """Wait until everything is learned; returns whether it is after this many seconds."""
        with self._condition:
            return self._condition.wait_for(
                lambda: (
                    not self._pending and not self._is_learning and self._seen is self._registry()
                ),
                seconds,
            )

    def close(self) -> None:
        self._stopping.set()
        with self._condition:
            self._condition.notify_all()
        self._thread.join(5)

    def _run(self) -> None:
        while not self._stopping.is_set():
            began, pair = time.monotonic(), None
            try:
                self._look()
                self._poll()
                if (pair := self._next()) is not None:
                    began = time.monotonic()
                    self._learn(*pair)
            except SQLAlchemyError as error:
                log_error(_logger, "the ledger could not be read to learn intervals", error)
                if pair is not None:
                    self.changed([pair])
                self._stopping.wait(_FAILURE_SECONDS)
            except Exception:
                _logger.exception("intervals could not be learned")
            if pair is not None:
                self._stopping.wait((time.monotonic() - began) * (1 / self.duty - 1))

    def _look(self) -> None:
        """Learn for versions that were loaded, and forget the errors of others."""
        registry = self._registry()
        if registry is self._seen:
            return
        loaded = {
            (model.name, model.version): model.digest
            for model in registry.models
            if model.intervals.calibration is not None
        }
        new = {key for key, digest in loaded.items() if self._loaded.get(key) != digest}
        if new:
            with self._store.read() as connection:
                self.changed(_latest(connection, {(*key, loaded[key]) for key in new}))
        with self._condition:
            for key in self._errors:
                if key[:2] in new or key[:2] not in loaded:
                    self._errors.remove(key)
            for key in [*self._pooled_at]:
                if key[:2] in new or key[:2] not in loaded:
                    del self._pooled_at[key]
        self._loaded, self._seen = loaded, registry

    def _poll(self) -> None:
        """Learn what other servers have written, and forget series that are no more."""
        if time.monotonic() < self._polled_at + self.poll_seconds:
            return
        self._polled_at = time.monotonic()
        learned = {key for key, _ in self._learned.items()}
        self._ids = {key: pair for key, pair in self._ids.items() if key in learned}
        with self._store.read() as connection:
            gone = missing(connection, (series for _, series in self._ids.values()))
            if not self._store.is_sqlite:
                self.changed(self._changes.read(connection))
        names = {
            (key.namespace, key.name)
            for key, (_, series) in self._ids.items()
            if series in gone and key.name is not None
        }
        for namespace, name in names:
            self.forget(namespace, name)
            # A series of another id may have the name by now.
            self.changed(
                pair
                for key, pair in self._ids.items()
                if key[2:] == (namespace, name) and pair[1] not in gone
            )

    def _next(self) -> Pair | None:
        """The pair that has waited longest; None if none comes for a while, and at the end."""
        with self._condition:
            self._is_learning = False
            self._condition.notify_all()
            self._condition.wait_for(
                lambda: self._pending or self._stopping.is_set(), _LOOK_SECONDS
            )
            if self._stopping.is_set() or not self._pending:
                return None
            self._is_learning = True
            self._deleted.clear()
            return self._pending.popitem(last=False)[0]

    def _learn(self, version: int, series: int) -> None:
        """Learn the offsets of a series, and sometimes those of its namespace."""
        with self._store.read() as connection:
            named = connection.execute(
                select(
                    VERSIONS.c.model,
                    VERSIONS.c.version,
                    SERIES.c.namespace,
                    SERIES.c.name,
                    VERSIONS.c.digest,
                    SERIES.c.frequency,
                )
                .join(SERIES, SERIES.c.id == series)
                .where(VERSIONS.c.id == version)
            ).one_or_none()
            if named is None:
                # The series was deleted.
                return
            key = Key(*named[:4])
            # The errors of versions that were loaded after the last look may be forgotten by the
            # next one.
            assert self._seen is not None  # noqa: S101 - `_look` comes first
            model = self._seen.get(key.model, key.version).model
            if model is None or model.intervals.calibration is None:
                return
            if named.digest != model.digest:
                # The version was exported anew.
                return
            most = model.intervals.calibration.offsets.shape[1]
            frequency, channels = Frequency.parse(named.frequency), model.manifest.targets
            found = read_errors(connection, (version, series), channels, frequency, most)
        if found is None:
            return
        self._ids[key] = found.pair
        before, known = self._errors.get(key), self._learned.find(key, model.digest)
        is_known = known is not None and known[1] == key and key.of_namespace in self._pooled_at
        if is_known and before is not None and found.equals(before):
            # Only forecasts are new.
            return
        prior = self._learn_namespace(key, found, model)
        self._put(key, found.errors, found.positions, prior, model)

    def _learn_namespace(self, key: Key, found: Errors, model: Model) -> Calibration:
        """The prior of a series: the offsets of its namespace, learned anew if they are not recent.

        It is the bundle's if no other series is known: else errors would count twice.
        """
        stored = model.intervals.calibration
        assert stored is not None  # noqa: S101 - what `_learn` makes sure of
        with self._condition:
            if key[2:] not in self._deleted:
                self._errors.put(key, found)
            own = [*self._errors.of_namespace(key).values()]
        pooled, now = key.of_namespace, time.monotonic()
        if now - self._pooled_at.get(pooled, -math.inf) >= self.pool_seconds and own:
            steps = max(each.errors.shape[1] for each in own)
            errors, places = pool(
                [_padded(each.errors, steps) for each in own], [each.positions for each in own]
            )
            self._put(pooled, errors, places, stored, model)
            self._pooled_at[pooled] = now
        known = self._learned.find(pooled, model.digest)
        return stored if known is None or len(own) < 2 else known[0].calibration

    def _put(
        self,
        key: Key,
        errors: NDArray[np.float64],
        places: NDArray[np.int64],
        prior: Calibration,
        model: Model,
    ) -> None:
        """Learn offsets and keep them, unless a series was deleted that they may come from."""
        with np.errstate(over="ignore", invalid="ignore"):
            learned = learn(errors, places, prior)
        if not np.isfinite(learned.calibration.offsets).all():
            _logger.warning(
                "the actual values of %s of %r lie too far from the forecasts to learn intervals",
                "series" if key.name is None else f"the series {key.name!r}",
                f"{key.model}@{key.version}",
            )
            return
        offsets = Offsets(learned.calibration, int(learned.origins.max()), model.digest)
        with self._condition:
            if not any(
                namespace == key.namespace and key.name in (None, name)
                for namespace, name in self._deleted
            ):
                self._learned.put(key, offsets)


def read_errors(
    connection: Connection,
    pair: Pair,
    channels: Sequence[str],
    frequency: Frequency,
    most_steps: int,
) -> Errors | None:
    """Errors of the latest forecasts of a series by a version; None without any.

    Forecasts from the last actual value or later have none yet.
    """
    version, series = pair
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
    return Errors(errors[order], positions(times[order], frequency), pair)


def _padded(errors: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Errors with unknown ones for further steps."""
    missing = steps - errors.shape[1]
    return np.pad(errors, ((0, 0), (0, missing), (0, 0)), constant_values=np.nan)


def _latest(connection: Connection, versions: Collection[tuple[str, str, str]]) -> list[Pair]:
    """Ids of versions and series with the latest forecasts, the latest first.

    Args:
        connection: A connection that reads.
        versions: Models, versions and digests.
    """
    columns = VERSIONS.c.id, VERSIONS.c.model, VERSIONS.c.version, VERSIONS.c.digest
    rows = connection.execute(select(*columns))
    ids = [each.id for each in rows if each[1:] in versions]
    latest = connection.execute(
        select(FORECASTS.c.version, FORECASTS.c.series)
        .where(FORECASTS.c.version.in_(ids[-_FIRST:]))
        .group_by(FORECASTS.c.version, FORECASTS.c.series)
        .order_by(func.max(FORECASTS.c.id).desc())
        .limit(_FIRST)
    )
    return [(row.version, row.series) for row in latest]
