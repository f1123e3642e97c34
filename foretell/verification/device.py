"""Checks of a bundle on a device, and timings of batches."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foretell.bundle import layout
from foretell.bundle.manifest import Manifest
from foretell.bundle.measure import deviations, relative_error
from foretell.bundle.results import Check
from foretell.export.choices import Outputs
from foretell.export.comparison import LARGEST as LARGEST_COMPARED
from foretell.export.comparison import Comparison
from foretell.export.window_set import Floats, WindowSet
from foretell.service.arrays import FORECAST, Arrays, input_shapes
from foretell.service.cuda.replays import bucket_sizes
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.selftest import SelfTest
from foretell.service.session import Session
from foretell.verification.reference import NATURAL, Cases

LARGEST = 128
_RUNS = 20
# A replay may run other kernels than a plain run, which round the last digit differently.
_REPLAY_TOLERANCE = {"float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}
_BATCHES = tuple(2**power for power in range(11))
# Larger batches on one CPU thread take long and add no information.
_MOST_ON_CPU = 32
REPLAY, PLAIN, CPU = "CUDA graph", "CUDA, plain", "CPU, one thread"
# The graph of each of `_Sessions`.
_GRAPHS = (layout.FORECAST_GRAPH, layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH)


@dataclass
class Finding:
    """The results of a check.

    Attributes:
        devices: Number of devices.
        replay_error: Largest relative error of a replay against a plain run of the same batch; None
            if nothing was compared.
        checks: Checks of the export, against torch in float64.
        faults: Messages of failed checks.
    """

    devices: int
    replay_error: float | None = None
    checks: list[Check] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class FaultError(Exception):
    """A check failed; the message gives the reason."""


@contextmanager
def noting(faults: list[str], where: str) -> Iterator[None]:
    """Record an exception as a fault of one line, and continue after the block."""
    try:
        yield
    # The other checks still have to run: access to a GPU may be short.
    except Exception as error:
        message = f"{error}" or type(error).__name__
        if error.__cause__ and str(error.__cause__) not in message:
            message += f": {error.__cause__}"
        faults.append(" ".join(f"{where}: {message}".split()))


@dataclass(frozen=True)
class Subject:
    """A bundle and its reference cases.

    Attributes:
        folder: The bundle.
        manifest: Its manifest.
        cases: Reference cases by kind of windows; without them, only the probes are compared.
    """

    folder: Path
    manifest: Manifest
    cases: Cases

    @cached_property
    def windows(self) -> WindowSet:
        """Natural windows of the cases, or the windows of the probes."""
        if NATURAL in self.cases:
            return self.cases[NATURAL].windows
        with np.load(self.folder / layout.PROBES, allow_pickle=False) as probes:
            inputs = {name: probes[name] for name in input_shapes(self.manifest)}
        return WindowSet(NATURAL, inputs)

    @cached_property
    def scale(self) -> NDArray[np.float64]:
        """Smallest scale of relative errors, for small forecasts."""
        return deviations(self.manifest.scaler, self.windows.history, self.manifest.columns)

    @property
    def replay_tolerance(self) -> float:
        """The largest relative error of a replay against a plain run."""
        return _REPLAY_TOLERANCE[self.manifest.precision]

    def difference(self, one: Floats, other: Floats) -> float:
        """The largest relative error between two forecasts."""
        return float(relative_error(one, other, self.scale).max())


class _Sessions(NamedTuple):
    """Sessions of the forecast graph, with and without replays, and of the explain graph."""

    replays: Session
    plain: Session
    explain: Session


class _Runner:
    """A session on one device, with the interface for `foretell.export.comparison`."""

    def __init__(self, session: Session, worker: int) -> None:
        self._session = session
        self._worker = worker

    def run(self, inputs: Mapping[str, Floats]) -> Outputs:
        return self._session.run(dict(inputs), self._worker)


def check(subject: Subject, runtime: Runtime) -> Finding:
    """Check a bundle on every device, on all of them at once, and then on each."""
    found = Finding(runtime.inference_threads(1))
    with ExitStack() as stack:
        # CUDA graphs belong to the thread that captured them.
        threads = [stack.enter_context(ThreadPoolExecutor(1)) for _ in range(found.devices)]
        with noting(found.faults, "on all devices at once"):
            sessions = _open(subject, runtime, stack)
            _together(subject, sessions.replays, threads)
            if runtime.on_gpu and not getattr(sessions.replays, "captures", False):
                raise FaultError("no CUDA graph could be captured; the log says why")
        for worker, thread in enumerate([] if found.faults else threads):
            thread.submit(partial(_check_device, found, subject, sessions, worker)).result()
    return found


def _open(subject: Subject, runtime: Runtime, stack: ExitStack) -> _Sessions:
    opened = []
    for file, largest in zip(_GRAPHS, (LARGEST, None, None), strict=True):
        session = runtime.open(subject.folder / file, max_batch=largest)
        stack.callback(session.close)
        opened.append(session)
    return _Sessions(*opened)


def _together(subject: Subject, session: Session, threads: Sequence[Executor]) -> None:
    """Capture and run on all devices at once, and check that forecasts are equal."""
    rows: Arrays = dict(subject.windows.inputs)

    def work(worker: int) -> list[Floats]:
        session.warm(worker)
        return [session.run(rows, worker)[FORECAST] for _ in range(_RUNS)]

    running = [thread.submit(work, worker) for worker, thread in enumerate(threads)]
    # Wait for all threads: an error closes the session that they use.
    wait(running)
    results = [one.result() for one in running]
    for worker, forecasts in enumerate(results):
        worst = max(subject.difference(forecast, results[0][0]) for forecast in forecasts)
        if not worst <= subject.replay_tolerance:
            raise FaultError(f"device {worker} differs from the first run by {worst:.2g}")


def _check_device(found: Finding, subject: Subject, sessions: _Sessions, worker: int) -> None:
    """Check one device, on its thread; every failed step is a fault."""
    where = f"device {worker}"
    with noting(found.faults, where):
        probes = (subject.folder / layout.PROBES).read_bytes()
        test = SelfTest(subject.folder, subject.manifest, probes, LARGEST)
        for session, file in zip(sessions, _GRAPHS, strict=True):
            test.check_interface(session, file)
            test.replay(session, worker)
    with noting(found.faults, where):
        error = _against_plain(subject, sessions, worker)
        found.replay_error = max(found.replay_error or 0.0, error)
        if not error <= subject.replay_tolerance:
            raise FaultError(f"replays differ from plain runs by {error:.2g}")
    if subject.cases:
        with noting(found.faults, where):
            checks = _export_checks(subject, sessions, worker)
            found.checks += checks
            found.faults += [
                f"{where}: {one.name}: error {one.max_error:.1e}, not {one.tolerance:.0e} at most"
                for one in checks
                if not one.passed
            ]


def _against_plain(subject: Subject, sessions: _Sessions, worker: int) -> float:
    """The largest error of a replay against a plain run of the padded batch."""
    windows, largest = subject.windows, 0.0
    for size in bucket_sizes(LARGEST):
        for count in {size, max(1, size // 2 + 1)}:
            rows = np.resize(np.arange(len(windows)), count)
            filled = np.concatenate([rows, np.full(size - count, rows[-1])])
            plain = sessions.plain.run({**windows.take(filled).inputs}, worker)
            replayed = sessions.replays.run({**windows.take(rows).inputs}, worker)
            error = subject.difference(replayed[FORECAST], plain[FORECAST][:count])
            # This comparison also keeps NaN.
            largest = error if not error <= largest else largest
    return largest


def _export_checks(subject: Subject, sessions: _Sessions, worker: int) -> list[Check]:
    """The checks of the export, on the outputs of a device."""
    described = subject.manifest
    comparison = Comparison(
        described.attention,
        subject.scale,
        described.distribution,
        described.precision,
        _Runner(sessions.replays, worker),
        _Runner(sessions.explain, worker),
    )
    cases = dict(subject.cases)
    natural = cases.pop(NATURAL)
    found = comparison.natural(natural.windows, natural.batches(LARGEST_COMPARED))
    far = ((name, case.batches(LARGEST_COMPARED)) for name, case in cases.items())
    return [*found.checks, *comparison.adversarial(far)]


def time_batches(
    subject: Subject,
    runtime: Runtime,
    batches: Sequence[int] = _BATCHES,
    seconds: float = 3.0,
) -> Mapping[int, Mapping[str, float]]:
    """Median seconds of a run, copies to a GPU and back included, by batch and way to run it.

    Args:
        subject: The bundle.
        runtime: The device.
        batches: Numbers of windows of a run.
        seconds: Time for all runs of a batch; the ways take turns.

    Raises:
        FaultError: a size of batch cannot be captured.
    """
    graph = subject.folder / layout.FORECAST_GRAPH
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}

        def open_session(name: str, runtime: Runtime, most: int | None = None) -> None:
            sessions[name] = runtime.open(graph, max_batch=most)
            stack.callback(sessions[name].close)

        if runtime.on_gpu:
            open_session(REPLAY, runtime, max(batches))
            sessions[REPLAY].warm(0)
            if not getattr(sessions[REPLAY], "captures", False):
                raise FaultError(f"not every batch up to {max(batches)} can be captured")
            open_session(PLAIN, runtime)
        if "cpu" in subject.manifest.devices:
            open_session(CPU, Runtime("cpu"))
        return {batch: _time(sessions, subject, batch, seconds) for batch in batches}


def _time(
    sessions: Mapping[str, Session], subject: Subject, batch: int, seconds: float
) -> dict[str, float]:
    windows = subject.windows
    rows: Arrays = {**windows.take(np.resize(np.arange(len(windows)), batch)).inputs}
    found: dict[str, list[float]] = {
        name: [] for name in sessions if name != CPU or batch <= _MOST_ON_CPU
    }
    end = time.perf_counter() + seconds
    while found and (time.perf_counter() < end or not all(found.values())):
        for name, times in found.items():
            # The first run warms the caches.
            sessions[name].run(rows)
            began = time.perf_counter()
            sessions[name].run(rows)
            times.append(time.perf_counter() - began)
    return {name: median(times) for name, times in found.items()}
