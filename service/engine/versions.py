"""The versions of a repository, which are loaded, replaced and closed while others answer."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Container
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from foretell.bundle.errors import NoRoomError
from foretell.bundle.serving import Serving
from foretell.service.engine.limits import Memory, return_free_memory
from foretell.service.engine.messages import without_folder
from foretell.service.engine.registry import Registry, State, VersionState
from foretell.service.engine.store import ModelStore
from foretell.service.errors import LoadFailedError, ShortageError
from foretell.service.metrics import Metrics

if TYPE_CHECKING:
    # HTTP workers import this module, but not the modules that open graphs.
    from foretell.service.engine.model import Model

_logger = logging.getLogger(__name__)


class Versions:
    """Loads and unloads single versions, for one thread at a time."""

    def __init__(
        self,
        store: ModelStore,
        registry: Registry,
        open_model: Callable[[Path], Model],
        metrics: Metrics,
        memory: Memory,
        request_seconds: float,
    ) -> None:
        self._store = store
        self._open_model = open_model
        self._metrics = metrics
        self._memory = memory
        self._request_seconds = request_seconds
        self.registry = registry
        # Name and version of bundles refused because of a shortage that may pass.
        self.short: set[tuple[str, str]] = set()
        self._closing: dict[Model, threading.Timer] = {}
        # Held to replace the registry: the timers do so, too.
        self._replacing = threading.Lock()

    @property
    def models(self) -> list[Model]:
        return cast("list[Model]", self.registry.models)

    def put(self, name: str, version: str, state: VersionState | None) -> None:
        """Replace the state of a version, or forget the version."""
        with self._replacing:
            self.registry = self.registry.with_version(name, version, state)

    def point(self, name: str, roles: Serving, awaited: Container[tuple[str, str]]) -> None:
        """Say which version the name means, and which one is its challenger.

        A version that answers stays until the pinned one is loaded, unless the latter is neither
        there nor among the `awaited`.
        """
        registry, pin = self.registry, roles.pin
        if pin is not None and registry.get(name, pin).model is None:
            may_come = (name, pin) in awaited or not self._store.is_removed(name, pin)
            if may_come and registry.default(name) is not None:
                pin = registry.pins.get(name)
        challenger = None
        if roles.challenger is not None:
            challenger = roles.challenger.version, roles.challenger.share
        before = registry.pins.get(name), registry.challengers.get(name)
        if (pin, challenger) == before:
            return
        with self._replacing:
            self.registry = self.registry.with_choice(name, pin, challenger)
        if pin != before[0]:
            meaning = f"version {pin}, which is pinned" if pin else "its newest version"
            _logger.info("%s now means %s", name, meaning)
        if challenger is not None and challenger != before[1]:
            _logger.info(
                "%s: version %s is the challenger, for %.3g of the requests", name, *challenger
            )

    def load(self, name: str, version: str, *, wanted: bool = False, now: bool = False) -> None:
        """Load a version, unless it works and is loaded from the same bundle.

        With `wanted` the server is not ready without it; with `now` a model that is loaded on
        demand comes into memory at once. LoadFailedError: the bundle is refused; the previous model
        still answers.
        """
        state = self.registry.get(name, version)
        state = replace(state, wanted=state.wanted or wanted)
        old, model = cast("Model | None", state.model), None
        try:
            fingerprint = self._store.fingerprint(name, version)
            if old is None:
                state = replace(state, changing=State.LOADING)
                self.put(name, version, state)
            elif _is_current(old, state.fingerprint, fingerprint):
                model = old
            started = time.monotonic()
            if model is None:
                folder = self._store.bundle(name, version)
                self._memory.check(folder)
                model = self._open_model(folder)
                if now:
                    model.load()
        # One bad bundle must not stop the others from being served.
        except Exception as error:
            raise self._refuse(name, version, state, error, model) from error
        self.short.discard((name, version))
        loaded = VersionState(model, wanted=True, fingerprint=fingerprint)
        if model is old:
            self.put(name, version, loaded)
            if now:
                model.load()
            return
        seconds = time.monotonic() - started
        # A version is in the registry before its metrics are counted.
        with self._replacing:
            self.registry = self.registry.with_version(name, version, loaded)
            if old is not None:
                self._close_later(old)
            if not model.on_demand:
                self._metrics.loaded(name, version, seconds)
        done = "read" if model.on_demand else "loaded"
        _logger.info("%s %s@%s (%s) in %.2f s", done, name, version, model.digest, seconds)

    def _refuse(
        self, name: str, version: str, state: VersionState, error: Exception, model: Model | None
    ) -> LoadFailedError:
        """Store why a version was refused, and close its model if it was opened."""
        full = str(error) or type(error).__name__
        reason = without_folder(full, self._store.folder)
        # Logged once: a shortage may last for days.
        if (name, version) not in self.short or reason != state.refused:
            _logger.error("refused %s@%s: %s", name, version, full)
        self.short.discard((name, version))
        if isinstance(error, (OSError, NoRoomError, ShortageError)):
            self.short.add((name, version))
        self.put(name, version, replace(state, changing=None, refused=reason))
        if model is None:
            self._metrics.refused(name, version)
        else:
            # The model cache has counted this.
            model.close(0.0)
        return LoadFailedError(f"{name}@{version} was refused: {reason}")

    def unload(self, name: str, version: str) -> None:
        self.short.discard((name, version))
        state = self.registry.get(name, version)
        if state.model is not None:
            unloading = VersionState(changing=State.UNLOADING)
            with self._replacing:
                self.registry = self.registry.with_version(name, version, unloading)
                self._close_later(cast("Model", state.model), unloading)
        # A version that is unloading already is removed once it is closed.
        elif state.changing is None and version in self.registry.versions.get(name, {}):
            self.put(name, version, self._unloaded(name, version))

    def clear_refusal(self, name: str, version: str) -> None:
        state = self.registry.get(name, version)
        kept = replace(state, refused="") if state.model else self._unloaded(name, version)
        self.put(name, version, kept)

    def _unloaded(self, name: str, version: str) -> VersionState | None:
        """The state of an unloaded version; None if it is not on disk."""
        return VersionState() if self._store.has(name, version) else None

    def prune_counts(self) -> None:
        """Drop the metrics of versions out of service, including answers that ended later."""
        with self._replacing:
            self._metrics.keep(self.registry.counted)

    def close(self, end: float) -> None:
        """Close all models, and finish their accepted runs until `end` by `time.monotonic`."""
        with self._replacing:
            closing = dict(self._closing)
            models = [*self.models, *closing]
        for timer in closing.values():
            timer.cancel()
        for model in models:
            model.close(max(0.0, end - time.monotonic()))
        for timer in closing.values():
            timer.join(max(0.0, end - time.monotonic()))

    def _close_later(self, model: Model, unloading: VersionState | None = None) -> None:
        """Close a model that has left the registry, once no request can hold it."""
        timer = threading.Timer(self._request_seconds, self._close, (model, unloading))
        timer.name = f"close-{model.name}@{model.version}"
        timer.daemon = True
        timer.start()
        self._closing[model] = timer

    def _close(self, model: Model, unloading: VersionState | None) -> None:
        name, version = model.name, model.version
        # The deadlines of all its requests have passed.
        model.close(0.0)
        return_free_memory()
        try:
            after = self._unloaded(name, version)
        except OSError:
            after = VersionState()
        with self._replacing:
            del self._closing[model]
            # Unless it was loaded again.
            if self.registry.get(name, version) is unloading:
                self.registry = self.registry.with_version(name, version, after)
        _logger.info("closed a model of %s@%s", name, version)


def _is_current(model: Model, opened: str, fingerprint: str) -> bool:
    """Whether a model works and its bundle is unchanged."""
    works = model.on_demand or not model.failure
    return works and (opened == fingerprint or model.is_of_folder())
