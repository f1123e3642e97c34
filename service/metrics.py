"""Prometheus metrics of a server; every label has a bounded set of values.

Several processes write theirs to files of one folder, and each answers with the sums.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    values,
)
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.multiprocess import MultiProcessCollector

from foretell.service.batching.observer import Observer, Observers
from foretell.service.model import Model
from foretell.service.telemetry.statistics import Statistics

_Metric = TypeVar("_Metric", bound=MetricWrapperBase)

Stage = Literal["decode", "queue", "assemble", "run", "encode"]

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_STAGE_SECONDS = (0.0001, 0.00025, 0.0005, *_SECONDS)
_LOAD_SECONDS = (*_SECONDS, 60.0, 120.0, 300.0)
_WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_FRACTIONS = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
_MODEL = ("model", "version")
_DESCRIPTION = ("name", "version", "provider", "architecture")


class Metrics:
    """The metrics of a process.

    Args:
        folder: Where the processes of a server share them, after `share`; None if it is alone.
        statistics: What is counted besides, for the inference door; this process' alone if None.

    Attributes:
        begun: Requests that have come to this process.
    """

    def __init__(self, folder: Path | None = None, statistics: Statistics | None = None) -> None:
        self.statistics = statistics or Statistics()
        self._folder = folder
        self._registry = registry = CollectorRegistry()
        if folder is None:
            ProcessCollector(registry=registry)
        self._requests = Counter(
            "foretell_requests",
            "Answered requests.",
            ("route", "model", "status"),
            registry=registry,
        )
        self._request_seconds = Histogram(
            "foretell_request_seconds",
            "From the request's headers to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._in_flight = Gauge(
            "foretell_requests_in_flight",
            "Requests being answered.",
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._rejected = Counter(
            "foretell_rejected",
            "Requests that got an error, by the error's type.",
            ("reason",),
            registry=registry,
        )
        self._cut_off = Counter(
            "foretell_connections_cut_off",
            "Connections that the server refused or ended.",
            ("reason",),
            registry=registry,
        )
        self._stage_seconds = Histogram(
            "foretell_stage_seconds",
            "Time in a stage: decode, queue and encode of a request, assemble and run of a batch.",
            ("stage", *_MODEL),
            buckets=_STAGE_SECONDS,
            registry=registry,
        )
        self._batch_windows = Histogram(
            "foretell_batch_windows",
            "Windows in a batch.",
            _MODEL,
            buckets=_WINDOWS,
            registry=registry,
        )
        self._batch_fill = Histogram(
            "foretell_batch_fill",
            "Windows in a batch, as a fraction of the largest one.",
            _MODEL,
            buckets=_FRACTIONS,
            registry=registry,
        )
        self._dropped = Counter(
            "foretell_dropped",
            "Requests that were queued and not run: expired, or cancelled by the caller.",
            ("reason", *_MODEL),
            registry=registry,
        )
        self._queue_depth = Gauge(
            "foretell_queue_depth",
            "Windows waiting.",
            _MODEL,
            multiprocess_mode="livesum",
            registry=registry,
        )
        self._model_info = Gauge(
            "foretell_model_info",
            "1 while a model is served; the labels describe it.",
            _DESCRIPTION,
            multiprocess_mode="livemax",
            registry=registry,
        )
        self._model_loads = Counter(
            "foretell_model_loads",
            "Attempts to load a model: loaded or refused.",
            ("name", "version", "outcome"),
            registry=registry,
        )
        self._model_load_seconds = Histogram(
            "foretell_model_load_seconds",
            "Time to open a bundle and test it.",
            ("name", "version"),
            buckets=_LOAD_SECONDS,
            registry=registry,
        )
        self._ready = Gauge(
            "foretell_ready",
            "1 while every process can answer.",
            multiprocess_mode="livemin",
            registry=registry,
        )
        self._requests_by = _Children(self._requests)
        self._request_seconds_by = _Children(self._request_seconds)
        self._stage_seconds_by = _Children(self._stage_seconds)
        self._served: dict[tuple[str, str], _Served] = {}
        self.begun = 0
        self._answering = 0

    def began(self) -> None:
        """A request has come; `answered` follows."""
        self.begun += 1
        self._answering += 1

    def answered(self, route: str, model: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the route's pattern, never the raw path."""
        self._answering -= 1
        self._requests_by[route, model, status].inc()
        self._request_seconds_by[route,].observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count an error by its type."""
        self._rejected.labels(reason).inc()

    def cut_off(self, reason: str) -> None:
        """Count a connection that was refused or ended."""
        self._cut_off.labels(reason).inc()

    def staged(self, stage: Stage, model: str, version: str, seconds: float) -> None:
        """Count the time of a stage."""
        self._stage_seconds_by[stage, model, version].observe(seconds)

    def observer(self, name: str, version: str) -> Observer:
        """What a model's queue reports to."""
        stages = {
            stage: self._stage_seconds.labels(stage, name, version)
            for stage in ("queue", "assemble", "run")
        }
        own = _QueueMetrics(
            stages["queue"],
            stages["assemble"],
            stages["run"],
            self._batch_windows.labels(name, version),
            self._batch_fill.labels(name, version),
            self._dropped.labels("expired", name, version),
            self._dropped.labels("cancelled", name, version),
        )
        return Observers(own, self.statistics.observer(name, version))

    def loaded(self, model: Model, seconds: float) -> None:
        """A version answers."""
        key = (model.name, model.version)
        self._model_loads.labels(*key, "loaded").inc()
        self._model_load_seconds.labels(*key).observe(seconds)
        info = self._model_info.labels(*key, model.provider, model.manifest.architecture)
        info.set(1)
        self._served[key] = _Served(model, info, self._queue_depth.labels(*key))

    def unloaded(self, name: str, version: str) -> None:
        """A version is gone."""
        if served := self._served.pop((name, version), None):
            served.info.set(0)
            served.depth.set(0)

    def refused(self, name: str, version: str) -> None:
        """A version was not loaded."""
        self._model_loads.labels(name, version, "refused").inc()

    def sample(self, *, ready: bool) -> None:
        """Take the values that are not counted; to be called about once a second."""
        self._ready.set(ready)
        self._in_flight.set(self._answering)
        for served in list(self._served.values()):
            served.depth.set(served.model.waiting)
        self.statistics.publish()

    def render(self) -> bytes:
        """The metrics of all processes, in Prometheus' text format."""
        if self._folder is None:
            return generate_latest(self._registry)
        merged = CollectorRegistry()
        MultiProcessCollector(merged, str(self._folder))  # type: ignore[no-untyped-call]
        return generate_latest(merged)


def share(folder: Path, slot: int) -> None:
    """Have the metrics that this process makes from here on written to the folder's files.

    Args:
        folder: Of this server alone.
        slot: The process's number in the server. One that takes the place of another goes on from
            the other's counts: the sums never fall, and the files do not grow in number.
    """
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(folder)
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


class _Children(dict[tuple[str | int, ...], _Metric]):
    """The children of a metric by their labels; `labels` itself takes a lock every time."""

    def __init__(self, parent: _Metric) -> None:
        super().__init__()
        self._parent = parent

    def __missing__(self, labels: tuple[str | int, ...]) -> _Metric:
        child = self[labels] = self._parent.labels(*labels)
        return child


class _Served(NamedTuple):
    model: Model
    info: Gauge
    depth: Gauge


class _QueueMetrics(NamedTuple):
    queue_seconds: Histogram
    assemble_seconds: Histogram
    run_seconds: Histogram
    windows: Histogram
    fill: Histogram
    dropped_late: Counter
    dropped_cancelled: Counter

    def waited(self, seconds: float) -> None:
        self.queue_seconds.observe(seconds)

    def assembled(self, seconds: float) -> None:
        self.assemble_seconds.observe(seconds)

    def ran(self, windows: int, seconds: float) -> None:
        self.run_seconds.observe(seconds)
        self.windows.observe(windows)

    def filled(self, fraction: float) -> None:
        self.fill.observe(fraction)

    def expired(self) -> None:
        self.dropped_late.inc()

    def cancelled(self) -> None:
        self.dropped_cancelled.inc()
