"""Which models are in memory, where not all of them fit: they come when asked for, others go."""

from __future__ import annotations

import gc
import logging
import math
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import cast
from weakref import ref

from foretell.bundle.errors import BundleError, NoRoomError
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine.limits import Memory, return_free_memory
from foretell.service.engine.registry import Loaded
from foretell.service.engine.store import without_folder
from foretell.service.engine.waiting import Waiting
from foretell.service.errors import (
    LoadFailedError,
    ModelLoadingError,
    NotReadyError,
    QueueFullError,
    ShortageError,
    TooLargeError,
)
from foretell.service.metrics import Metrics

_logger = logging.getLogger(__name__)

# Until what was refused is tried again; twice as long each time.
_FIRST_SECONDS, _LONGEST_SECONDS = 1.0, 60.0
_MOST_RETRY_SECONDS = 60
# What the loads before count for, next to the latest, in the mean.
_DECAY = 0.8


class CacheEntry:
    """The place of a model that comes and goes; it changes under the lock of `ModelCache` alone.

    Args:
        folder: The bundle, `<name>/<version>`.
        manifest: Its manifest.
        max_windows: Most windows that may wait for the model to come.
        max_bytes: Most bytes of them.

    Attributes:
        model: While it is in memory.
        used: When it was last asked for, on the clock of `time.monotonic`.
        windows: How many wait for it.
        bytes: What they hold.
        load: Is done once the load is over that is waited for or going on; says what is wrong.
        refused: Why the last load failed, or empty.
        may_pass: Whether it may go well later, though nothing of the bundle has changed and without
            other models having to go for it.
        closed: Whether it is never loaded again.
    """

    def __init__(self, folder: Path, manifest: Manifest, max_windows: int, max_bytes: int) -> None:
        self.folder = folder
        self.manifest = manifest
        self.name, self.version = folder.parent.name, folder.name
        self.max_windows = max_windows
        self.max_bytes = max_bytes
        self.model: Loaded | None = None
        self.used = 0.0
        self.windows = self.bytes = 0
        # In the order in which they came.
        self._waiting: dict[Waiting, None] = {}
        self.load: Future[str] | None = None
        self.refused = ""
        self.may_pass = False
        self.closed = False
        # How long the last load took, and when and after how long a pause another one may begin.
        self.seconds: float | None = None
        self.retry_at = 0.0
        self.pause = 0.0

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"

    def enter(self, run: Waiting) -> None:
        """A run waits for the model."""
        self._waiting[run] = None
        self.windows += run.windows
        self.bytes += run.bytes

    def leave(self, run: Waiting) -> bool:
        """A run waits no more; whether it did."""
        if run not in self._waiting:
            return False
        del self._waiting[run]
        self.windows -= run.windows
        self.bytes -= run.bytes
        return True

    def leave_all(self) -> list[Waiting]:
        """Those that wait, which wait no more."""
        waiting, self._waiting = [*self._waiting], {}
        self.windows = self.bytes = 0
        return waiting


class ModelCache:
    """The models in memory; a thread loads one after another those that are asked for.

    Before a load those make room that were not asked for the longest time: first of those that
    nothing waits for. What a model has accepted it finishes before it goes.

    Args:
        open_model: Opens a bundle, tests it and makes it ready for traffic.
        memory: Says whether a bundle fits.
        metrics: Told what comes and goes.
        most: Most models in memory that came by request; None for as many as fit.
        wait_seconds: Most time that a run waits for its model; the load goes on.
        drain_seconds: Most time for what a model has accepted when it is to make room.
    """

    def __init__(
        self,
        open_model: Callable[[Path], Loaded],
        memory: Memory,
        metrics: Metrics,
        *,
        most: int | None,
        wait_seconds: float,
        drain_seconds: float,
    ) -> None:
        self._open_model = open_model
        self._memory = memory
        self._metrics = metrics
        self._most = math.inf if most is None else most
        self._wait_seconds = wait_seconds
        self._drain_seconds = drain_seconds
        # Held for moments, for berths and all that follows.
        self._changed = threading.Condition()
        # Those to be loaded, in the order in which they were first asked for.
        self._wanted: OrderedDict[CacheEntry, None] = OrderedDict()
        self._present: set[CacheEntry] = set()
        # Until when runs wait, all equally long; those that have ended are not kept for it.
        self._waits: deque[tuple[float, CacheEntry, ref[Waiting]]] = deque()
        self._began = 0.0
        self._mean = 0.0
        self._stopped = False
        # Held while a model is opened, so that room is counted once.
        self._opening = threading.Lock()
        self._threads = [
            threading.Thread(target=self._serve, name="load", daemon=True),
            threading.Thread(target=self._watch_waits, name="load-waits", daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def keep(self, folder: Path) -> Loaded:
        """Open a model that stays; others make room for it.

        Raises:
            BundleError: it is refused.
            LoadFailedError: it does not fit.
            StartError: the device does not work.
        """
        with self._opening:
            self._make_room(folder)
            return self._open_model(folder)

    def wait(self, berth: CacheEntry, run: Waiting, *, admitted: bool) -> None:
        """Have a run wait for its model; it is run at once if that has come.

        Args:
            berth: The model's.
            run: It fails with `ModelLoadingError` if the model does not come in time, and with
                `NotReadyError` if it cannot come.
            admitted: Whether it continues work that was accepted: there is always room for it.

        Raises:
            NotReadyError: the model was refused a moment ago, or the server is stopping.
            QueueFullError: there is no room for what waits.
            TooLargeError: there never is for so much.
        """
        while True:
            with self._changed:
                self._check_open(berth)
                model = berth.model
                if model is None:
                    if (pause := berth.retry_at - time.monotonic()) > 0:
                        raise _refusal(berth, pause)
                    if not admitted:
                        self._admit(berth, run)
                    self._want(berth)
                    berth.enter(run)
                    self._waits.append((run.asked + self._wait_seconds, berth, ref(run)))
                    self._changed.notify_all()
                    break
            if run.start(model):
                return
        # Whoever gives it up makes room; outside of the lock, as it may be over already.
        # No closure: it would hold the run, which holds its callbacks.
        run.add_done_callback(partial(self._leave, berth))

    def load(self, berth: CacheEntry) -> None:
        """Wait until a model is in memory; one that does not work is loaded again.

        Raises:
            LoadFailedError: it was refused; `ShortageError` likewise.
            NotReadyError: the server is stopping.
        """
        if (model := berth.model) is not None and model.failure:
            with self._opening:
                self._put_out(berth)
        with self._changed:
            self._check_open(berth)
            berth.used = time.monotonic()
            if berth.model is not None:
                return
            load = self._want(berth)
            self._changed.notify_all()
        if said := load.result():
            raise ShortageError(said) if berth.may_pass else LoadFailedError(said)
        with self._changed:
            self._check_open(berth)

    def close(self, berth: CacheEntry, timeout: float) -> None:
        """Take a model out for good: what it has accepted is finished within so many seconds."""
        with self._changed:
            berth.closed = True
            waiting = berth.leave_all()
            model, berth.model = berth.model, None
            self._present.discard(berth)
        for run in waiting:
            run.fail(NotReadyError("the model is stopping"))
        if model is not None:
            model.close(timeout)

    def stop(self) -> None:
        """Load nothing any more; what waits fails."""
        with self._changed:
            self._stopped = True
            berths = [*self._wanted]
            self._changed.notify_all()
        for berth in berths:
            self._end(berth, "the server is stopping")

    @property
    def going(self) -> bool:
        """Whether any of its threads is still at something."""
        return any(thread.is_alive() for thread in self._threads)

    def join(self, timeout: float) -> None:
        """Wait for a load that is going on."""
        for thread in self._threads:
            thread.join(timeout)

    def _leave(self, berth: CacheEntry, run: Future[Arrays]) -> None:
        with self._changed:
            berth.leave(cast("Waiting", run))

    def _check_open(self, berth: CacheEntry) -> None:
        if self._stopped or berth.closed:
            raise NotReadyError(f"the {'server' if self._stopped else 'model'} is stopping")

    def _admit(self, berth: CacheEntry, run: Waiting) -> None:
        windows, size = berth.windows, berth.bytes
        if windows + run.windows <= berth.max_windows and size + run.bytes <= berth.max_bytes:
            return
        said = (
            f"{windows} windows are waiting for {berth} to be loaded, and {run.windows} more do "
            f"not fit: at most {berth.max_windows} may wait, and hold {berth.max_bytes} bytes, "
            f"where there are {size} and {run.bytes} more"
        )
        if run.windows > berth.max_windows or run.bytes > berth.max_bytes:
            raise TooLargeError(said)
        raise QueueFullError(said, retry_after=self._retry_after(berth))

    def _want(self, berth: CacheEntry) -> Future[str]:
        """The load of a berth, one for all who ask for it."""
        if berth.load is None:
            berth.load = Future()
            self._wanted[berth] = None
        return berth.load

    def _retry_after(self, berth: CacheEntry) -> int:
        """Whole seconds after which a berth is loaded, by what loads took before."""
        seconds = self._began - time.monotonic() if self._began else 0.0
        for each in self._wanted:
            seconds += self._mean if each.seconds is None else each.seconds
            if each is berth:
                break
        return min(max(1, math.ceil(seconds)), _MOST_RETRY_SECONDS)

    def _serve(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._wanted or self._stopped)
                if self._stopped:
                    return
                berth = next(iter(self._wanted))
                self._began = time.monotonic()
            try:
                self._bring(berth)
            # Whatever is wrong with one bundle, the others are served.
            except Exception as error:
                said = str(error) or type(error).__name__
                _logger.error("could not load %s: %s", berth, said)
                self._metrics.refused(berth.name, berth.version)
                berth.may_pass = isinstance(error, (OSError, NoRoomError))
                self._refuse(berth, without_folder(said, berth.folder.parent.parent))

    def _bring(self, berth: CacheEntry) -> None:
        """Load a model, and have it run what waits for it; nothing if it was closed meanwhile."""
        with self._opening:
            if berth.closed:
                self._end(berth, "")
                return
            self._make_room(berth.folder)
            model = self._open_model(berth.folder)
            if model.manifest != berth.manifest:
                model.close(0.0)
                raise BundleError(f"{berth.folder}: was changed since it was read; load it again")
            seconds = time.monotonic() - self._began
            with self._changed:
                if closed := berth.closed or self._stopped:
                    waiting = []
                else:
                    berth.model, berth.used = model, time.monotonic()
                    self._present.add(berth)
                    self._measured(berth, seconds)
                    waiting = berth.leave_all()
            if closed:
                model.close(0.0)
            else:
                self._metrics.loaded(berth.name, berth.version, seconds)
                _logger.info("loaded %s in %.2f s, on demand", berth, seconds)
            # Before it could have to make room itself.
            for run in waiting:
                if not run.start(model):
                    run.fail(NotReadyError("the model is stopping"))
                # Who has left did not wait for it.
                if run.loading:
                    self._metrics.waited("loaded", run.loading)
            self._end(berth, "")

    def _measured(self, berth: CacheEntry, seconds: float) -> None:
        berth.seconds = seconds
        self._mean = _DECAY * self._mean + (1 - _DECAY) * seconds if self._mean else seconds
        berth.retry_at, berth.pause = 0.0, 0.0
        self._say(berth, "")

    def _say(self, berth: CacheEntry, refused: str) -> None:
        """Note why the last load failed, if it did: whoever asks is told of what differs alone."""
        if berth.refused != refused:
            berth.refused = refused
            self._metrics.changed()

    def _refuse(self, berth: CacheEntry, said: str) -> None:
        with self._changed:
            self._say(berth, said)
            berth.pause = min(max(2 * berth.pause, _FIRST_SECONDS), _LONGEST_SECONDS)
            berth.retry_at = time.monotonic() + berth.pause
        self._end(berth, said)

    def _end(self, berth: CacheEntry, said: str) -> None:
        """A load is over; what still waits for it fails."""
        with self._changed:
            load, berth.load = berth.load, None
            self._wanted.pop(berth, None)
            self._began = 0.0
            waiting = berth.leave_all()
        now = time.monotonic()
        for run in waiting:
            self._metrics.waited("refused", now - run.asked)
            stopping = NotReadyError("the server is stopping")
            run.fail(stopping if self._stopped else _refusal(berth, berth.pause))
        if load is not None:
            load.set_result(said)

    def _make_room(self, folder: Path) -> None:
        """Have others go until a bundle fits; while `_opening` is held.

        Raises:
            LoadFailedError: it does not fit though nothing is left that could go.
        """
        self._memory.check_alone(folder)
        while True:
            with self._changed:
                present = len(self._present)
                last = min(
                    self._present,
                    key=lambda berth: (berth.model is not None and _busy(berth.model), berth.used),
                    default=None,
                )
            if present < self._most:
                try:
                    self._memory.check(folder)
                    return
                except LoadFailedError:
                    if last is None:
                        raise
            if last is not None:
                self._put_out(last)
                self._metrics.evicted(last.name, last.version)
                _logger.info("put %s out of memory", last)

    def _put_out(self, berth: CacheEntry) -> None:
        """Close a model, which may come again; while `_opening` is held."""
        with self._changed:
            model, berth.model = berth.model, None
            self._present.discard(berth)
        if model is None:
            return
        if model.failure:
            self._metrics.changed()
        model.close(self._drain_seconds)
        # What is left of it are cycles, which nothing else would collect for hours.
        del model
        gc.collect()
        return_free_memory()

    def _watch_waits(self) -> None:
        """Tell those who have waited for long enough that they have."""
        while True:
            with self._changed:
                if self._stopped:
                    return
                until = self._waits[0][0] if self._waits else math.inf
                if (pause := until - time.monotonic()) > 0:
                    self._changed.wait(None if pause == math.inf else pause)
                    continue
                _, berth, reference = self._waits.popleft()
                run = reference()
                if run is None or not berth.leave(run):
                    continue
                retry_after = self._retry_after(berth)
            if not run.done():
                self._metrics.waited("expired", self._wait_seconds)
            run.fail(
                ModelLoadingError(
                    f"{berth} is being loaded, for longer than the {self._wait_seconds:g} s that a "
                    f"request waits for it; it should be there in {retry_after} s",
                    param="model",
                    retry_after=retry_after,
                )
            )


def _busy(model: Loaded) -> bool:
    """Whether work waits or runs."""
    return model.usage.bytes > 0


def _refusal(berth: CacheEntry, seconds: float) -> NotReadyError:
    return NotReadyError(
        f"{berth} could not be loaded; /readyz says why",
        param="model",
        retry_after=max(1, math.ceil(seconds)),
    )
