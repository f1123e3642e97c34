"""Whether a bundle runs on the GPUs as it should."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.gpu.faults import FaultError, noting
from bench.gpu.subjects import INPUTS, NATURAL, Subject
from foretell.bundle import layout
from foretell.bundle.manifest import Check
from foretell.bundle.measure import deviations, relative_error
from foretell.export.choices import Outputs
from foretell.export.comparison import LARGEST as LARGEST_COMPARED
from foretell.export.comparison import Comparison
from foretell.export.window_set import Floats, WindowSet
from foretell.service.arrays import FORECAST, Arrays
from foretell.service.cuda.replays import bucket_sizes
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.selftest import SelfTest
from foretell.service.session import Session

LARGEST = 128
_RUNS = 20
# A replay runs the kernels of a plain run, or others that round the last digit otherwise.
_REPLAY_TOLERANCE = {"float32": 1e-6, "float16": 2.0**-10, "bfloat16": 2.0**-7}


@dataclass
class Finding:
    """One bundle, checked.

    Attributes:
        name: Of the bundle.
        replay_error: Largest of a replay against a plain run of the same batch, relative; None if
            none was compared.
        checks: By the rules of the export, against torch in float64.
        faults: What is wrong.
    """

    name: str
    replay_error: float | None = None
    checks: list[Check] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)


class _Runner:
    """Runs a session on one GPU, as `foretell.export.comparison` wants it."""

    def __init__(self, session: Session, worker: int) -> None:
        self._session = session
        self._worker = worker

    def run(self, inputs: Sequence[Floats | None]) -> Outputs:
        return self._session.run(feeds(inputs), self._worker)


def feeds(inputs: Sequence[Floats | None]) -> Arrays:
    """Inputs by name; those that a model has."""
    return {name: rows for name, rows in zip(INPUTS, inputs, strict=True) if rows is not None}


def check(subject: Subject, gpu: Runtime) -> Finding:
    """Look at a bundle on every GPU, all of them at once, and one after the other."""
    found = Finding(subject.name)
    with ExitStack() as stack:
        # CUDA graphs belong to the thread that captured them.
        threads = [
            stack.enter_context(ThreadPoolExecutor(1)) for _ in range(gpu.inference_threads(1))
        ]
        with noting(found.faults, "on all GPUs at once"):
            sessions = _open(subject, gpu, stack)
            _together(subject, sessions.replays, threads)
            if gpu.on_gpu and not getattr(sessions.replays, "captures", False):
                raise FaultError("no CUDA graph could be captured; the log says why")
        if found.faults:
            return found
        for worker, thread in enumerate(threads):
            look = partial(_look, found, subject, sessions, worker)
            thread.submit(look).result()
    return found


class _Sessions(NamedTuple):
    """Of a bundle: two of the graph that serves, of which one replays, and the other graph."""

    replays: Session
    plain: Session
    explain: Session


def _open(subject: Subject, gpu: Runtime, stack: ExitStack) -> _Sessions:
    opened = []
    for file, largest in (
        (layout.FORECAST_GRAPH, LARGEST),
        (layout.FORECAST_GRAPH, None),
        (layout.EXPLAIN_GRAPH, None),
    ):
        session = gpu.open(subject.folder / file, max_batch=largest)
        stack.callback(session.close)
        opened.append(session)
    return _Sessions(*opened)


def _together(subject: Subject, session: Session, threads: Sequence[Executor]) -> None:
    """Have all GPUs capture and run at once: all must come to the same forecasts every time."""
    rows = feeds(subject.cases[NATURAL].windows.inputs)

    def work(worker: int) -> list[Floats]:
        session.warm(worker)
        return [session.run(rows, worker)[FORECAST] for _ in range(_RUNS)]

    running = [thread.submit(work, worker) for worker, thread in enumerate(threads)]
    # All of them end before an error of one is raised, and what they use is closed.
    wait(running)
    results = [one.result() for one in running]
    for worker, forecasts in enumerate(results):
        for forecast in forecasts:
            difference = _difference(subject, forecast, results[0][0])
            if not difference <= _replay_tolerance(subject):
                raise FaultError(
                    f"GPU {worker} differs from the first of GPU 0 by {difference:.2g}"
                )


def _look(found: Finding, subject: Subject, sessions: _Sessions, worker: int) -> None:
    """Check one GPU, on the thread that runs it; every step that fails is a fault."""
    where = f"GPU {worker}"
    with noting(found.faults, where):
        _replay_probes(subject, sessions, worker)
    with noting(found.faults, where):
        error = _against_plain(subject, sessions, worker)
        found.replay_error = max(found.replay_error or 0.0, error)
        if not error <= _replay_tolerance(subject):
            raise FaultError(f"replays differ from plain runs by {error:.2g}")
    with noting(found.faults, where):
        checks = _by_the_rules(subject, sessions, worker)
        found.checks += checks
        found.faults += [
            f"{where}: {one.name}: error {one.max_error:.1e}, at most {one.tolerance:.0e} allowed"
            for one in checks
            if not one.passed
        ]


def _replay_tolerance(subject: Subject) -> float:
    return _REPLAY_TOLERANCE[subject.manifest.precision]


def _replay_probes(subject: Subject, sessions: _Sessions, worker: int) -> None:
    probes = (subject.folder / layout.PROBES).read_bytes()
    test = SelfTest(subject.folder, subject.manifest, probes, LARGEST)
    files = (layout.FORECAST_GRAPH, layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH)
    for session, file in zip(sessions, files, strict=True):
        test.check_interface(session, file)
        test.replay(session, worker)


def _against_plain(subject: Subject, sessions: _Sessions, worker: int) -> float:
    """Largest error of a replay against a plain run of all that is in the buffers."""
    windows = subject.cases[NATURAL].windows
    largest = 0.0
    for size in bucket_sizes(LARGEST):
        for count in {size, max(1, size // 2 + 1)}:
            rows = np.resize(np.arange(len(windows)), count)
            filled = np.concatenate([rows, np.full(size - count, rows[-1])])
            plain = sessions.plain.run(feeds(windows.take(filled).inputs), worker)
            replayed = sessions.replays.run(feeds(windows.take(rows).inputs), worker)
            error = _difference(subject, replayed[FORECAST], plain[FORECAST][:count])
            # Also where one is not a number.
            largest = error if not error <= largest else largest
    return largest


def _by_the_rules(subject: Subject, sessions: _Sessions, worker: int) -> list[Check]:
    """What `foretell verify` looks at, with what the GPU computes."""
    described = subject.manifest
    comparison = Comparison(
        described.attention,
        _scale(subject),
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


def _difference(subject: Subject, one: Floats, other: Floats) -> float:
    """The largest, relative."""
    return float(relative_error(one, other, _scale(subject)).max())


def _scale(subject: Subject) -> Floats:
    """What errors count relative to, where these are smaller."""
    manifest, windows = subject.manifest, subject.cases[NATURAL].windows
    return deviations(manifest.scaler, windows.history, manifest.columns)


def windows_for(subject: Subject, count: int) -> WindowSet:
    """So many natural windows, over and over."""
    windows = subject.cases[NATURAL].windows
    return windows.take(np.resize(np.arange(len(windows)), count))


def graph_of(subject: Subject) -> Path:
    """The graph that serves."""
    return subject.folder / layout.FORECAST_GRAPH
