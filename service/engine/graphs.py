"""Opens the graphs of a bundle, and tests them on the device that serves them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import wait
from functools import partial
from pathlib import Path

from foretell.bundle import example, layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.bundle.private_copy import PrivateCopy
from foretell.service.engine.limits import return_free_memory
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.selftest import Seconds, SelfTest, fastest_batch
from foretell.service.errors import ModelFailedError
from foretell.service.session import Session

_logger = logging.getLogger(__name__)

# Other models' batches come first, and a GPU captures its graphs.
_THREADS_SECONDS = 300.0


class Graphs:
    """Opens and tests the graphs of a bundle, of which `load` gets a private copy each time.

    The first load tests the whole bundle. Later loads of the same manifest, which has all
    checksums, do not test the graph of attention and the best batch again.
    """

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        runtime: Runtime,
        scheduler: Scheduler,
        max_batch: int | None,
    ) -> None:
        self._folder = folder
        self._manifest = manifest
        self._runtime = runtime
        self._scheduler = scheduler
        self._prepared_batch = max_batch or runtime.largest_batch
        # Most windows of a run; the first load may find a faster number.
        self.max_batch = self._prepared_batch
        self._is_tuned = max_batch is None and not runtime.on_gpu
        self._is_verified = False

    def load(self, copy: PrivateCopy) -> tuple[Session, SelfTest]:
        """Open the graph of forecasts and test it; returns it with the test of this copy."""
        if not self._is_verified:
            # Only checked here: few clients want it, and it is read again for them.
            example.read(self._folder, self._manifest, copy.read)
        probes = copy.read(layout.PROBES)
        test = SelfTest(self._folder, self._manifest, probes, self._prepared_batch)
        session = self.open(layout.FORECAST_GRAPH, copy, test, self._prepared_batch)
        try:
            self._test(session, test, copy)
        except BaseException:
            session.close()
            raise
        if not self._is_verified:
            self._is_verified = True
            self._log_version()
        return session, test

    def open(
        self, graph: str, copy: PrivateCopy, test: SelfTest, max_batch: int | None = None
    ) -> Session:
        """Open a graph of a copy, and compare its inputs and outputs with the manifest."""
        session = self._runtime.open(self._folder / graph, copy=copy, max_batch=max_batch)
        # onnxruntime held the weights once more while it prepared them.
        return_free_memory()
        try:
            test.check_interface(session, graph)
        except BaseException:
            session.close()
            raise
        _logger.info("opened %s on %s", session.graph, session.provider)
        return session

    def on_threads(self, function: Callable[[int], None]) -> None:
        """Call a function on every inference thread, between its batches."""
        calls = self._scheduler.on_threads(function)
        # After an error the caller closes the sessions that a running call would use.
        wait(calls, _THREADS_SECONDS)
        for call in calls:
            if not call.done():
                raise ModelFailedError(
                    f"an inference thread was not free within {_THREADS_SECONDS:.0f} s"
                )
            call.result()

    def _test(self, session: Session, test: SelfTest, copy: PrivateCopy) -> None:
        def warm(thread: int) -> None:
            try:
                session.warm(thread)
            except ModelFailedError as error:
                raise BundleError(f"{session.graph}: {error.__cause__}") from error

        self.on_threads(warm)
        self.on_threads(partial(test.replay, session))
        if self._is_verified:
            return
        if self._is_tuned:
            seconds: Seconds = {}
            self.on_threads(partial(test.time_runs, session, seconds))
            self.max_batch = fastest_batch(seconds, self.max_batch)
        if self._manifest.attention:
            # Tested with the rest of the bundle, and closed again: few requests want attention.
            explain = self.open(layout.EXPLAIN_GRAPH, copy, test)
            try:
                test.replay(explain)
            finally:
                explain.close()

    def _log_version(self) -> None:
        exported = self._manifest.libraries.get("onnxruntime", self._runtime.library)
        if exported != self._runtime.library:
            _logger.info(
                "%s: exported with onnxruntime %s; its probes pass under %s",
                self._folder,
                exported,
                self._runtime.library,
            )
