"""Tests a model against its bundle on the serving device, at the load and after failures."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from math import inf
from pathlib import Path

import numpy as np

from foretell.bundle import archives, layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.bundle.measure import deviations, relative_error
from foretell.service.arrays import FORECAST, HISTORY, Arrays, input_shapes, output_shapes
from foretell.service.errors import ModelFailedError
from foretell.service.session import Session, Shape

_logger = logging.getLogger(__name__)

# Sizes of runs that are timed on a CPU, rounds, and the least gain over the usual size: less may be
# chance.
_SIZES, _ROUNDS, _GAIN = (2, 4, 8, 16), 12, 1.05
# Seconds that a thread spends on timing: CPU time, and time by the clock. The second is longer, so
# that a busy machine tries more than the smallest size.
_TIMING_SECONDS, _MOST_TIMING_SECONDS = 0.3, 1.0
# Failed runs in a row before a model is tested, and the pauses between failed tests.
_FAILURES, _FIRST_SECONDS, _LONGEST_SECONDS = 3, 1.0, 60.0

# CPU seconds of a window in each run, by the size of the run.
Seconds = dict[int, list[float]]


def fastest_batch(seconds: Seconds, usual: int) -> int:
    """The size of runs with the least time for a window, or the usual size if it is near.

    Other work of the machine only makes runs slower, so a size is measured by its lower quartile,
    not its median. A size that fails on one inference thread is too large for all. Another size
    than the usual one is only taken for a clear gain.
    """
    too_large = min((size for size, each in seconds.items() if inf in each), default=inf)
    took = {
        size: sorted(each)[len(each) // 4] for size, each in seconds.items() if size < too_large
    }
    usual = max((size for size in took if size <= usual), default=usual)
    best = min(took, key=lambda size: took[size], default=usual)
    return best if took.get(usual, 0.0) > _GAIN * took.get(best, 0.0) else usual


class SelfTest:
    """Checks the graphs of a bundle against its manifest and probes."""

    def __init__(self, folder: Path, manifest: Manifest, probes: bytes, max_batch: int) -> None:
        self._manifest = manifest
        self._max_batch = max_batch
        self._outputs = output_shapes(manifest)
        path = folder / layout.PROBES
        self._probes = archives.load(path, FORECAST, content=probes)
        if not self._probes[FORECAST].size:
            raise BundleError(f"{path}: has no expected forecast")
        found, wanted = self._probes[FORECAST].shape[1:], self._outputs[FORECAST]
        if found != wanted:
            raise BundleError(f"{path}: forecasts {found}, not {wanted}")

    def check_interface(self, session: Session, graph: str) -> None:
        """Compare the inputs and outputs of a graph with the manifest, or raise BundleError."""
        expected = {name: (None, *shape) for name, shape in input_shapes(self._manifest).items()}
        fits = session.inputs.keys() == expected.keys() and all(
            _admits(shape, expected[name]) and shape[0] is None
            for name, shape in session.inputs.items()
        )
        if not fits:
            raise BundleError(f"{session.graph}: its inputs are {session.inputs}, not {expected}")
        outputs = set(self._outputs)
        if graph == layout.EXPLAIN_GRAPH:
            outputs.update(name for each in self._manifest.attention for name in each.output_names)
        if missing := outputs - set(session.outputs):
            raise BundleError(f"{session.graph}: it has no output {', '.join(sorted(missing))}")

    def replay(self, session: Session, thread: int = 0) -> None:
        """Compare forecasts of the probes, in batches and one alone, with the expected ones."""
        count = len(self._probes[FORECAST])
        for start in range(0, count, self._max_batch):
            self._compare(session, thread, slice(start, start + self._max_batch))
        self._compare(session, thread, slice(1))

    def time_runs(self, session: Session, seconds: Seconds, thread: int) -> None:
        """Add to `seconds` the CPU time of runs of several sizes, while other threads do the same.

        Infinity stands for a size that fails. Memory of the larger sizes is given back.
        """
        most = _SIZES[-1]
        probes = {
            name: np.resize(rows, (most, *rows.shape[1:]))
            for name, rows in self._probes.items()
            if name != FORECAST
        }
        enough = time.thread_time() + _TIMING_SECONDS
        end = time.monotonic() + _MOST_TIMING_SECONDS
        for size in _SIZES * _ROUNDS:
            # CPU time, as starting HTTP workers would slow long runs down more by the clock.
            began = time.thread_time()
            try:
                session.run({name: rows[:size] for name, rows in probes.items()}, thread)
            except ModelFailedError:
                # There may be too little memory for this size.
                seconds.setdefault(size, []).append(inf)
                break
            ended = time.thread_time()
            seconds.setdefault(size, []).append((ended - began) / size)
            # The next size may take twice as long.
            if ended + 2 * (ended - began) > enough or time.monotonic() > end:
                break
        session.shrink({name: rows[:1] for name, rows in probes.items()})

    def _compare(self, session: Session, thread: int, windows: slice) -> None:
        probes = {name: rows[windows] for name, rows in self._probes.items()}
        manifest = self._manifest
        expected = probes.pop(FORECAST)
        try:
            outputs = session.run(probes, thread)
        except ModelFailedError as error:
            raise BundleError(f"{session.graph}: probes: {error.__cause__}") from error
        self._check_attention(session, outputs, len(expected))
        for name, shape in self._outputs.items():
            wanted = (len(expected), *shape)
            if (found := outputs[name].shape) != wanted:
                raise BundleError(f"{session.graph}: {name} of probes is {found}, not {wanted}")
        scale = deviations(manifest.scaler, self._probes[HISTORY], manifest.columns)
        error_size = relative_error(outputs[FORECAST], expected, scale).max()
        if not error_size <= manifest.probe_tolerance:
            raise BundleError(
                f"{session.graph}: the probes' forecasts on {session.provider} differ from the "
                f"expected ones by {error_size:.2g}, over the tolerance of "
                f"{manifest.probe_tolerance:.2g} (relative)"
            )

    def _check_attention(self, session: Session, outputs: Arrays, windows: int) -> None:
        for wanted in (each for stage in self._manifest.attention for each in stage.outputs):
            if wanted.name not in outputs:
                continue
            found = outputs[wanted.name]
            shape = (windows, *wanted.shape)
            if found.dtype != wanted.type or not _admits(shape, found.shape):
                raise BundleError(
                    f"{session.graph}: {wanted.name} is {found.dtype} {found.shape}, not "
                    f"{wanted.type} {shape}"
                )


def _admits(shape: Shape, wanted: Shape) -> bool:
    """Whether a shape, with None for any length, can be the wanted one."""
    return len(shape) == len(wanted) and all(
        size in (None, own) for size, own in zip(shape, wanted, strict=True)
    )


class Health:
    """Watches the runs of a model; threads may share it.

    Some histories may make a healthy model fail. So several failed runs in a row only start the
    self-test, which decides. A failed model is tested again until it works, at intervals that grow
    from `first_seconds` to a minute.
    """

    def __init__(
        self,
        name: str,
        test: Callable[[], None],
        changed: Callable[[], None],
        *,
        first_seconds: float = _FIRST_SECONDS,
    ) -> None:
        self._name = name
        self._test = test
        self._changed = changed
        self._first_seconds = first_seconds
        self._changing = threading.Lock()
        self._closed = threading.Event()
        # Runs in a row that failed.
        self.failures = 0
        self._testing = False
        # Why the model does not work; None while it works.
        self.failure: str | None = None

    def succeeded(self) -> None:
        self.failures = 0

    def failed(self) -> None:
        with self._changing:
            self.failures += 1
            if self._testing or self.failures < _FAILURES:
                return
            self._testing = True
        # On a thread of its own: the self-test may need the thread of the run.
        examiner = threading.Thread(target=self._examine, name=f"test-{self._name}", daemon=True)
        try:
            examiner.start()
        except RuntimeError as reason:
            _logger.error("%s cannot be tested: %s", self._name, reason)
            with self._changing:
                # Without a test the model must not stay down: later failures start a new test.
                self._testing, self.failure = False, None
            self._changed()

    def close(self) -> None:
        self._closed.set()

    def _examine(self) -> None:
        """Test until the model works, however long that takes."""
        wait = 0.0
        while True:
            if self._closed.wait(wait):
                return
            try:
                self._test()
            except Exception as error:
                if self._closed.is_set():
                    return
                with self._changing:
                    self._set_failure(error)
                wait = min(max(2 * wait, self._first_seconds), _LONGEST_SECONDS)
            else:
                break
        with self._changing:
            if self.failure is not None:
                _logger.warning("%s works again", self._name)
            self.failure = None
            self.failures = 0
            self._testing = False
        self._changed()

    def _set_failure(self, error: Exception) -> None:
        reason = f"{error}: {error.__cause__}" if error.__cause__ else str(error)
        if self.failure is None:
            _logger.error("%s has failed: %s", self._name, reason)
        self.failure = reason
        self._changed()
