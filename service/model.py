"""A served model: a bundle that passed its self-test, its sessions and its queue."""

from __future__ import annotations

import logging
import threading
import zipfile
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bundle import checksums, layout, manifest
from bundle.comparison import relative_error
from bundle.errors import BundleError
from bundle.manifest import Manifest
from service.batcher import Batcher, Observer
from service.cpus import usable_cpus
from service.errors import ModelFailedError, ServiceError, StartError
from service.runtime import Runtime
from service.session import Arrays, Session, Shape

_logger = logging.getLogger(__name__)

HISTORY = "history"
HISTORY_CALENDAR = "history_calendar"
FUTURE_CALENDAR = "future_calendar"
FORECAST = "forecast"
MARGIN = "margin"

# What one run may return of attention, 64 MiB: a long context has far more of it than of forecast.
_ATTENTION_VALUES = 16 * 1024 * 1024
_STOP_SECONDS = 0.5
_FILES = (layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH, layout.WEIGHTS, layout.PROBES)


@dataclass(frozen=True)
class Capacity:
    """How much a model may do at once.

    Attributes:
        workers: Threads on the CPU, one per usable CPU if None; on CUDA there is one.
        max_batch: Most windows run together.
        max_queue: Most windows waiting.
    """

    workers: int | None
    max_batch: int
    max_queue: int


class Model:
    """A bundle, loaded and replayed on the device that will serve it.

    Args:
        folder: The bundle.
        runtime: Opens its sessions.
        capacity: Threads, batch and queue.
        observer: Told of waits and batches.

    Raises:
        BundleError: the bundle is damaged, does not keep the contract, or its probes come out
            different on this device; the message says which.
        StartError: the device does not work.
    """

    def __init__(
        self, folder: Path, runtime: Runtime, capacity: Capacity, observer: Observer
    ) -> None:
        self.manifest = manifest.read(folder)
        if (self.manifest.name, self.manifest.version) != (folder.parent.name, folder.name):
            raise BundleError(
                f"{folder}: the manifest is of {self.manifest.name} version {self.manifest.version}"
            )
        for name in _FILES:
            if name not in self.manifest.files:
                raise BundleError(f"{folder}: the manifest has no checksum of {name}")
        checksums.check(folder, self.manifest.files)
        self._folder = folder
        self._runtime = runtime
        self._probes = _read_probes(folder / layout.PROBES)
        self._forecast_session = self._open(layout.FORECAST_GRAPH)
        if self.manifest.attention:
            # Tested with the rest of the bundle, and not kept: few callers ask for attention.
            self._open(layout.EXPLAIN_GRAPH)
        self._explain_session: Session | None = None
        self._explain_failure: Exception | None = None
        self._explain_lock = threading.Lock()
        self._batcher = Batcher(
            self._run,
            workers=1 if runtime.on_gpu else capacity.workers or usable_cpus(),
            max_batch=capacity.max_batch,
            max_queue=capacity.max_queue,
            observer=observer,
            graph_limits={
                layout.EXPLAIN_GRAPH: max(1, _ATTENTION_VALUES // attention_values(self.manifest))
            },
        )

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """Its version."""
        return self.manifest.version

    @property
    def provider(self) -> str:
        """The execution provider that runs it."""
        return self._forecast_session.provider

    @property
    def waiting(self) -> int:
        """Windows in its queue."""
        return self._batcher.waiting

    def check_room(self) -> None:
        """See `Batcher.check_room`."""
        self._batcher.check_room()

    def submit(self, feeds: Arrays, *, explain: bool, deadline: float) -> Future[Arrays]:
        """Queue windows; see `Batcher.submit`.

        Args:
            feeds: `[windows, …]` by input name, already checked.
            explain: Whether the attention outputs are wanted besides the forecast.
            deadline: On the clock of `time.monotonic`.

        Raises:
            QueueFullError: the queue has no room for them.
            NotReadyError: the model is closed.
        """
        graph = layout.EXPLAIN_GRAPH if explain else layout.FORECAST_GRAPH
        return self._batcher.submit(graph, feeds, deadline=deadline)

    def close(self, timeout: float) -> None:
        """Refuse new work and finish what was accepted, within `timeout` seconds; drop the rest."""
        self._batcher.close(timeout)
        for session in (self._forecast_session, self._explain_session):
            if session is not None:
                session.stop()
        # A thread that is inside onnxruntime when Python exits would abort the process.
        self._batcher.close(_STOP_SECONDS)

    def _run(self, graph: str, feeds: Arrays) -> Arrays:
        if graph == layout.FORECAST_GRAPH:
            return self._forecast_session.run(feeds)
        return self._explain().run(feeds)

    def _explain(self) -> Session:
        with self._explain_lock:
            if self._explain_session is None and self._explain_failure is None:
                try:
                    self._explain_session = self._open(layout.EXPLAIN_GRAPH)
                except (BundleError, StartError) as error:
                    self._explain_failure = error
            if self._explain_session is None:
                # It would fail again: whoever asks next need not wait for that.
                raise ModelFailedError(
                    "the model's attention graph could not be opened again"
                ) from self._explain_failure
            return self._explain_session

    def _open(self, graph: str) -> Session:
        session = self._runtime.open(self._folder / graph)
        outputs = {FORECAST} if self.manifest.margin_bound is None else {FORECAST, MARGIN}
        if graph == layout.EXPLAIN_GRAPH:
            outputs.update(name for stage in self.manifest.attention for name in stage.outputs)
        self._check_signature(session, outputs)
        self._replay(session)
        _logger.info("opened %s on %s", session.graph, session.provider)
        return session

    def _check_signature(self, session: Session, outputs: set[str]) -> None:
        expected: dict[str, Shape] = {
            HISTORY: (None, self.manifest.context, len(self.manifest.channels))
        }
        if self.manifest.calendar is not None:
            features = len(self.manifest.calendar.features)
            expected[HISTORY_CALENDAR] = (None, self.manifest.context, features)
            expected[FUTURE_CALENDAR] = (None, self.manifest.horizon, features)
        fits = session.inputs.keys() == expected.keys() and all(
            len(shape) == 3
            and shape[0] is None
            and all(
                size in (None, wanted) for size, wanted in zip(shape, expected[name], strict=True)
            )
            for name, shape in session.inputs.items()
        )
        if not fits:
            raise BundleError(f"{session.graph}: its inputs are {session.inputs}, not {expected}")
        if missing := outputs - set(session.outputs):
            raise BundleError(f"{session.graph}: it has no output {', '.join(sorted(missing))}")

    def _replay(self, session: Session) -> None:
        """Compare the probes' forecasts with the expected ones, all together and one alone."""
        scale = np.array(self.manifest.scaler.std)
        for count in (len(self._probes[FORECAST]), 1):
            probes = {name: rows[:count] for name, rows in self._probes.items()}
            expected = probes.pop(FORECAST)
            try:
                forecast = session.run(probes)[FORECAST]
            except ServiceError as error:
                raise BundleError(f"{session.graph}: probes: {error.__cause__}") from error
            if forecast.shape != expected.shape:
                raise BundleError(
                    f"{session.graph}: forecasts probes as {forecast.shape}, not {expected.shape}"
                )
            error_size = relative_error(forecast, expected, scale).max()
            if not error_size <= self.manifest.probe_tolerance:
                raise BundleError(
                    f"{session.graph}: the probes' forecasts on {session.provider} differ from the "
                    f"expected ones by {error_size:.2g}, over the tolerance of "
                    f"{self.manifest.probe_tolerance:.2g} (relative)"
                )


def attention_values(manifest: Manifest) -> int:
    """Attention weights that `explain.onnx` returns of a window, at least 1."""
    return 1 + sum(
        stage.heads
        * stage.query.length
        * stage.key.length
        * (len(manifest.channels) if stage.per_channel else 1)
        for stage in manifest.attention
        if stage.kind == "softmax"
    )


def _read_probes(path: Path) -> Arrays:
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            probes = {name: file[name] for name in file.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise BundleError(f"{path}: cannot be read: {error}") from error
    if FORECAST not in probes or not len(probes[FORECAST]):
        raise BundleError(f"{path}: has no expected forecast")
    return probes
