"""Whether a bundle runs on the GPUs as it should."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from bench.gpu.subjects import NATURAL, Subject
from bundle import layout
from bundle.comparison import relative_error
from bundle.errors import BundleError
from bundle.manifest import Check
from export.comparison import Comparison, Outputs
from export.errors import ExportError
from export.window_set import Floats, WindowSet
from service.arrays import Arrays
from service.cuda.buckets import bucket_sizes
from service.cuda.session import CudaSession
from service.engine.runtime import Runtime
from service.engine.selftest import SelfTest
from service.errors import ServiceError
from service.session import Session
from service.tensors import FORECAST, FUTURE_CALENDAR, HISTORY, HISTORY_CALENDAR

LARGEST = 128
# A replay runs the very kernels that were captured.
_REPLAY_TOLERANCE = 1e-6
_NAMES = (HISTORY, HISTORY_CALENDAR, FUTURE_CALENDAR)


@dataclass
class Finding:
    """One bundle, checked.

    Attributes:
        name: Of the bundle.
        precision: Of its products.
        captured: Whether every size of batch replays a CUDA graph, on every GPU.
        replay_error: Largest of a replay against a plain run of the same batch, relative.
        checks: By the rules of the export, against torch in float64.
        faults: What is wrong.
    """

    name: str
    precision: str
    captured: bool = False
    replay_error: float = 0.0
    checks: list[Check] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class _Runner:
    """Runs a session on one GPU, as `export.comparison` wants it."""

    def __init__(self, session: Session, worker: int) -> None:
        self._session = session
        self._worker = worker

    def run(self, inputs: Sequence[Floats | None]) -> Outputs:
        return self._session.run(feeds(inputs), self._worker)

    def forecast(self, *inputs: Floats | None) -> Floats:
        found: Floats = self.run(inputs)[FORECAST]
        return found


def feeds(inputs: Sequence[Floats | None]) -> Arrays:
    """Inputs by name; those that a model has."""
    return {name: rows for name, rows in zip(_NAMES, inputs, strict=True) if rows is not None}


def check(subject: Subject, gpu: Runtime) -> Finding:
    """Look at a bundle on every GPU, all of them at once, and one after the other."""
    found = Finding(subject.name, subject.manifest.precision)
    sessions: list[Session] = []
    try:
        replays = gpu.open(subject.folder / layout.FORECAST_GRAPH, max_batch=LARGEST)
        sessions.append(replays)
        plain = gpu.open(subject.folder / layout.FORECAST_GRAPH)
        sessions.append(plain)
        explain = gpu.open(subject.folder / layout.EXPLAIN_GRAPH)
        sessions.append(explain)
        _together(subject, replays, gpu.workers(1))
        found.captured = isinstance(replays, CudaSession) and replays.captures
        if gpu.on_gpu and not found.captured:
            found.faults.append("no CUDA graph could be captured; the log says why")
        for worker in range(gpu.workers(1)):
            _replay_probes(subject, (replays, plain, explain), worker)
            error = _against_plain(subject, replays, plain, worker)
            found.replay_error = max(found.replay_error, error)
            found.checks += _by_the_rules(subject, replays, explain, worker)
    except (BundleError, ExportError, ServiceError) as error:
        cause = f": {error.__cause__}" if error.__cause__ else ""
        found.faults.append(f"{error}{cause}")
    finally:
        for session in sessions:
            session.close()
    if not found.replay_error <= _REPLAY_TOLERANCE:
        found.faults.append(f"replays differ from plain runs by {found.replay_error:.2g}")
    found.faults += [
        f"{one.name}: error {one.max_error:.1e}, at most {one.tolerance:.0e} allowed"
        for one in found.checks
        if not one.passed
    ]
    return found


def _together(subject: Subject, session: Session, workers: int) -> None:
    """Have all GPUs capture and run at once: each must come to the same forecasts."""
    case = subject.cases[NATURAL]
    forecasts: dict[int, Floats] = {}
    errors: list[Exception] = []

    def work(worker: int) -> None:
        try:
            session.warm(worker)
            for _ in range(20):
                forecasts[worker] = session.run(feeds(case.windows.inputs), worker)[FORECAST]
        # It is raised by who started the thread.
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(worker,)) for worker in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error
    for worker, forecast in forecasts.items():
        difference = float(_difference(subject, forecast, forecasts[0]).max())
        if not difference <= _REPLAY_TOLERANCE:
            raise BundleError(f"GPU {worker} differs from GPU 0 by {difference:.2g}")


def _replay_probes(subject: Subject, sessions: Sequence[Session], worker: int) -> None:
    test = SelfTest(subject.folder, subject.manifest, LARGEST)
    for session, graph in zip(
        sessions, (layout.FORECAST_GRAPH, layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH), strict=True
    ):
        test.check_interface(session, graph)
        test.replay(session, worker)


def _against_plain(subject: Subject, replays: Session, plain: Session, worker: int) -> float:
    """Largest error of a replay against a plain run of all that is in the buffers."""
    windows = subject.cases[NATURAL].windows
    largest = 0.0
    for size in bucket_sizes(LARGEST):
        for count in {size, max(1, size // 2 + 1)}:
            rows = np.resize(np.arange(len(windows)), count)
            filled = np.concatenate([rows, np.full(size - count, rows[-1])])
            expected = plain.run(feeds(windows.take(filled).inputs), worker)[FORECAST][:count]
            forecast = replays.run(feeds(windows.take(rows).inputs), worker)[FORECAST]
            largest = max(largest, float(_difference(subject, forecast, expected).max()))
    return largest


def _by_the_rules(subject: Subject, replays: Session, explain: Session, worker: int) -> list[Check]:
    """What `foretell verify` looks at, with what the GPU computes."""
    described = subject.manifest
    comparison = Comparison(
        described.attention,
        described.scaler,
        described.precision,
        _Runner(replays, worker),
        _Runner(explain, worker),
    )
    checks: list[Check] = []
    for case in subject.cases.values():
        if case.rounded is None:
            explained = comparison.explain(case.windows)
            comparison.compared_enough(case.windows, explained, case.exact)
            checks += comparison.forecasts(case.windows, case.exact, explained)
            checks += comparison.attention(case.windows, case.exact, explained)
        else:
            checks += comparison.adversarial(case.windows, case.exact, case.rounded)
    return checks


def _difference(subject: Subject, one: Floats, other: Floats) -> Floats:
    found: Floats = relative_error(one, other, np.array(subject.manifest.scaler.std))
    return found


def windows_for(subject: Subject, count: int) -> WindowSet:
    """So many natural windows, over and over."""
    windows = subject.cases[NATURAL].windows
    return windows.take(np.resize(np.arange(len(windows)), count))


def graph_of(subject: Subject) -> Path:
    """The graph that serves."""
    return subject.folder / layout.FORECAST_GRAPH
