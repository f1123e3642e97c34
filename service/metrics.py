"""The metrics of a process; the engine adds the counts of HTTP workers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Set
from ctypes import Array, c_int64
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Literal

from prometheus_client import CollectorRegistry, Metric, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from foretell.service.counts import Counts, Family, Key
from foretell.service.errors import ServiceError

Stage = Literal["decode", "queue", "run", "encode"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STAGE_SECONDS = (0.0001, 0.00025, 0.0005, *_SECONDS)
_LOAD_SECONDS = (*_SECONDS, 60.0, 120.0, 300.0)
_WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
_MODEL = ("model", "version")
# Clients choose the levels of a backtest's intervals, but a label needs a bounded set of values.
_LEVELS = frozenset((0.5, 0.8, 0.9, 0.95))

REQUESTS, REQUEST_SECONDS = "foretell_requests_total", "foretell_request_seconds"
REJECTED = "foretell_rejected_total"
CUT_OFF, STAGE_SECONDS = "foretell_connections_cut_off_total", "foretell_stage_seconds"
BATCH_WINDOWS, BATCH_FILL = "foretell_batch_windows", "foretell_batch_fill"
DROPPED = "foretell_dropped_total"
CHALLENGER_SKIPPED = "foretell_challenger_skipped_total"
LOADS, LOAD_SECONDS = "foretell_model_loads_total", "foretell_model_load_seconds"
EVICTIONS, LOAD_WAIT_SECONDS = "foretell_model_evictions_total", "foretell_load_wait_seconds"
LEDGER_FORECASTS, LEDGER_ACTUALS = (
    "foretell_ledger_forecasts_total",
    "foretell_ledger_actuals_total",
)
BACKTESTED, HELD = "foretell_backtest_values_total", "foretell_backtest_values_held_total"

FAMILIES = {
    REQUESTS: Family("Answered requests.", ("route", *_MODEL, "status")),
    REQUEST_SECONDS: Family(
        "From the request's headers to the end of its answer.", ("route",), _SECONDS
    ),
    REJECTED: Family("Requests that got an error, by the error's type.", ("reason",)),
    CUT_OFF: Family(
        "Connections that the server refused or ended: too_many, headers, connect, malformed, "
        "slow_request, slow_reader, or lost before they were served.",
        ("reason",),
    ),
    STAGE_SECONDS: Family(
        "Time in a stage: decode, queue and encode of a request, assemble and run of a batch, "
        "background of a whole batch without a waiting request.",
        ("stage", *_MODEL),
        _STAGE_SECONDS,
    ),
    BATCH_WINDOWS: Family("Windows in a batch.", _MODEL, _WINDOWS),
    BATCH_FILL: Family("Windows in a batch, as a fraction of the largest one.", _MODEL, _FRACTIONS),
    DROPPED: Family(
        "Requests that were queued and not run: expired, or cancelled by the client.",
        ("reason", *_MODEL),
    ),
    CHALLENGER_SKIPPED: Family(
        "Drawn requests that no challenger forecast: too_large, busy, not_loaded, refused, expired "
        "or failed.",
        ("reason",),
    ),
    LOADS: Family("Attempts to load a model: loaded or refused.", (*_MODEL, "outcome")),
    LOAD_SECONDS: Family("Time to open a bundle and test it.", _MODEL, _LOAD_SECONDS),
    EVICTIONS: Family("Models that were evicted from memory to make room for others.", _MODEL),
    LOAD_WAIT_SECONDS: Family(
        "Time that requests waited for a model to be loaded: loaded, expired or refused.",
        ("outcome",),
        _LOAD_SECONDS,
    ),
    BACKTESTED: Family(
        "Values of backtests that stored intervals of 50, 80, 90 or 95% should hold.",
        (*_MODEL, "level"),
    ),
    LEDGER_FORECASTS: Family(
        "Forecasts for the ledger: kept; late, as a value of their horizon was known and an "
        "earlier one stays; dropped, because too many waited; or failed.",
        ("outcome",),
    ),
    LEDGER_ACTUALS: Family(
        "Actual values for the ledger: new; changed, other than before; or the same.",
        ("outcome",),
    ),
    HELD: Family("Values of backtests that these intervals held.", (*_MODEL, "level")),
}
_IN_FLIGHT = Family("Requests that are being answered, including this one.")


@dataclass(frozen=True, eq=False)
class Processes(Collector):
    """The processes of a server, in shared memory: their parent writes, and all read."""

    # Names of the processes; HTTP workers come first.
    names: tuple[str, ...]
    # Number of configured HTTP workers.
    wanted: int
    # The process id of each name, 0 while no process serves; then the number of replacements of
    # each.
    numbers: Array[c_int64]

    def serves(self, name: str, process: int) -> None:
        self.numbers[self.names.index(name)] = process

    def replaced(self, name: str) -> None:
        self.numbers[len(self.names) + self.names.index(name)] += 1

    @property
    def running(self) -> int:
        return sum(number > 0 for number in self.numbers[: self.wanted])

    def collect(self) -> Iterator[Metric]:
        for state, number in (("wanted", self.wanted), ("running", self.running)):
            about = f"HTTP workers {state}; 1 is the server without other processes."
            yield GaugeMetricFamily(f"foretell_workers_{state}", about, value=number)
        restarts = CounterMetricFamily(
            "foretell_process_restarts",
            "Processes that ended and were replaced.",
            labels=("process",),
        )
        families: dict[str, Metric] = {restarts.name: restarts}
        for index, name in enumerate(self.names):
            restarts.add_metric((name,), self.numbers[len(self.names) + index])
            pid = self.numbers[index]
            for own in (
                ProcessCollector(pid=partial(int, pid), registry=None).collect() if pid else ()
            ):
                family = families.setdefault(
                    own.name, Metric(own.name, own.documentation, own.type)
                )
                for sample in own.samples:
                    family.add_sample(sample.name, {"process": name}, sample.value)
        yield from families.values()


class Metrics:
    """The counts of this process; without `processes` it is the server's only one.

    Attributes:
        build: Versions of the server and its libraries, by label.
        in_flight: Requests that this process is answering; `answered` subtracts one.
        elsewhere: Requests in flight in other processes, as last reported.
        changes: Number that changes whenever a model has failed or works again.
        last_run: When the last batch of a version ran, in seconds since 1970, by name and version.
    """

    def __init__(self, processes: Processes | None = None) -> None:
        self.counts = Counts(FAMILIES)
        alone = (c_int64 * 2)(os.getpid(), 0)
        self.processes = processes or Processes(("server",), 1, alone)
        self.build: dict[str, str] = {}
        self.in_flight = 0
        self.elsewhere: dict[object, int] = {}
        self.changes = 0
        self._changes = count(1)
        self.last_run: dict[tuple[str, str], float] = {}
        # Rates need counters that start at 0. Starlette's errors have a type for each status.
        for error in ServiceError.__subclasses__():
            self.counts.add(REJECTED, error.type, amount=0)
        for reason in ("too_large", "busy", "not_loaded", "refused", "expired", "failed"):
            self.counts.add(CHALLENGER_SKIPPED, reason, amount=0)

    def answered(
        self,
        route: str,
        status: int,
        seconds: float,
        model: tuple[str, str] | None = None,
        stages: Iterable[tuple[Stage, float]] = (),
    ) -> None:
        """Count the end of a request, by the pattern of its route; stages are in seconds."""
        self.in_flight -= 1
        name, version = model or ("", "")
        request: dict[Key, float] = {(REQUESTS, route, name, version, str(status)): 1.0}
        values: list[tuple[Key, float]] = [((REQUEST_SECONDS, route), seconds)]
        # Runs are counted by batch, which several requests may share.
        values += [
            ((STAGE_SECONDS, stage, name, version), took)
            for stage, took in stages
            if stage != "run"
        ]
        self.counts.observe(*values, also=request)

    def rejected(self, reason: str) -> None:
        self.counts.add(REJECTED, reason)

    def cut_off(self, reason: str) -> None:
        self.counts.add(CUT_OFF, reason)

    def backtested(self, name: str, version: str, held: Mapping[float, tuple[int, int]]) -> None:
        """Count values inside the intervals of a backtest, and all compared values, by level."""
        for level in _LEVELS & held.keys():
            for family, amount in zip((HELD, BACKTESTED), held[level], strict=True):
                self.counts.add(family, name, version, str(level), amount=amount)

    def observer(self, name: str, version: str) -> QueueMetrics:
        return QueueMetrics(self, name, version)

    def loaded(self, name: str, version: str, seconds: float) -> None:
        self.counts.add(LOADS, name, version, "loaded")
        self.counts.add(LOADS, name, version, "refused", amount=0)
        self.counts.add(EVICTIONS, name, version, amount=0)
        self.counts.observe(((LOAD_SECONDS, name, version), seconds))

    def refused(self, name: str, version: str) -> None:
        self.counts.add(LOADS, name, version, "refused")

    def evicted(self, name: str, version: str) -> None:
        self.counts.add(EVICTIONS, name, version)

    def keep(self, versions: Set[tuple[str, str]]) -> None:
        self.counts.keep(versions)
        for version in self.last_run.keys() - versions:
            self.last_run.pop(version, None)

    def changed(self) -> None:
        """Note that a model, or its last load, has failed or works again."""
        # Several threads call this: an increment could miss one of them.
        self.changes = next(self._changes)

    def loads_on_demand(self) -> None:
        """Begin the histograms of waits for models that are loaded on demand."""
        for outcome in ("loaded", "expired", "refused"):
            self.counts.begin(LOAD_WAIT_SECONDS, outcome)

    def waited(self, outcome: str, seconds: float) -> None:
        self.counts.observe(((LOAD_WAIT_SECONDS, outcome), seconds))

    def render(self, gauges: Iterable[bytes] = ()) -> bytes:
        """All metrics in Prometheus' text format, with the gauges of the engine."""
        registry = CollectorRegistry()
        registry.register(self.processes)
        build = Family(
            "Always 1; the labels have the versions of the server and its libraries.",
            (*self.build,),
        )
        in_flight = self.in_flight + sum([*self.elsewhere.values()])
        pieces = [
            generate_latest(registry),
            *self.counts.write(),
            *build.gauges("foretell_build_info", [((*self.build.values(),), 1)]),
            *_IN_FLIGHT.gauges("foretell_requests_in_flight", [((), in_flight)]),
        ]
        return b"".join([*pieces, *gauges])


class QueueMetrics:
    """Counts the events of a model's queue, as its `engine.usage.Observer`."""

    def __init__(self, metrics: Metrics, name: str, version: str) -> None:
        self._metrics = metrics
        self._counts = metrics.counts
        self._key = (name, version)
        for reason in ("expired", "cancelled"):
            self._counts.add(DROPPED, reason, *self._key, amount=0)

    def ran(self, windows: int, limit: int, assembled: float, ran: float) -> None:
        key = self._key
        self._counts.observe(
            ((STAGE_SECONDS, "assemble", *key), assembled),
            ((STAGE_SECONDS, "run", *key), ran),
            ((BATCH_WINDOWS, *key), windows),
            ((BATCH_FILL, *key), windows / limit),
        )
        self._metrics.last_run[key] = time.time()

    def ran_in_background(self, seconds: float) -> None:
        self._counts.observe(((STAGE_SECONDS, "background", *self._key), seconds))

    def dropped(self, reason: Literal["expired", "cancelled"]) -> None:
        self._counts.add(DROPPED, reason, *self._key)

    def changed(self) -> None:
        self._metrics.changed()
