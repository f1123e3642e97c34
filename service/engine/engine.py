"""The engine as seen by an HTTP worker, and the engine within a process."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from typing import Any, Protocol, Self

from pydantic import BaseModel

from foretell.service.arrays import NO_ARRAYS, Arrays
from foretell.service.engine.ipc import Remember
from foretell.service.engine.learned import LearnedOffsets
from foretell.service.engine.registry import IndexEntry, Model, Registry
from foretell.service.engine.repository import Repository
from foretell.service.engine.statistics import gauges, statistics
from foretell.service.errors import NotReadyError, NotSupportedError
from foretell.service.metrics import Metrics

# Models are loaded one at a time; another call may only look.
_THREADS = 2
# Calls of the ledger that write, and that read: its database has a few connections for reading.
_LEDGER_WRITES, _LEDGER_READS = 16, 3
_LAST_RUNS_SECONDS = 0.5


class Workers(BaseModel):
    """HTTP workers.

    Attributes:
        wanted: Number of configured HTTP workers.
        running: Number of running HTTP workers; while one is replaced, others answer.
    """

    wanted: int
    running: int


class Status(BaseModel):
    """Whether the server can answer.

    Attributes:
        ready: Whether every model answers, and the server is not stopping.
        workers: The HTTP workers.
        models: State of every version, by `name@version`: `ready`, or the reason why not.
    """

    ready: bool
    workers: Workers
    models: dict[str, str]

    @classmethod
    def of(cls, metrics: Metrics, models: Mapping[str, str], *, ready: bool) -> Self:
        workers = Workers(wanted=metrics.processes.wanted, running=metrics.processes.running)
        return cls(ready=ready, workers=workers, models=dict(models))


class Ledger(Protocol):
    """A ledger of forecasts, as the engine knows it; any thread may call its methods."""

    # Offsets that it has learned.
    learned: LearnedOffsets
    # Names of the methods that write; the others only read.
    writes: frozenset[str]

    @property
    def keeps(self) -> bool:
        """Whether forecasts are taken now."""

    def remember(self, message: Remember, arrays: Arrays) -> None:
        """Keep forecasts, later and on another thread; they are dropped if too many wait."""

    def call(self, method: str, arguments: Sequence[Any], arrays: Arrays) -> tuple[Any, Arrays]:
        """Call a method by its name, and wait for its value and arrays; raises ServiceError."""

    def gauges(self) -> Iterable[bytes]:
        """Its gauges in Prometheus' text format."""

    def close(self) -> None:
        """Write what waits, for a few seconds at most, and close the database."""


class Engine(Protocol):
    """Models that come and go, with their queues and counts; for one event loop."""

    # The counts of this process.
    metrics: Metrics
    # Offsets that the ledger has learned.
    learned: LearnedOffsets
    # Set once the server is stopping.
    _draining: asyncio.Event

    @property
    def registry(self) -> Registry:
        """The versions that are served now."""

    @property
    def status(self) -> Status:
        """Whether the server can answer."""

    async def start(self) -> None:
        """Wait until the registry is known; call it before anything else."""

    async def find(self, lookup: Callable[[Registry], Model], deadline: float = math.inf) -> Model:
        """Look up the model that a request names, after every answered load and unload.

        `lookup`, whose errors it raises, may be called twice. DeadlineExceededError follows the
        deadline, which is on the clock of `time.monotonic`.
        """

    async def updated(self) -> Registry:
        """The registry after every answered load and unload; afterwards `status` is as recent."""

    async def index(self) -> list[IndexEntry]:
        """Every version that is loaded, was refused, or is on disk; by name, oldest first."""

    async def load(self, name: str, version: str | None) -> None:
        """Load a version for all HTTP workers, as `Repository.load`, unless the server stops."""
        await self._change("load", name, version)

    async def unload(self, name: str, version: str | None) -> None:
        """Unload a version, as `Repository.unload`, unless the server stops."""
        await self._change("unload", name, version)

    async def statistics(self, name: str | None, version: str | None) -> bytes:
        """A `StatisticsReport` of one or all models and versions that are loaded, as JSON."""

    async def render(self) -> bytes:
        """The metrics of all processes, in Prometheus' text format."""

    @property
    def keeps(self) -> bool | None:
        """Whether the ledger takes forecasts now; None without a ledger."""

    def remember(self, message: Remember, arrays: Arrays) -> None:
        """Give forecasts to the ledger, which may drop them; call it only if `keeps`."""

    async def ledger(
        self, method: str, *arguments: object, arrays: Arrays = NO_ARRAYS
    ) -> tuple[Any, Arrays]:
        """Call a method of the ledger; NotSupportedError without one."""

    def drain(self) -> None:
        """Mark the server as stopping; it still answers requests."""
        self._draining.set()

    async def close(self) -> None:
        """Finish accepted runs and stop; every request was answered or cut off before."""

    def _begin(self, method: str, name: str, version: str | None) -> asyncio.Future[Any]:
        """Begin to load or unload."""

    async def _change(self, method: str, name: str, version: str | None) -> None:
        """Load or unload; cancelled if it has not begun when the server stops."""
        if self._draining.is_set():
            raise NotReadyError("the server is stopping")
        change = self._begin(method, name, version)
        stopping = asyncio.ensure_future(self._draining.wait())
        try:
            both: set[asyncio.Future[Any]] = {change, stopping}
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if not change.done():
                raise NotReadyError("the server is stopping")
            change.result()
        finally:
            stopping.cancel()
            change.cancel()


class LocalEngine(Engine):
    """The engine of this process; it owns and closes the repository."""

    def __init__(
        self, repository: Repository, metrics: Metrics, ledger: Ledger | None = None
    ) -> None:
        self.metrics = metrics
        self.repository = repository
        self._ledger = ledger
        self.learned = LearnedOffsets() if ledger is None else ledger.learned
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="change")
        # Its calls may wait for a database, and must not keep the threads of others.
        self._writes = ThreadPoolExecutor(_LEDGER_WRITES, thread_name_prefix="ledger-write")
        self._reads = ThreadPoolExecutor(_LEDGER_READS, thread_name_prefix="ledger-read")
        self._changes: set[Future[None]] = set()
        self._draining = asyncio.Event()

    @property
    def registry(self) -> Registry:
        return self.repository.versions.registry

    @property
    def status(self) -> Status:
        snapshot = self.repository.snapshot
        return Status.of(self.metrics, snapshot.report, ready=snapshot.ready)

    async def start(self) -> None:
        """Do nothing: the repository has been started."""

    async def find(
        self,
        lookup: Callable[[Registry], Model],
        deadline: float = math.inf,  # noqa: ARG002
    ) -> Model:
        return lookup(self.repository.versions.registry)

    async def updated(self) -> Registry:
        return self.registry

    async def index(self) -> list[IndexEntry]:
        return await asyncio.to_thread(self.repository.index)

    async def statistics(self, name: str | None, version: str | None) -> bytes:
        return await asyncio.to_thread(self._statistics, name, version)

    async def render(self) -> bytes:
        return await asyncio.to_thread(self._render)

    @property
    def keeps(self) -> bool | None:
        return None if self._ledger is None else self._ledger.keeps

    def remember(self, message: Remember, arrays: Arrays) -> None:
        if self._ledger is not None:
            self._ledger.remember(message, arrays)

    async def ledger(
        self, method: str, *arguments: object, arrays: Arrays = NO_ARRAYS
    ) -> tuple[Any, Arrays]:
        if self._ledger is None:
            raise NotSupportedError("the server keeps no ledger (FORETELL_LEDGER)")
        loop, call = asyncio.get_running_loop(), self._ledger.call
        pool = self._writes if method in self._ledger.writes else self._reads
        return await loop.run_in_executor(pool, call, method, arguments, arrays)

    def drain(self) -> None:
        self.repository.drain()
        super().drain()

    async def close(self) -> None:
        self.drain()
        for pool in (self._pool, self._writes, self._reads):
            pool.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.repository.close, _LAST_RUNS_SECONDS)
        if self._ledger is not None:
            await asyncio.to_thread(self._ledger.close)

    @property
    def changing(self) -> bool:
        """Whether a load or unload is in progress; it cannot be interrupted."""
        return any(change.running() for change in [*self._changes])

    def _render(self) -> bytes:
        repository = self.repository
        repository.versions.prune_counts()
        now = gauges(
            repository.models,
            repository.inference_threads,
            ready=repository.snapshot.ready,
            read_at=repository.read_at,
        )
        kept = () if self._ledger is None else self._ledger.gauges()
        return self.metrics.render(chain(now, kept))

    def _statistics(self, name: str | None, version: str | None) -> bytes:
        loaded = [(model.name, model.version) for model in self.registry.models]
        versions = [key for key in loaded if name in (None, key[0]) and version in (None, key[1])]
        return statistics(self.metrics, versions).model_dump_json().encode()

    def _begin(self, method: str, name: str, version: str | None) -> asyncio.Future[Any]:
        """Begin to load or unload, on a thread of its own pool."""
        change = self._pool.submit(getattr(self.repository, method), name, version)
        self._changes.add(change)
        change.add_done_callback(self._changes.discard)
        return asyncio.wrap_future(change)
