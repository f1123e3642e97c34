"""A served model: a bundle that passed its self-test, its sessions and its queue."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from foretell.bundle import calibration, checksums, example, layout, manifest
from foretell.bundle.errors import BundleError
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.bundle.placement import misplacement
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.arrays import HISTORY, Arrays
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.limits import return_free_memory
from foretell.service.engine.queues import Limits, Observer, Usage
from foretell.service.engine.registry import Named
from foretell.service.engine.run import Run, own_error
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler, check_rows
from foretell.service.engine.selftest import Health, Seconds, SelfTest, fastest_batch
from foretell.service.engine.store import without_folder
from foretell.service.errors import ModelFailedError, NotReadyError
from foretell.service.session import Session

_logger = logging.getLogger(__name__)

# What one run may return of attention, 64 MiB: a long context has far more of it than of forecast.
_ATTENTION_VALUES = 16 * 1024 * 1024
_STOP_SECONDS = 0.5
# Other models' batches come first, and a GPU captures its graphs.
_WORKERS_SECONDS = 300.0
# Opening a graph keeps a core busy: not every caller who asks for attention is worth it.
_REOPEN_SECONDS = 10.0


@dataclass(frozen=True)
class Capacity:
    """How much a model may hold at once.

    Attributes:
        max_batch: Most windows run together; if None, what the device runs at the best rate.
        max_windows: Most windows waiting.
        max_bytes: Most bytes of them.
    """

    max_batch: int | None
    max_windows: int
    max_bytes: int


class Proof(NamedTuple):
    """What the load of a bundle has shown, which is so while its manifest, with all sums, is equal.

    Attributes:
        manifest: Of the bundle.
        max_batch: Most windows run together.
    """

    manifest: Manifest
    max_batch: int


class Bundled(Named):
    """A model of a bundle in a folder, of which the manifest and the quantiles are read.

    Args:
        folder: The bundle.
        about: Its manifest.
        read: Reads a file of the bundle, of which the sum was compared, by its name.
        anywhere: Whether the folder need not be `<name>/<version>`.

    Attributes:
        manifest: Of the bundle.
        intervals: Its quantiles.

    Raises:
        BundleError: it does not lie where its manifest says, or its calibration is damaged.
    """

    def __init__(
        self,
        folder: Path,
        about: Manifest,
        read: Callable[[str], bytes],
        *,
        anywhere: bool = False,
    ) -> None:
        if not anywhere and (reason := misplacement(folder, about)):
            raise BundleError(reason)
        self._folder = folder
        self._read = read
        self.manifest = about
        self.intervals = Intervals(about, calibration.read(folder, about, read))

    def is_of_folder(self) -> bool:
        """See `registry.Loaded.is_of_folder`."""
        try:
            if manifest.read(self._folder) != self.manifest:
                return False
            checksums.check(self._folder, self.manifest.files)
        except BundleError:
            return False
        return True

    async def example(self) -> Example | None:
        """See `registry.Model.example`.

        Raises:
            NotReadyError: the model is closed, or is not in memory and its bundle is another one by
                now.
        """
        try:
            return await asyncio.to_thread(example.read, self._folder, self.manifest, self._read)
        # Of a closed copy `ValueError`, which `BundleError` is, too.
        except (ValueError, OSError) as error:
            raise NotReadyError("the model's bundle was changed since it was loaded") from error


class Model(Bundled):
    """A bundle, loaded and replayed on the device that will serve it.

    Args:
        folder: The bundle.
        runtime: Opens its sessions.
        scheduler: Runs it.
        capacity: Batch and queue.
        observer: Told of waits and batches.
        anywhere: Whether the folder need not be `<name>/<version>`.
        proofs: What earlier loads in this process have shown, by folder; takes that of this one.
            What was shown is not tried again: the graph with attention, the best batch.

    Attributes:
        max_batch: Most windows run together.
        provider: The execution provider that runs it.

    Raises:
        BundleError: the bundle is damaged, does not keep the contract, or its probes come out
            different on this device; the message says which. `NoRoomError` likewise.
        StartError: the device does not work.
    """

    on_demand = False
    resident = True

    def __init__(
        self,
        folder: Path,
        runtime: Runtime,
        scheduler: Scheduler,
        capacity: Capacity,
        observer: Observer,
        *,
        anywhere: bool = False,
        proofs: dict[Path, Proof] | None = None,
    ) -> None:
        about = read_manifest(folder, runtime)
        proof = proofs.get(folder) if proofs else None
        if proof is not None and proof.manifest != about:
            proof = None
        # All that is tested and served is read from it, whatever becomes of the folder.
        self._copy = PrivateCopy(folder, about.files)
        try:
            # What is damaged is told before what lies at the wrong place.
            super().__init__(folder, about, self._copy.read, anywhere=anywhere)
            self._load(runtime, scheduler, capacity, observer, proof)
        except BaseException:
            self._copy.close()
            raise
        if proofs is not None:
            proofs[folder] = Proof(about, self.max_batch)

    def _load(
        self,
        runtime: Runtime,
        scheduler: Scheduler,
        capacity: Capacity,
        observer: Observer,
        proof: Proof | None,
    ) -> None:
        folder = self._folder
        self._runtime = runtime
        self._batcher = scheduler
        if proof is None:
            # Few ask for it: it is read again when somebody does.
            example.read(folder, self.manifest, self._read)
        self.max_batch = capacity.max_batch or runtime.largest_batch
        probes = self._copy.read(layout.PROBES)
        self._test = SelfTest(folder, self.manifest, probes, self.max_batch)
        self._changing = threading.Lock()
        self._closed = False
        self._explain_failure = ""
        self._reopens = 0.0
        self._opening = False
        self._opener: threading.Thread | None = None
        self._sessions = {layout.FORECAST_GRAPH: self._open(layout.FORECAST_GRAPH, self.max_batch)}
        self.provider = self._sessions[layout.FORECAST_GRAPH].provider
        try:
            self._self_test(proof, tuned=capacity.max_batch is None and not runtime.on_gpu)
        except BaseException:
            self._sessions.pop(layout.FORECAST_GRAPH).close()
            raise
        exported = self.manifest.libraries.get("onnxruntime", runtime.library)
        if exported != runtime.library:
            _logger.info(
                "%s: exported with onnxruntime %s; its probes come out right under %s",
                folder,
                exported,
                runtime.library,
            )
        self._health = Health(
            f"{self.name}@{self.version}",
            partial(self._on_workers, self._replay),
            observer.changed,
        )
        explained = max(1, _ATTENTION_VALUES // attention_values(self.manifest))
        self._explained = min(explained, self.max_batch)
        limits = Limits(self.max_batch, capacity.max_windows, capacity.max_bytes)
        self._queue = scheduler.add(self._run, limits, observer)
        self._queue.pause(layout.EXPLAIN_GRAPH, self._reopen)

    @property
    def usage(self) -> Usage:
        """What its queue holds."""
        return self._queue.usage

    @property
    def failure(self) -> str | None:
        """Why it does not work any more, if so."""
        failure = self._health.failure
        return failure and without_folder(failure, self._folder.parent.parent)

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Run:
        """See `registry.Model.submit`.

        Raises:
            ModelFailedError: the model has failed.
            ServiceError: as `Queue.submit`.
        """
        if self._health.failure is not None:
            raise ModelFailedError("the model has failed; /readyz says why")
        graph = layout.EXPLAIN_GRAPH if attention else layout.FORECAST_GRAPH
        return self._queue.submit(
            graph, feeds, attention=attention, deadline=deadline, admitted=admitted
        )

    def run(self, feeds: Arrays) -> Arrays:
        """Run windows before all that waits, for a caller who has the model to himself.

        Args:
            feeds: As those of `submit`, of one window at least.

        Returns:
            `[windows, …]` by name.

        Raises:
            ModelFailedError: it does not run; `DeviceLostError` likewise.
            NotReadyError: the batcher is closed.
        """
        starts = iter(range(0, len(feeds[HISTORY]), self.max_batch))
        found: dict[int, Arrays] = {}

        def batches(worker: int) -> None:
            for start in starts:
                batch = {name: rows[start : start + self.max_batch] for name, rows in feeds.items()}
                found[start] = self._run(worker, layout.FORECAST_GRAPH, batch)
                check_rows(found[start], len(batch[HISTORY]))

        calls = self._batcher.on_threads(batches)
        if not calls:
            raise own_error(self._batcher.lost or NotReadyError("no worker is left"))
        wait(calls)
        for error in (call.exception() for call in calls):
            if error is not None:
                raise own_error(error)
        parts = [found[start] for start in sorted(found)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def load(self) -> None:
        """See `registry.Loaded.load`: it is."""

    def close(self, timeout: float) -> None:
        """Refuse new work and finish what was accepted, within `timeout` seconds; drop the rest."""
        end = time.monotonic() + timeout
        self._health.close()
        self._queue.close(timeout)
        with self._changing:
            self._closed = True
            sessions = list(self._sessions.values())
            # Whoever still holds this model holds no memory of them.
            self._sessions.clear()
        for session in sessions:
            session.stop()
        # A thread that is inside onnxruntime when Python exits would abort the process.
        self._queue.close(_STOP_SECONDS)
        if self._opener is not None:
            self._opener.join(max(_STOP_SECONDS, end - time.monotonic()))
        for session in sessions:
            session.close()
        self._copy.close()

    def _run(self, worker: int, graph: str, feeds: Arrays) -> Arrays:
        session = self._sessions.get(graph)
        if session is None:
            raise NotReadyError("the model is closed")
        try:
            outputs = session.run(feeds, worker)
        except ModelFailedError:
            self._health.failed()
            raise
        if self._health.failures:
            self._health.succeeded()
        return outputs

    def _reopen(self) -> None:
        """Have the graph of attention opened, unless that is going on; with the queues' lock.

        Not on an inference thread, which would run nothing else meanwhile.

        Raises:
            ModelFailedError: that has just failed.
        """
        if self._opening:
            return
        if time.monotonic() < self._reopens:
            raise _not_reopened() from BundleError(self._explain_failure)
        self._opening = True
        try:
            self._opener = self._batcher.beside(self._open_explain, f"open-{self.name}")
        except RuntimeError as error:
            self._opening = False
            raise _not_reopened() from BundleError(str(error))

    def _open_explain(self) -> None:
        session, failure = None, ""
        # Of all models one at a time: each takes memory, and a CPU from the inference threads.
        with self._runtime.opening:
            if not self._closed:
                try:
                    session = self._open(layout.EXPLAIN_GRAPH)
                    self._test.replay(session)
                # Later memory may be free again or a file readable.
                except Exception as error:
                    # Not the error itself, whose traceback would keep the session alive.
                    failure = str(error) or type(error).__name__
        with self._changing:
            if session is not None and not failure and not self._closed:
                self._sessions[layout.EXPLAIN_GRAPH], session = session, None
        if failure:
            self._explain_failure = failure
            self._reopens = time.monotonic() + _REOPEN_SECONDS
            self._opening = False
            refusal = _not_reopened()
            refusal.__cause__ = BundleError(failure)
            self._queue.fail_held(refusal)
        elif not self._closed:
            self._queue.resume(layout.EXPLAIN_GRAPH, self._explained)
        # Not while others wait for the lock: a GPU may be busy.
        if session is not None:
            session.close()

    def _open(self, graph: str, max_batch: int | None = None) -> Session:
        session = self._runtime.open(self._folder / graph, copy=self._copy, max_batch=max_batch)
        # onnxruntime held the weights once more while it prepared them.
        return_free_memory()
        try:
            self._test.check_interface(session, graph)
        except BaseException:
            session.close()
            raise
        _logger.info("opened %s on %s", session.graph, session.provider)
        return session

    def _self_test(self, proof: Proof | None, *, tuned: bool) -> None:
        self._on_workers(self._warm)
        self._on_workers(self._replay)
        if proof is not None:
            self.max_batch = proof.max_batch
            return
        if tuned:
            seconds: Seconds = {}
            self._on_workers(
                partial(self._test.time_runs, self._sessions[layout.FORECAST_GRAPH], seconds)
            )
            self.max_batch = fastest_batch(seconds, self.max_batch)
        if self.manifest.attention:
            # Tested with the rest of the bundle, and not kept: few callers ask for attention.
            explain = self._open(layout.EXPLAIN_GRAPH)
            try:
                self._test.replay(explain)
            finally:
                explain.close()

    def _warm(self, worker: int) -> None:
        session = self._sessions[layout.FORECAST_GRAPH]
        try:
            session.warm(worker)
        except ModelFailedError as error:
            raise BundleError(f"{session.graph}: {error.__cause__}") from error

    def _replay(self, worker: int) -> None:
        self._test.replay(self._sessions[layout.FORECAST_GRAPH], worker)

    def _on_workers(self, function: Callable[[int], None]) -> None:
        """Call a method on the thread of every worker, between batches of whatever they run."""
        calls = self._batcher.on_threads(function)
        # None is left behind that still uses what its caller gives up after an error.
        wait(calls, _WORKERS_SECONDS)
        for call in calls:
            if not call.done():
                raise ModelFailedError(f"a worker was not free within {_WORKERS_SECONDS:.0f} s")
            call.result()


def _not_reopened() -> ModelFailedError:
    return ModelFailedError("the model's attention graph could not be opened again")


def read_manifest(folder: Path, runtime: Runtime) -> Manifest:
    """The manifest of a bundle that can be served here.

    Raises:
        BundleError: it does not keep the contract, or has no kernels for this device.
    """
    found = manifest.read(folder)
    device, here = ("cuda", "CUDA") if runtime.on_gpu else ("cpu", "the CPU")
    if device not in found.devices:
        raise BundleError(
            f"{folder}: is for {' and '.join(found.devices)} alone: it has operators "
            f"without a kernel on {here}"
        )
    return found


def attention_values(manifest: Manifest) -> int:
    """At most how many values of attention `explain.onnx` returns of a window, and 1."""
    return 1 + sum(sum(stage.sizes.values()) for stage in manifest.attention)
