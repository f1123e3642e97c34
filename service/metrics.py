"""Prometheus metrics of one server; every label has a bounded set of values."""

from __future__ import annotations

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from service.batcher import Observer
from service.model import Model

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_WINDOWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_MODEL = ("model", "version")


class Metrics:
    """The metrics and the registry that holds them."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._requests = Counter(
            "foretell_requests",
            "Answered requests.",
            ("route", "model", "status"),
            registry=self._registry,
        )
        self._request_seconds = Histogram(
            "foretell_request_seconds",
            "From the request's headers to the end of its answer.",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._rejected = Counter(
            "foretell_rejected",
            "Requests that got an error, by the error's type.",
            ("reason",),
            registry=self._registry,
        )
        self._queue_seconds = Histogram(
            "foretell_queue_seconds",
            "Time from being accepted to being in a batch.",
            _MODEL,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._inference_seconds = Histogram(
            "foretell_inference_seconds",
            "Time of a model run, a batch each.",
            _MODEL,
            buckets=_SECONDS,
            registry=self._registry,
        )
        self._batch_windows = Histogram(
            "foretell_batch_windows",
            "Windows in a batch.",
            _MODEL,
            buckets=_WINDOWS,
            registry=self._registry,
        )
        self._queue_depth = Gauge(
            "foretell_queue_depth", "Windows waiting.", _MODEL, registry=self._registry
        )
        self._model_info = Gauge(
            "foretell_model_info",
            "Always 1; its labels describe a served model.",
            ("name", "version", "provider", "architecture"),
            registry=self._registry,
        )

    def answered(self, route: str, model: str, status: int, seconds: float) -> None:
        """Count a request; `route` is the route's pattern, never the raw path."""
        self._requests.labels(route, model, str(status)).inc()
        self._request_seconds.labels(route).observe(seconds)

    def rejected(self, reason: str) -> None:
        """Count an error by its type."""
        self._rejected.labels(reason).inc()

    def observer(self, name: str, version: str) -> Observer:
        """What a model's batcher reports to."""
        return _BatchMetrics(
            self._queue_seconds.labels(name, version),
            self._inference_seconds.labels(name, version),
            self._batch_windows.labels(name, version),
        )

    def add_model(self, model: Model) -> None:
        """Publish a model and the depth of its queue."""
        self._queue_depth.labels(model.name, model.version).set_function(lambda: model.waiting)
        self._model_info.labels(
            model.name, model.version, model.provider, model.manifest.architecture
        ).set(1)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self._registry)


class _BatchMetrics:
    def __init__(self, queue: Histogram, inference: Histogram, windows: Histogram) -> None:
        self._queue = queue
        self._inference = inference
        self._windows = windows

    def waited(self, seconds: float) -> None:
        self._queue.observe(seconds)

    def ran(self, windows: int, seconds: float) -> None:
        self._inference.observe(seconds)
        self._windows.observe(windows)
