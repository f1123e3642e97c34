"""The models of a repository, which are loaded, replaced and unloaded while others answer."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from foretell.bundle.errors import BundleError
from foretell.bundle.nearness import Index
from foretell.bundle.serving import NOTHING, Serving
from foretell.service.engine.cache import ModelCache
from foretell.service.engine.limits import Memory
from foretell.service.engine.policy import Policy
from foretell.service.engine.registry import IndexEntry, Registry, VersionState
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.store import (
    Fingerprints,
    ModelStore,
    fetch,
    fill,
    nothing_here,
    refuse_to_start,
)
from foretell.service.engine.unfetched import Unfetched
from foretell.service.engine.versions import Versions
from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
    ServiceError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.metrics import Metrics
from foretell.storage.errors import StorageError

if TYPE_CHECKING:
    from foretell.service.engine.model import Model
    from foretell.storage.mirror import Mirror

_logger = logging.getLogger(__name__)

# All models are closed by then, so the scheduler's threads have nothing left to run.
_SCHEDULER_SECONDS = 0.5
# A load in progress fails as soon as it needs the scheduler, or ends soon after.
_JOIN_SECONDS = 4.0
_PRUNE_SECONDS = 1.0


class Repository:
    """Reconciles the loaded models with the bundles of the folder and the operator's choice.

    At the start the policy chooses the versions to load. Later a poll of the folder acts on its
    changes, and an explicit load or unload acts on one model at once. Changes take turns. `start`,
    `load`, `unload`, `poll`, `index` and `close` read files and block: they are not for an event
    loop. All of them may be called from several threads.

    Without a `mirror` other programs fill the folder; without `watch_seconds` it is never polled. A
    model is closed `request_seconds` after it left the registry: no request takes longer. The
    scheduler is closed after the models, and the cache is stopped before them.
    """

    def __init__(
        self,
        folder: Path,
        open_model: Callable[[Path], Model],
        metrics: Metrics,
        *,
        mirror: Mirror | None = None,
        policy: Policy | None = None,
        watch_seconds: float | None = None,
        memory: Memory | None = None,
        request_seconds: float = 30.0,
        scheduler: Scheduler | None = None,
        lost: Callable[[], dict[int, str]] = dict,
        cache: ModelCache | None = None,
    ) -> None:
        self._store = ModelStore(folder)
        self._mirror = mirror
        self._metrics = metrics
        self._policy = policy or Policy()
        self._watch_seconds = watch_seconds
        self._scheduler = scheduler
        self._lost = lost
        self._cache = cache
        self.draining = False
        registry = Registry(pins=self._policy.pinned)
        self.versions = Versions(
            self._store, registry, open_model, metrics, memory or Memory(None), request_seconds
        )
        self._snapshot: tuple[object, Registry] = None, registry
        # Held while models are loaded and unloaded; guards the four below.
        self._changing = threading.Lock()
        self._seen: Fingerprints = {}
        # Pin and challenger of each model when its changes were last handled.
        self._acted: dict[str, Serving] = {}
        # Models with changes that an error of the file system has delayed.
        self._behind: set[str] = set()
        self._unfetched = Unfetched(mirror, self.versions, metrics)
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)

    @property
    def lost(self) -> dict[int, str]:
        """Why a GPU does not work any more, by its inference thread; others may still answer."""
        return self._lost()

    @property
    def dead(self) -> bool:
        """Whether nothing can run any more, as all GPUs are lost."""
        return self._scheduler is not None and len(self.lost) >= self._scheduler.threads

    @property
    def busy_seconds(self) -> float:
        """The longest time that an inference thread has spent on its current batch or call."""
        return 0.0 if self._scheduler is None else self._scheduler.busy_seconds

    @property
    def inference_threads(self) -> int:
        return 0 if self._scheduler is None else self._scheduler.threads - len(self.lost)

    @property
    def models(self) -> list[Model]:
        return self.versions.models

    @property
    def registry(self) -> Registry:
        """The served versions; a model found in it answers for another `request_seconds`."""
        return self.versions.registry

    @property
    def snapshot(self) -> Registry:
        """The registry with the state of the server: the same object until one of them changes."""
        lost = self.lost
        cause = self.registry, self._metrics.changes, self.draining, dict(lost)
        known, snapshot = self._snapshot
        if known != cause:
            reason = "; ".join(lost.values()) or ("draining" if self.draining else "")
            snapshot = replace(self.registry, not_ready=reason)
            self._snapshot = cause, snapshot
        return snapshot

    @property
    def read_at(self) -> float | None:
        """When a URL was last read, in seconds since 1970; None unless it is watched."""
        if self._mirror is None or self._watch_seconds is None:
            return None
        return self._mirror.read_at

    def index(self) -> list[IndexEntry]:
        """Every version that is loaded, was refused, or is on disk; by name, oldest first."""
        states = {(name, version): state for name, version, state in self.registry}
        for key in self._store.versions():
            states.setdefault(key, VersionState())
        ordered = sorted(states, key=lambda key: (key[0], int(key[1])))
        return [states[key].entry(*key) for key in ordered]

    def start(self) -> None:
        """Load the chosen versions, and watch the folder; StartError if no model can serve."""
        fill(self._store, self._mirror)
        with self._changing:
            try:
                self._seen = self._store.fingerprints()
            except (BundleError, OSError) as error:
                raise StartError(f"model repository {error}") from error
            for name, present in self._seen.items():
                self._policy.read(self._store.folder, name)
                self._initial_load(name, present)
            self._unfetched.note(wanted=True)
        if self._watch_seconds is None and not self.registry.models:
            refuse_to_start(self._store, self._mirror, self.registry)
        if not self._seen:
            _logger.warning(nothing_here(self._store, self._mirror))
        self._watcher.start()

    def load(self, name: str, version: str | None = None) -> None:
        """Load a version as its bundle is now.

        The bundle is checked, opened and tested before it takes traffic. It replaces a model of the
        same version that came from another bundle or has failed. A current model stays, and is
        loaded into memory if necessary. Without a version, the versions on disk that the policy
        chooses replace all others of the model. LoadFailedError: a bundle was refused; the other
        versions are loaded, and the previous model still answers.
        """
        fetch(self._mirror, name, version)
        present = self._store.find(name, version)
        self._policy.read(self._store.folder, name)
        chosen = self._policy.required(name, present) if version is None else [version]
        with self._changing:
            self._load_all(name, chosen, alone=version is None, now=True)

    def unload(self, name: str, version: str | None = None) -> None:
        index = self.index()
        known = [entry.version for entry in index if entry.name == name]
        if not known:
            names = Index({entry.name for entry in index})
            raise UnknownModelError.among(name, names, "in the repository")
        if version is not None and version not in known:
            raise UnknownVersionError(f"{name} has no version {version[:32]!r}", param="model")
        with self._changing:
            for each in known if version is None else [version]:
                self.versions.unload(name, each)

    def poll(self) -> None:
        """Load bundles that were added or changed since the last poll; unload removed ones.

        A refused bundle is not tried again until it changes, unless the reason was an error of the
        file system or a shortage that may pass. A version unloaded on request stays unloaded.
        """
        if self._mirror is not None:
            self._mirror.refresh()
        with self._changing:
            found = self._store.fingerprints()
            if self._seen and not found:
                raise BundleError(f"{self._store.folder}: is empty; loaded models stay")
            behind: Fingerprints = {}
            for name in sorted(self._seen.keys() | found.keys() | self._acted.keys()):
                if self.draining:
                    return
                seen, present = self._seen.get(name, {}), found.get(name, {})
                self._policy.read(self._store.folder, name)
                is_other = self._policy.serving(name) != self._acted.get(name, NOTHING)
                is_short = any(short == name for short, _ in self.versions.short)
                try:
                    if seen != present or is_other or is_short:
                        self._reconcile(name, seen, present)
                except OSError as error:
                    # Other models must not miss their changes.
                    behind[name] = seen
                    if name not in self._behind:
                        _logger.error("changes of %s are tried again: %s", name, error)
            self._seen, self._behind = {**found, **behind}, set(behind)
            self._unfetched.note()

    def prune(self) -> None:
        """Forget refusals of bundles that were removed, unless a change is in progress."""
        if not self._changing.acquire(blocking=False):
            return
        try:
            removed = [
                (name, version, state)
                for name, version, state in self.registry
                if state.refused
                and (name, version) not in self._unfetched.failures
                and self._store.is_removed(name, version)
            ]
            # If all bundles are missing at once, their volume is.
            if not removed or not self._store.versions():
                return
            for name, version, state in removed:
                if state.model is None:
                    # The next bundle of this version is a new one.
                    self._seen.get(name, {}).pop(version, None)
                self.versions.clear_refusal(name, version)
        finally:
            self._changing.release()

    def drain(self) -> None:
        self.draining = True

    def close(self, timeout: float) -> None:
        """Finish accepted runs, within `timeout` seconds over all models."""
        self.drain()
        self._stopped.set()
        if self._cache is not None:
            self._cache.stop()
        if self._mirror is not None:
            self._mirror.stop()
        self.versions.close(time.monotonic() + timeout)
        if self._scheduler is not None:
            self._scheduler.close(_SCHEDULER_SECONDS)
        if self._cache is not None:
            self._cache.join(_JOIN_SECONDS)
        if self._watcher.is_alive():
            # Python aborts at exit if a thread is in onnxruntime.
            self._watcher.join(_JOIN_SECONDS)

    @property
    def going(self) -> bool:
        """Whether a thread with a load or run is still alive after `close`."""
        owners = (self._scheduler, self._cache)
        return self._watcher.is_alive() or any(each.going for each in owners if each is not None)

    def _watch(self) -> None:
        """Poll and prune: network file systems send no notifications."""
        pause = math.inf if self._watch_seconds is None else self._watch_seconds
        logged, next_poll = "", time.monotonic() + pause
        while not self._stopped.wait(max(0.0, min(next_poll - time.monotonic(), _PRUNE_SECONDS))):
            try:
                self.versions.prune_counts()
                self.prune()
                if time.monotonic() >= next_poll:
                    next_poll = time.monotonic() + pause
                    self.poll()
                    logged = ""
            except Exception as error:
                # Logged once: an error may last for days.
                if str(error) != logged:
                    trace = not isinstance(error, StorageError)
                    message = "the repository cannot be polled; it is tried again: %s"
                    _logger.error(message, error, exc_info=trace)
                logged = str(error)

    def _initial_load(self, name: str, present: Mapping[str, str]) -> None:
        """Load the chosen versions of a model, or an older version if these are refused."""
        self._act(name)
        chosen = self._policy.choose(name, present)
        older = sorted(present.keys() - set(chosen), key=int, reverse=True)
        for version in [*chosen, *(older if self._policy.may_fall_back(name) else [])]:
            if version not in chosen and self.registry.loaded(name):
                return
            try:
                self.versions.load(name, version, wanted=version in chosen)
            except LoadFailedError as error:
                # The registry has the reason. A broken device is not the bundle's fault.
                if isinstance(error.__cause__, StartError):
                    raise error.__cause__ from None

    def _reconcile(self, name: str, seen: Mapping[str, str], present: Mapping[str, str]) -> None:
        """Act on changes of a model, given its former and current fingerprints by version."""
        removed = [version for version in seen if version not in present]
        chosen = self._policy.choose(name, present)
        changed = {version for version in chosen if present[version] != seen.get(version)}
        roles, before = self._policy.serving(name), self._acted.get(name, NOTHING)
        wanted = changed | (roles.versions - before.versions)
        loads = [each for each in chosen if each in wanted or (name, each) in self.versions.short]
        loaded = self.registry.loaded(name)
        if self._policy.only_latest and (roles != before or set(removed) & set(loaded)):
            loads = chosen
        self._point(name)
        try:
            if loads:
                # Only a tested model may replace one that answers.
                self._load_all(name, loads, alone=self._policy.only_latest, now=bool(loaded))
        except ServiceError as error:
            if wanted:
                _logger.warning("not all changes of %s were loaded: %s", name, error)
        for version in removed:
            self.versions.unload(name, version)
        self._act(name)

    def _load_all(self, name: str, versions: Sequence[str], *, alone: bool, now: bool) -> None:
        """Load versions of a model; with `alone` then unload its other versions."""
        reasons = []
        for version in versions:
            if self.draining:
                raise NotReadyError("the server is stopping")
            try:
                self.versions.load(name, version, now=now)
            except LoadFailedError as error:
                reasons.append(error.message)
        self._point(name)
        if reasons:
            raise LoadFailedError("; ".join(reasons), param="model")
        for version in self.registry.loaded(name) if alone else ():
            if version not in versions:
                self.versions.unload(name, version)

    def _act(self, name: str) -> None:
        """Note that the models follow the current policy for a name."""
        self._point(name)
        self._acted[name] = self._policy.serving(name)

    def _point(self, name: str) -> None:
        """Say which version the name means, by the policy."""
        self.versions.point(name, self._policy.serving(name), self._unfetched.failures)
