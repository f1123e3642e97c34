"""How a version comes into service and leaves it, in this process."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from foretell.service.engine.memory import Memory, return_free_memory
from foretell.service.errors import LoadFailedError
from foretell.service.model import Model
from foretell.service.versions.catalogue import Catalogue
from foretell.service.versions.inflight import InFlight
from foretell.service.versions.table import Slot, State, Table

_logger = logging.getLogger(__name__)

# What a request submitted before it ended, as when its caller hung up, may still be in the queue.
_DRAIN_SECONDS = 30.0


class Observer(Protocol):
    """Told what comes and goes, from any thread."""

    def loaded(self, model: Model, seconds: float) -> None:
        """A version answers, perhaps in place of another model of the same version."""

    def unloaded(self, name: str, version: str) -> None:
        """A version is gone, and its memory is free."""

    def refused(self, name: str, version: str) -> None:
        """A version was not loaded."""


class Lifecycle:
    """Changes the table; one change at a time, which is the caller's to see to.

    Args:
        catalogue: The bundles on disk.
        table: What is changed.
        open_model: Opens a bundle, tests it and makes it ready for traffic.
        memory: Refuses bundles that do not fit.
        observer: Told of every change.
        request_seconds: Most time that a request takes.
    """

    def __init__(
        self,
        catalogue: Catalogue,
        table: Table,
        open_model: Callable[[Path], Model],
        *,
        memory: Memory,
        observer: Observer,
        request_seconds: float,
    ) -> None:
        self.requests = InFlight()
        self._catalogue = catalogue
        self._table = table
        self._open_model = open_model
        self._memory = memory
        self._observer = observer
        self._request_seconds = request_seconds
        self._retiring: set[Model] = set()

    def bring(self, name: str, version: str, stamp: int | None = None) -> None:
        """Have a version loaded as its bundle is.

        Nothing is done if it is, and works. Otherwise its bundle is opened and tested, and only
        then takes the place of what was there, which finishes what it has begun.

        Args:
            name: The model's name.
            version: Its version.
            stamp: Of the wish that this fulfils.

        Raises:
            LoadFailedError: the bundle is refused; what was there still answers.
        """
        folder = self._catalogue.bundle(name, version)
        slot = self._table.get(name, version)
        slot = replace(slot, stamp=slot.stamp if stamp is None else stamp)
        try:
            checksum = self._catalogue.fingerprint(name, version)
            if slot.model is not None and slot.checksum == checksum and not slot.model.failure:
                self._table.put(name, version, replace(slot, refused=""))
                return
            if slot.model is None:
                slot = replace(slot, busy=State.LOADING)
                self._table.put(name, version, slot)
            started = time.monotonic()
            self._memory.check(folder)
            model = self._open_model(folder)
        # Whatever is wrong with one bundle, the others are served.
        except Exception as error:
            reason = str(error) or type(error).__name__
            _logger.error("refused %s@%s: %s", name, version, reason)
            self._table.put(name, version, replace(slot, busy=None, refused=reason))
            self._observer.refused(name, version)
            raise LoadFailedError(f"{name}@{version} was refused: {reason}") from error
        self._table.put(name, version, Slot(model, checksum, stamp=slot.stamp))
        seconds = time.monotonic() - started
        self._observer.loaded(model, seconds)
        _logger.info("loaded %s@%s in %.2f s", name, version, seconds)
        if slot.model is not None:
            self._retire(slot.model)

    def drop(self, name: str, version: str) -> None:
        """Take a version out of service; it finishes what it has begun."""
        slot = self._table.get(name, version)
        if slot.model is None:
            # One that is leaving does so once it has finished what it has begun.
            if slot.busy is not State.UNLOADING:
                self._leave(name, version, slot)
            return
        leaving = Slot(busy=State.UNLOADING)
        self._table.put(name, version, leaving)
        self._retire(slot.model, leaving)

    def close(self, timeout: float) -> None:
        """Finish what was accepted, within `timeout` seconds over all models."""
        end = time.monotonic() + timeout
        models = [slot.model for _, _, slot in self._table if slot.model is not None]
        for model in (*models, *self._retiring):
            model.close(max(0.0, end - time.monotonic()))

    def _retire(self, model: Model, leaving: Slot | None = None) -> None:
        """Close a model that can no longer be found, once nobody uses it."""
        self._retiring.add(model)
        threading.Thread(
            target=self._drain,
            args=(model, leaving),
            name=f"drain-{model.name}@{model.version}",
            daemon=True,
        ).start()

    def _drain(self, model: Model, leaving: Slot | None) -> None:
        self.requests.settle(self._request_seconds)
        model.close(_DRAIN_SECONDS)
        return_free_memory()
        self._retiring.discard(model)
        if leaving is not None and self._leave(model.name, model.version, leaving):
            self._observer.unloaded(model.name, model.version)
        _logger.info("closed a model of %s@%s", model.name, model.version)

    def _leave(self, name: str, version: str, slot: Slot) -> bool:
        """The end of a slot, unless it is in use again: the index lists what is on disk."""
        left = Slot() if self._catalogue.has(name, version) else None
        return self._table.leave(name, version, slot, left)
