"""The ledger of a server: remembers forecasts and what came true, in a database."""

from __future__ import annotations

import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import numpy as np
import orjson
from sqlalchemy import Connection
from sqlalchemy.exc import SQLAlchemyError

from foretell.bundle.layout import NAME
from foretell.service.arrays import FORECAST, HISTORY, HOLES, NO_ARRAYS, Arrays
from foretell.service.engine.ipc import Remember
from foretell.service.engine.learned import LearnedOffsets
from foretell.service.engine.registry import Registry
from foretell.service.errors import (
    DeadlineExceededError,
    NotReadyError,
    ServiceError,
    UnknownModelError,
)
from foretell.service.ledger.comparison import compare
from foretell.service.ledger.days import DAY_SECONDS, Days
from foretell.service.ledger.deleting import delete_series, edge_of, prune_forecasts, prune_values
from foretell.service.ledger.faults import cause_of, log_error
from foretell.service.ledger.gauges import Recent, Waiting, read_recent, write
from foretell.service.ledger.ids import Ids
from foretell.service.ledger.keeping import Record, before_hindsight, keep, moments
from foretell.service.ledger.learner import Learner
from foretell.service.ledger.observing import Observed, Written, observe
from foretell.service.ledger.pairing import read_pairs
from foretell.service.ledger.reading import Selection, accuracy, is_known, newest_or_worst
from foretell.service.ledger.recent_errors import Pair
from foretell.service.ledger.scores import By
from foretell.service.ledger.store import Store
from foretell.service.ledger.summing import add_up
from foretell.service.ledger.totals import refresh
from foretell.service.ledger.trajectories import trajectories
from foretell.service.ledger.writer import Writer
from foretell.service.metrics import LEDGER_ACTUALS, LEDGER_FORECASTS, Metrics
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

# Most series whose actual values one transaction writes: long horizons take a second each.
_SERIES = 10
# Totals that are added up in one transaction, and its seconds: others wait for it.
_TOTALS, _TOTALS_SECONDS = 100, 0.25
# Most of these transactions in a row: totals may be outdated faster than they are added up.
_TURNS = 200
# Time between looks at all actual values and sums for those that are too old.
_VALUES_SECONDS = 6 * 3600


class DatabaseLedger:
    """Implements `engine.Ledger`."""

    writes = frozenset({"observe", "delete"})

    def __init__(
        self,
        store: Store,
        settings: Settings,
        registry: Callable[[], Registry],
        metrics: Metrics,
    ) -> None:
        self._store = store
        self._settings = settings
        self._registry = registry
        self._metrics = metrics
        self._ids = Ids(store)
        self._recent = Recent({}, {})
        self._values_at = time.monotonic()
        for outcome in ("kept", "late", "dropped", "failed"):
            metrics.counts.add(LEDGER_FORECASTS, outcome, amount=0)
        for outcome in asdict(Written()):
            metrics.counts.add(LEDGER_ACTUALS, outcome, amount=0)
        self._methods: dict[str, Callable[..., tuple[Any, Arrays]]] = {
            "observe": self._observe,
            "delete": self._delete,
            "accuracy": self._accuracy,
            "trajectories": self._trajectories,
            "compare": self._compare,
        }
        self.learned = LearnedOffsets()
        # Pairs of version and series, and histories, in the current transaction.
        self._changed: set[Pair] = set()
        self._written: list[Written] = []
        self.learner = Learner(store, registry, self.learned)
        self._writer = Writer(
            store,
            metrics,
            settings.ledger_queue_bytes,
            write=self._write,
            committed=self._commit,
            failed=self._undo,
            chores=self._do_chores,
        )

    @classmethod
    def open(
        cls, settings: Settings, registry: Callable[[], Registry], metrics: Metrics
    ) -> DatabaseLedger:
        """Open the ledger of the settings; StartError if its database cannot be opened."""
        assert settings.ledger is not None  # noqa: S101 - its caller has seen it
        store = Store(settings.ledger.get_secret_value())
        store.open()
        return cls(store, settings, registry, metrics)

    @property
    def keeps(self) -> bool:
        return not self._writer.full

    def remember(self, message: Remember, arrays: Arrays) -> None:
        model = self._registry().get(message.model, message.version).model
        if model is None or model.digest != message.digest:
            # It was unloaded after the forecast, or another bundle took its place.
            self._metrics.counts.add(LEDGER_FORECASTS, "dropped", amount=len(message.names))
            return
        self._writer.put(Record(message, arrays, model.manifest, model.intervals))

    def call(self, method: str, arguments: Sequence[Any], arrays: Arrays) -> tuple[Any, Arrays]:
        # The last argument of a method that reads is its deadline, by `time.monotonic`.
        deadline = math.inf if method in self.writes else arguments[-1]
        try:
            if time.monotonic() < deadline:
                return self._methods[method](*arguments, arrays)
        except SQLAlchemyError as error:
            if time.monotonic() < deadline:
                log_error(_logger, "the ledger failed", error)
                if cause_of(error) == "data":
                    raise ServiceError("the server failed; its log says why") from None
                raise NotReadyError(
                    "the database of the ledger does not answer", retry_after=5
                ) from None
        raise DeadlineExceededError("the deadline passed before the ledger was read")

    def gauges(self) -> Iterator[bytes]:
        writer = self._writer
        limit = self._settings.ledger_queue_bytes
        waiting = Waiting(writer.forecasts, writer.bytes, limit)
        return write(self._recent, waiting, up=writer.answers)

    def close(self) -> None:
        self._writer.close()
        self.learner.close()
        self._store.close()

    def _write(self, connection: Connection, records: list[Record]) -> int:
        """Write records; returns how many forecasts were late."""
        learns = self._settings.ledger_learn == "requests"
        days, late, self._written = Days(), 0, []
        for part in before_hindsight(records) if learns else [records]:
            own, count = keep(connection, self._store, self._ids, part)
            days.merge(own)
            late += count
            if learns:
                observed = [each for record in part for each in _histories(record)]
                more, written = observe(
                    connection, self._store, self._ids, observed, of_requests=True
                )
                days.merge(more)
                self._written += written
        self._changed |= add_up(connection, self._store, days)
        return late

    def _commit(self) -> None:
        """Count what was written, and let the learner read it."""
        written, self._written = self._written, []
        self._count(written)
        changed, self._changed = self._changed, set()
        self.learner.changed(changed)

    def _undo(self) -> None:
        """Forget what a transaction that failed has done."""
        self._written = []
        self._ids.forget()

    def _observe(
        self, series: Sequence[tuple[str, str, str, list[str], int]], arrays: Arrays
    ) -> tuple[list[dict[str, int]], Arrays]:
        """Write actual values; returns the fields of a `Written` for each series.

        Each series has its namespace, name, frequency, channels and number of rows; the arrays are
        `times` `[rows]`, and `values`, `[rows, channels]` of each series, flat.
        """
        observed, row, at = [], 0, 0
        for namespace, name, frequency, channels, rows in series:
            size = rows * len(channels)
            values = arrays["values"][at : at + size].reshape(rows, len(channels))
            times = arrays["times"][row : row + rows]
            observed.append(Observed((namespace, name, frequency), channels, times, values))
            row, at = row + rows, at + size

        def write(part: list[Observed], connection: Connection) -> list[Written]:
            days, written = observe(connection, self._store, self._ids, part)
            self._changed |= add_up(connection, self._store, days)
            return written

        written: list[Written] = []
        for start in range(0, max(1, len(observed)), _SERIES):
            part = observed[start : start + _SERIES]
            new = self._writer.run(partial(write, part))
            self._count(new)
            written += new
        return [*map(asdict, written)], NO_ARRAYS

    def _delete(self, namespace: str, name: str, _: Arrays) -> tuple[int, Arrays]:
        """Delete a series."""

        def work(connection: Connection) -> int:
            # The remembered ids are of rows that are no more.
            self._ids.forget()
            return delete_series(connection, self._store, namespace, name)

        deleted = self._writer.run(work)
        self.learner.forget(namespace, name)
        return deleted, NO_ARRAYS

    def _accuracy(
        self, selection: dict[str, Any], by: By, limit: int, deadline: float, _: Arrays
    ) -> tuple[bytes, Arrays]:
        """An `api.ledger_types.Accuracy` in JSON."""
        chosen = self._selection(selection)
        with self._store.read(deadline) as connection:
            self._check_model(connection, chosen.model)
            rows = accuracy(connection, chosen, by)
        document = {
            "model": chosen.model,
            "by": by,
            "rows": newest_or_worst(rows, by, limit),
            "left_out": max(0, len(rows) - limit),
        }
        return orjson.dumps(document), NO_ARRAYS

    def _trajectories(
        self, selection: dict[str, Any], limit: int, deadline: float, _: Arrays
    ) -> tuple[bytes, Arrays]:
        """An `api.ledger_types.Trajectories` in JSON."""
        chosen = self._selection(selection)
        with self._store.read(deadline) as connection:
            self._check_model(connection, chosen.model)
            found = trajectories(connection, chosen, limit)
        document = {"model": chosen.model, "series": chosen.series, **found}
        return orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY), NO_ARRAYS

    def _compare(
        self, selection: dict[str, Any], versions: tuple[str, str], deadline: float, _: Arrays
    ) -> tuple[bytes, Arrays]:
        """An `api.ledger_types.Compared` in JSON."""
        chosen = self._selection(selection)
        with self._store.read(deadline) as connection:
            self._check_model(connection, chosen.model)
            pairs = read_pairs(connection, chosen, (versions[0], versions[1]))
        loss_a, loss_b = pairs.losses
        found = compare(
            loss_a,
            loss_b,
            pairs.series,
            pairs.origins,
            max(1, pairs.horizon),
            names=(f"{chosen.model}@{versions[0]}", f"{chosen.model}@{versions[1]}"),
        )
        document = {"model": chosen.model, "a": versions[0], "b": versions[1]}
        for name in (
            *("windows", "origins", "series", "loss_a", "loss_b", "relative"),
            *("p_value", "wait", "verdict", "sentence"),
        ):
            document[name] = getattr(found, name)
        return orjson.dumps(document), NO_ARRAYS

    def _selection(self, fields: dict[str, Any]) -> Selection:
        served = {
            model.version: model.digest
            for model in self._registry().models
            if model.name == fields["model"]
        }
        return Selection(**fields, served=served)

    def _check_model(self, connection: Connection, name: str) -> None:
        """UnknownModelError for a model that is neither served nor in the ledger."""
        registry = self._registry()
        if name in registry.versions:
            return
        if not NAME.fullmatch(name) or not is_known(connection, name):
            raise UnknownModelError.among(name, registry.names, "served (GET /models)")

    def _count(self, written: list[Written]) -> None:
        for outcome in asdict(Written()):
            amount = sum(getattr(each, outcome) for each in written)
            self._metrics.counts.add(LEDGER_ACTUALS, outcome, amount=amount)

    def _do_chores(self) -> Iterator[None]:
        """Add up totals, delete what is too old or too much, and read the latest scores."""
        store, settings = self._store, self._settings
        for _ in range(_TURNS):
            with store.write() as connection:
                more = refresh(connection, store, _TOTALS, _TOTALS_SECONDS)
            yield
            if not more:
                break
        before = int(time.time() - DAY_SECONDS * settings.ledger_days)
        with store.read() as connection:
            edge = edge_of(connection, store, settings.ledger_bytes)
        before, more = max(before, edge or 0), True
        while more:
            with store.write() as connection:
                more = prune_forecasts(connection, before)
            yield
        if edge is not None or time.monotonic() >= self._values_at:
            self._values_at = time.monotonic() + _VALUES_SECONDS
            after: int | None = 0
            while after is not None:
                self._ids.forget()
                with store.write() as connection:
                    after = prune_values(connection, store, before, after)
                yield
        served: defaultdict[str, dict[str, str]] = defaultdict(dict)
        for model in self._registry().models:
            served[model.name][model.version] = model.digest
        with store.read() as connection:
            self._recent = read_recent(connection, served, int(time.time()) // DAY_SECONDS)


def _histories(record: Record) -> list[Observed]:
    """The histories of a request, as actual values; filled ones are unknown."""
    values = record.arrays[HISTORY].astype(np.float64)
    if HOLES in record.arrays:
        values[record.arrays[HOLES]] = np.nan
    rows = values.shape[1]
    times = moments([record], rows, record.arrays[FORECAST].shape[1])[:, :rows]
    channels = [*record.manifest.targets]
    return [
        Observed(key, channels, every, own)
        for key, every, own in zip(record.series, times, values, strict=True)
    ]
