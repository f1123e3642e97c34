"""What is counted of requests, batches and models; every label has a bounded set of values.

The counts of every door are added to the engine's.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Set
from ctypes import Array, c_int64
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from foretell.service.errors import ServiceError
from foretell.service.exposition import Samples, gauge

# The name of a family and the values of its labels.
Key = tuple[str, ...]
# Counts and histograms with their keys; JSON can say it.
Taken = tuple[list[tuple[Key, float]], list[tuple[Key, list[float]]]]


class Family(NamedTuple):
    """Numbers that differ in their labels alone.

    Attributes:
        help: What they are.
        labels: Names of their labels.
        bounds: Upper bounds of a histogram's buckets; None of a count.
    """

    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] | None = None

    def samples(self, name: str) -> Samples:
        """What writes them, by the name of the family."""
        kind: Literal["counter", "histogram"] = "counter" if self.bounds is None else "histogram"
        return Samples(name, self.help, kind, self.labels, self.bounds or ())


class Counts:
    """Numbers by family and labels; threads may share it.

    Args:
        families: By name.
    """

    def __init__(self, families: Mapping[str, Family]) -> None:
        self._families = families
        self._lock = threading.Lock()
        self._counts: dict[Key, float] = {}
        # The sum of the values, and how many fell into each bucket, the last without a bound.
        self._histograms: dict[Key, list[float]] = {}
        # The keys of both by name and version of their model.
        self._keys: dict[Key, list[Key]] = {}

    def add(self, *key: str, amount: float = 1.0) -> None:
        """Count something."""
        with self._lock:
            self._add(key, amount)

    def observe(self, *values: tuple[Key, float], also: Mapping[Key, float] | None = None) -> None:
        """Put values into histograms, and count what came with them."""
        with self._lock:
            for key, value in values:
                found = self._histograms.get(key)
                if found is None:
                    found = self._begin(key)
                found[0] += value
                found[1 + bisect_left(self._families[key[0]].bounds or (), value)] += 1
            for key, amount in (also or {}).items():
                self._add(key, amount)

    def begin(self, *key: str) -> None:
        """Have a histogram be told of before it has a value: rates are of what was 0 once."""
        with self._lock:
            if key not in self._histograms:
                self._begin(key)

    def count(self, *key: str) -> float:
        """What was counted so far."""
        return self._counts.get(key, 0.0)

    def counts(self) -> dict[Key, float]:
        """All counts so far."""
        with self._lock:
            return dict(self._counts)

    def histograms(self) -> Iterator[tuple[Key, list[float]]]:
        """The sum of the values of each histogram, and how many fell into each of its buckets.

        What counts is kept waiting for a few of them at a time.
        """
        with self._lock:
            found = [*self._histograms.items()]
        for start in range(0, len(found), _COPIED):
            with self._lock:
                some = [(key, list(numbers)) for key, numbers in found[start : start + _COPIED]]
            yield from some

    def take(self) -> Taken:
        """All that was counted, for `merge`; from here on it is counted from 0."""
        with self._lock:
            counts, self._counts = self._counts, {}
            histograms, self._histograms = self._histograms, {}
            self._keys = {}
        return [*counts.items()], [*histograms.items()]

    def keep(self, versions: Set[tuple[str, str]]) -> None:
        """Forget what was counted of all other versions, by name and version."""
        with self._lock:
            for version in self._keys.keys() - versions - _NO_VERSION:
                for key in self._keys.pop(version):
                    self._counts.pop(key, None)
                    self._histograms.pop(key, None)

    def merge(self, taken: Taken) -> None:
        """Add what others have counted."""
        counts, histograms = taken
        with self._lock:
            for key, amount in counts:
                self._add(tuple(key), amount)
            for key, numbers in histograms:
                own = self._histograms.get(tuple(key)) or self._begin(tuple(key))
                own[:] = map(sum, zip(own, numbers, strict=True))

    def write(self) -> Iterator[bytes]:
        """All of it in Prometheus' text format."""
        families = {name: family.samples(name) for name, family in self._families.items()}
        pieces = {name: [samples.head] for name, samples in families.items()}
        for (name, *values), number in self.counts().items():
            pieces[name].append(families[name].one(values, number))
        for (name, *values), numbers in self.histograms():
            pieces[name].append(families[name].histogram(values, numbers))
        return chain.from_iterable(pieces.values())

    def _add(self, key: Key, amount: float) -> None:
        known = self._counts.get(key)
        if known is None:
            self._note(key)
        self._counts[key] = (known or 0.0) + amount

    def _begin(self, key: Key) -> list[float]:
        self._note(key)
        bounds = self._families[key[0]].bounds or ()
        self._histograms[key] = begun = [0.0] * (len(bounds) + 2)
        return begun

    def _note(self, key: Key) -> None:
        """A key comes: remember which version it is of."""
        told = dict(zip(self._families[key[0]].labels, key[1:], strict=True))
        version = tuple(told[label] for label in _MODEL if label in told)
        self._keys.setdefault(version, []).append(key)


Stage = Literal["decode", "queue", "run", "encode"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STAGE_SECONDS = (0.0001, 0.00025, 0.0005, *_SECONDS)
_LOAD_SECONDS = (*_SECONDS, 60.0, 120.0, 300.0)
_WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
_MODEL = ("model", "version")

REQUESTS, REQUEST_SECONDS = "foretell_requests", "foretell_request_seconds"
REJECTED = "foretell_rejected"
CUT_OFF, STAGE_SECONDS = "foretell_connections_cut_off", "foretell_stage_seconds"
BATCH_WINDOWS, BATCH_FILL = "foretell_batch_windows", "foretell_batch_fill"
DROPPED = "foretell_dropped"
LOADS, LOAD_SECONDS = "foretell_model_loads", "foretell_model_load_seconds"
EVICTIONS, LOAD_WAIT_SECONDS = "foretell_model_evictions", "foretell_load_wait_seconds"
BACKTESTED, HELD = "foretell_backtest_values", "foretell_backtest_values_held"
# Callers name the levels of a backtest's intervals: more than these would be no bounded set.
_LEVELS = frozenset((0.5, 0.8, 0.9, 0.95))
# Histograms that are copied at a time.
_COPIED = 256
# Of what is counted of no model: by families without one, and of requests that named none.
_NO_VERSION = {(), ("", "")}

_FAMILIES = {
    REQUESTS: Family("Answered requests.", ("route", *_MODEL, "status")),
    REQUEST_SECONDS: Family(
        "From the request's headers to the end of its answer.", ("route",), _SECONDS
    ),
    REJECTED: Family("Requests that got an error, by the error's type.", ("reason",)),
    CUT_OFF: Family("Connections that the server refused or ended.", ("reason",)),
    STAGE_SECONDS: Family(
        "Time in a stage: decode, queue and encode of a request, assemble and run of a batch.",
        ("stage", *_MODEL),
        _STAGE_SECONDS,
    ),
    BATCH_WINDOWS: Family("Windows in a batch.", _MODEL, _WINDOWS),
    BATCH_FILL: Family("Windows in a batch, as a fraction of the largest one.", _MODEL, _FRACTIONS),
    DROPPED: Family(
        "Requests that were queued and not run: expired, or cancelled by the caller.",
        ("reason", *_MODEL),
    ),
    LOADS: Family("Attempts to load a model: loaded or refused.", (*_MODEL, "outcome")),
    LOAD_SECONDS: Family("Time to open a bundle and test it.", _MODEL, _LOAD_SECONDS),
    EVICTIONS: Family("Models that left memory to make room for others.", _MODEL),
    LOAD_WAIT_SECONDS: Family(
        "Time that requests waited for a model to be loaded: loaded, expired or refused.",
        ("outcome",),
        _LOAD_SECONDS,
    ),
    BACKTESTED: Family(
        "Values of backtests that intervals of a level were to hold.", (*_MODEL, "level")
    ),
    HELD: Family("Those of them that the intervals held.", (*_MODEL, "level")),
}


@dataclass(frozen=True, eq=False)
class Processes(Collector):
    """The processes of a server: written by the one that watches over them, read by all.

    Attributes:
        names: What each does; those that take requests come first.
        wanted: How many take requests.
        numbers: Of each name its process, 0 until that serves; and then of each, how often
            another one took its place.
    """

    names: tuple[str, ...]
    wanted: int
    numbers: Array[c_int64]

    def serves(self, name: str, process: int) -> None:
        """Write down which process does this; 0 if none."""
        self.numbers[self.names.index(name)] = process

    def replaced(self, name: str) -> None:
        """Count one that has ended."""
        self.numbers[len(self.names) + self.names.index(name)] += 1

    @property
    def running(self) -> int:
        """How many take requests now."""
        return sum(number > 0 for number in self.numbers[: self.wanted])

    def collect(self) -> Iterator[Metric]:
        """What Prometheus is told of them."""
        for state, number in (("wanted", self.wanted), ("running", self.running)):
            told = f"Processes that take requests: {state}."
            yield GaugeMetricFamily(f"foretell_workers_{state}", told, value=number)
        told = "Processes that ended and were replaced."
        restarts = CounterMetricFamily("foretell_process_restarts", told, labels=("process",))
        families: dict[str, Metric] = {restarts.name: restarts}
        for index, name in enumerate(self.names):
            restarts.add_metric((name,), self.numbers[len(self.names) + index])
            pid = self.numbers[index]
            own = ProcessCollector(pid=partial(int, pid), registry=None).collect() if pid else ()
            for found in own:
                family = Metric(found.name, found.documentation, found.type)
                family = families.setdefault(found.name, family)
                for each in found.samples:
                    family.add_sample(each.name, {"process": name}, each.value)
        yield from families.values()


class Metrics:
    """The metrics of a process; those of doors go to the engine, where all are added up.

    Args:
        processes: Of the server; if None, this is the only one.

    Attributes:
        counts: The numbers.
        processes: Of the server.
        build: What the server is made of, by label.
        in_flight: Requests that this process is answering.
        elsewhere: Those of others, by door, as they last said.
        changes: Differs once a model has failed or works again.
        last_run: When a batch of a version ran last, in seconds since 1970, by name and version.
    """

    def __init__(self, processes: Processes | None = None) -> None:
        self.counts = Counts(_FAMILIES)
        alone = (c_int64 * 2)(os.getpid(), 0)
        self.processes = processes or Processes(("server",), 1, alone)
        self.build: dict[str, str] = {}
        self.in_flight = 0
        self.elsewhere: dict[object, int] = {}
        self.changes = 0
        self._changes = count(1)
        self.last_run: dict[tuple[str, str], float] = {}
        # Rates are of counters that were 0 once. What Starlette refuses has a status for one.
        for error in ServiceError.__subclasses__():
            self.counts.add(REJECTED, error.type, amount=0)

    def began(self) -> None:
        """A request has come; `answered` follows."""
        self.in_flight += 1

    def answered(
        self,
        route: str,
        status: int,
        seconds: float,
        model: tuple[str, str] | None = None,
        stages: Iterable[tuple[Stage, float]] = (),
    ) -> None:
        """A request has ended.

        Args:
            route: The route's pattern, never the raw path.
            status: Of its answer.
            seconds: How long it took.
            model: Name and version of the one it was for, if that is known.
            stages: What it went through, and how long that took.
        """
        self.in_flight -= 1
        name, version = model or ("", "")
        request: dict[Key, float] = {(REQUESTS, route, name, version, str(status)): 1.0}
        values: list[tuple[Key, float]] = [((REQUEST_SECONDS, route), seconds)]
        # Runs are counted by batches, which may be of several requests.
        values += [
            ((STAGE_SECONDS, stage, name, version), took)
            for stage, took in stages
            if stage != "run"
        ]
        self.counts.observe(*values, also=request)

    def rejected(self, reason: str) -> None:
        """Count an error by its type."""
        self.counts.add(REJECTED, reason)

    def cut_off(self, reason: str) -> None:
        """Count a connection that was refused or ended."""
        self.counts.add(CUT_OFF, reason)

    def backtested(self, name: str, version: str, held: Mapping[float, tuple[int, int]]) -> None:
        """Count what the intervals of a backtest held, and what there was, by their level."""
        for level in _LEVELS & held.keys():
            for family, amount in zip((HELD, BACKTESTED), held[level], strict=True):
                self.counts.add(family, name, version, str(level), amount=amount)

    def observer(self, name: str, version: str) -> QueueMetrics:
        """What a model's queue reports to."""
        return QueueMetrics(self, name, version)

    def loaded(self, name: str, version: str, seconds: float) -> None:
        """A version answers."""
        self.counts.add(LOADS, name, version, "loaded")
        self.counts.add(LOADS, name, version, "refused", amount=0)
        self.counts.add(EVICTIONS, name, version, amount=0)
        self.counts.observe(((LOAD_SECONDS, name, version), seconds))

    def refused(self, name: str, version: str) -> None:
        """A version was not loaded."""
        self.counts.add(LOADS, name, version, "refused")

    def keep(self, versions: Set[tuple[str, str]]) -> None:
        """Forget what was counted of all other versions, which are gone."""
        self.counts.keep(versions)
        for version in self.last_run.keys() - versions:
            self.last_run.pop(version, None)

    def evicted(self, name: str, version: str) -> None:
        """A version left memory to make room."""
        self.counts.add(EVICTIONS, name, version)

    def changed(self) -> None:
        """A model has failed or works again, or its last load did."""
        # Several threads say so: a sum could miss one of them.
        self.changes = next(self._changes)

    def loads_on_demand(self) -> None:
        """Requests may have to wait for their models."""
        for outcome in ("loaded", "expired", "refused"):
            self.counts.begin(LOAD_WAIT_SECONDS, outcome)

    def waited(self, outcome: str, seconds: float) -> None:
        """A request waited for its model to be loaded."""
        self.counts.observe(((LOAD_WAIT_SECONDS, outcome), seconds))

    def render(self, gauges: Iterable[bytes] = ()) -> bytes:
        """All metrics in Prometheus' text format.

        Args:
            gauges: What the engine says of itself.
        """
        registry = CollectorRegistry()
        registry.register(self.processes)
        in_flight = self.in_flight + sum([*self.elsewhere.values()])
        return b"".join(
            [
                generate_latest(registry),
                *self.counts.write(),
                *gauge(
                    "foretell_build_info",
                    "1; the labels say what serves.",
                    [*self.build],
                    [([*self.build.values()], 1)],
                ),
                *gauge(
                    "foretell_requests_in_flight", "Requests being answered.", (), [((), in_flight)]
                ),
                *gauges,
            ]
        )


class QueueMetrics:
    """What happens to the work of a model's queue; see `engine.queues.Observer`."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self._metrics = metrics
        self._counts = metrics.counts
        self._key = (name, version)
        for reason in ("expired", "cancelled"):
            self._counts.add(DROPPED, reason, *self._key, amount=0)

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        """See `Observer.ran`."""
        key = self._key
        self._counts.observe(
            ((STAGE_SECONDS, "assemble", *key), assembled),
            ((STAGE_SECONDS, "run", *key), ran),
            ((BATCH_WINDOWS, *key), windows),
            ((BATCH_FILL, *key), windows / limit),
        )
        self._metrics.last_run[key] = time.time()

    def dropped(self, reason: Literal["expired", "cancelled"]) -> None:
        """See `Observer.dropped`."""
        self._counts.add(DROPPED, reason, *self._key)

    def changed(self) -> None:
        """See `Observer.changed`."""
        self._metrics.changed()
