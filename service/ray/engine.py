"""An engine of a cluster: it holds some of the models, and runs them for every door."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path

from foretell.bundle.errors import BundleError
from foretell.service.arrays import Arrays
from foretell.service.engine.batcher import Batcher
from foretell.service.engine.model import Capacity, Model
from foretell.service.engine.queues import Work
from foretell.service.engine.resources import Memory, return_free_memory
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.source import open_source
from foretell.service.errors import ModelFailedError, NotReadyError, ServiceError, StartError
from foretell.service.metrics import Metrics
from foretell.service.ray.handles import Handle
from foretell.service.ray.model import Answer, key_of
from foretell.service.ray.tally import Teller
from foretell.service.settings import DeviceChoice, Settings
from foretell.storage.errors import StorageError

_logger = logging.getLogger(__name__)

# Longer than any batch or capture of a GPU takes.
_STUCK_SECONDS = 300.0
# A bundle that was refused costs those that are held their place each time it is tried.
_REFUSED_SECONDS = 10.0


class Held:
    """A model that an engine holds, for as long as this is referred to.

    Args:
        model: The model.
        seconds: Time to finish what it has accepted when it has to go.
    """

    def __init__(self, model: Model, seconds: float) -> None:
        self.model = model
        self._seconds = seconds
        self._closed = False

    def __del__(self) -> None:
        """Close it: Ray calls this to make room for another one, off the event loop."""
        if not self._closed:
            self._closed = True
            self.model.close(self._seconds)
            return_free_memory()


class Engine(ABC):
    """Models that come when they are asked for, and what runs them; for one event loop.

    Args:
        settings: The repository, device and limits.
        tally: Is told what is counted.
        open_runtime: Opens the device.

    Raises:
        StartError: the device does not work, or the repository's URL is wrong.
    """

    def __init__(
        self,
        settings: Settings,
        tally: Handle,
        open_runtime: Callable[[DeviceChoice], Runtime] = Runtime,
    ) -> None:
        self._settings = settings
        # It fetches what it is asked for alone.
        self._folder, self._source = open_source(settings, lambda *_: ())
        self._runtime = open_runtime(settings.device)
        self.metrics = Metrics()
        self.metrics.build = self._runtime.build
        self._teller = Teller(self.metrics, tally)
        self._batcher = Batcher(self._runtime.workers(settings.threads or 1))
        self._memory = Memory(settings.max_memory_bytes)
        self._capacity = Capacity(settings.max_batch, settings.max_queue, settings.max_queue_bytes)
        # When a bundle may be tried again that was refused.
        self._refused: dict[str, float] = {}

    @abstractmethod
    async def hold(self, key: str) -> Held:
        """The model of a key, as `open` gives it; what it raises is raised."""

    async def open(self, key: str) -> Held:
        """Load a bundle and test it.

        Args:
            key: As `key_of` says.

        Raises:
            NotReadyError: it was changed, or refused; the log says why.
        """
        began = time.monotonic()
        reference = key.partition("#")[0]
        name, _, version = reference.partition("@")
        try:
            model = await asyncio.to_thread(self._open, self._folder / name / version, key)
        except (BundleError, StorageError, StartError, ServiceError, OSError) as error:
            if isinstance(error, NotReadyError):
                raise
            _logger.error("refused %s: %s", reference, error)
            self.metrics.refused(name, version)
            self._refused[key] = began + _REFUSED_SECONDS
            raise _refusal(reference) from None
        self._refused.pop(key, None)
        seconds = time.monotonic() - began
        self.metrics.loaded(name, version, seconds)
        _logger.info("loaded %s in %.2f s", reference, seconds)
        return Held(model, self._settings.grace_seconds)

    async def run(
        self, key: str, feeds: Arrays, attention: Sequence[str], seconds: float, admitted: bool
    ) -> Answer:
        """Run windows; the caller may cancel it.

        Args:
            key: Of the model.
            feeds: `[windows, …]` by input name, already checked.
            attention: Names of the attention outputs that are wanted besides the forecast.
            seconds: Time left; the caller watches the clock, too.
            admitted: Whether this continues work that was accepted.
        """
        deadline = time.monotonic() + seconds
        self._teller.start()
        # Others may wait for the same load, so it outlives who asked first.
        beginning = asyncio.ensure_future(self._begin(key, feeds, attention, deadline, admitted))
        try:
            work = await asyncio.shield(beginning)
            outputs = await _finished(work)
        except asyncio.CancelledError:
            beginning.add_done_callback(_give_up)
            raise
        except ServiceError as error:
            if isinstance(error, ModelFailedError) and error.__cause__ is not None:
                _logger.error("model failed", exc_info=error)
            return Answer.refusal(error)
        waited, ran = work.began - work.submitted, work.ended - work.began
        return Answer(None, waited, ran, work.batch, outputs)

    def check_health(self) -> None:
        """Have Ray replace this engine if it cannot run models any more.

        Raises:
            ModelFailedError: a GPU is lost, or a worker is stuck.
        """
        if self._runtime.lost:
            raise ModelFailedError("; ".join(self._runtime.lost.values()))
        if self._batcher.busy_seconds > _STUCK_SECONDS:
            raise ModelFailedError(f"a batch has run for more than {_STUCK_SECONDS:.0f} s")

    async def _begin(
        self,
        key: str,
        feeds: Arrays,
        attention: Sequence[str],
        deadline: float,
        admitted: bool,
    ) -> Work:
        if time.monotonic() < self._refused.get(key, 0.0):
            raise _refusal(key.partition("#")[0])
        held = await self.hold(key)
        # Nothing else has its turn until this is submitted: the model cannot be closed before.
        return held.model.submit(feeds, attention=attention, deadline=deadline, admitted=admitted)

    def _open(self, folder: Path, key: str) -> Model:
        # What was refused may be damaged here alone.
        if not _is_of(folder, key) or key in self._refused:
            self._fetch(folder.parent.name, folder.name)
        if not _is_of(folder, key):
            raise NotReadyError(f"{key.partition('#')[0]} has just been changed; ask again")
        self._memory.check(folder)
        observer = self.metrics.observer(folder.parent.name, folder.name)
        return Model(folder, self._runtime, self._batcher, self._capacity, observer)

    def _fetch(self, name: str, version: str) -> None:
        """Bring a version into the folder, unless others do.

        Raises:
            StorageError: it cannot be fetched.
            OSError: the folder cannot be written.
        """
        if self._source is None:
            return
        self._source.refresh(name, version)
        if said := self._source.failures.get((name, version)):
            raise StorageError(said)


def _is_of(folder: Path, key: str) -> bool:
    """Whether a bundle is the one that a door means."""
    return folder.is_dir() and key_of(folder) == key


def _refusal(reference: str) -> NotReadyError:
    return NotReadyError(f"{reference} was refused by an engine; its log says why", param="model")


async def _finished(work: Work) -> Arrays:
    """Wait for the outputs of work."""
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    work.add_done_callback(lambda _: loop.call_soon_threadsafe(over.set))
    await over.wait()
    return work.result()


def _give_up(beginning: asyncio.Future[Work]) -> None:
    """Cancel work, once it was begun."""
    if not beginning.cancelled() and beginning.exception() is None:
        beginning.result().cancel()
