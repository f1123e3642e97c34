"""The served models: which there are, which answer, and which come and go."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foretell.bundle.errors import BundleError, NoRoomError
from foretell.bundle.nearness import Index
from foretell.service.engine.cache import ModelCache
from foretell.service.engine.registry import (
    Entry,
    Loaded,
    Registry,
    Slot,
    Standing,
    State,
    unready,
)
from foretell.service.engine.resources import Memory, return_free_memory
from foretell.service.engine.scheduler import Scheduler
from foretell.service.engine.source import fill
from foretell.service.engine.store import Fingerprints, ModelStore, Policy, without_folder
from foretell.service.errors import (
    LoadFailedError,
    NotReadyError,
    ServiceError,
    ShortageError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.metrics import Metrics
from foretell.storage.errors import StorageError

if TYPE_CHECKING:
    from foretell.storage.mirror import Mirror

_logger = logging.getLogger(__name__)

# The models have stopped by then: its threads have nothing to do.
_BATCHER_SECONDS = 0.5
# A load that is going on fails as soon as it needs a worker, or ends soon after.
_WATCH_SECONDS = 4.0
_FORGET_SECONDS = 1.0


class _Opened(NamedTuple):
    model: Loaded
    fingerprint: str

    def is_as_good_as(self, fingerprint: str) -> bool:
        """Whether opening the bundle again would make nothing better."""
        works = self.model.on_demand or not self.model.failure
        return works and (self.fingerprint == fingerprint or self.model.is_of_folder())


class Repository:
    """Reconciles the models that answer with what the operator wants of what is in a folder.

    What should be loaded is `Slot.wanted` of the directory: what the policy chose at the start, and
    what has changed in the folder or was asked for since.

    `start`, `load`, `unload`, `look`, `index` and `close` read files and wait: they are not for an
    event loop. All may be called from several threads; changes take turns.

    Args:
        folder: `<folder>/<name>/<version>/` are bundles.
        open_model: Opens a bundle, tests it and makes it ready for traffic.
        metrics: Told of what comes and goes.
        source: Fills the folder; None where others do.
        policy: Which versions are loaded, and which one a name means.
        watch_seconds: How often the folder is looked at; None looks for nothing but whether what
            was refused is still there.
        memory: Refuses bundles that do not fit.
        request_seconds: Most time that a request takes: a model is closed so long after it could
            last be found.
        scheduler: What runs the models; closed after them.
        lost: Why a GPU works no more, by the worker that it was of; empty while all do.
        cache: What loads models on demand, stopped before them.

    Attributes:
        registry: What is served at this moment. A model found in it answers for `request_seconds`,
            whatever is loaded and unloaded.
        draining: Whether the server is stopping.
    """

    def __init__(
        self,
        folder: Path,
        open_model: Callable[[Path], Loaded],
        metrics: Metrics,
        *,
        source: Mirror | None = None,
        policy: Policy | None = None,
        watch_seconds: float | None = None,
        memory: Memory | None = None,
        request_seconds: float = 30.0,
        scheduler: Scheduler | None = None,
        lost: Callable[[], dict[int, str]] = dict,
        cache: ModelCache | None = None,
    ) -> None:
        self._catalogue = ModelStore(folder)
        self._source = source
        self._place = source or folder
        self._failures: Mapping[tuple[str, str], str] = {}
        self._open_model = open_model
        self._metrics = metrics
        self._policy = policy or Policy()
        self._watch_seconds = watch_seconds
        self._memory = memory or Memory(None)
        self._request_seconds = request_seconds
        self._batcher = scheduler
        self._lost = lost
        self._residents = cache
        self.draining = False
        # Held while models are opened, for what should be loaded and what was seen in the folder.
        self._changing = threading.Lock()
        self._seen: Fingerprints = {}
        self._behind: set[str] = set()
        # Versions that were refused for a shortage that may pass.
        self._short: set[tuple[str, str]] = set()
        # Held for moments, for what is loaded and what is told of it.
        self._replacing = threading.Lock()
        self.registry = Registry(pins=self._policy.pins)
        self._standing: Standing | None = None
        self._opened: dict[tuple[str, str], _Opened] = {}
        self._retired: dict[Loaded, threading.Timer] = {}
        self._stopped = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="watch", daemon=True)

    @property
    def lost(self) -> dict[int, str]:
        """Why a GPU works no more, by the worker that it was of; others may go on answering."""
        return self._lost()

    @property
    def dead(self) -> bool:
        """Whether nothing runs any more, as all GPUs are lost."""
        return self._batcher is not None and len(self.lost) >= self._batcher.workers

    @property
    def busy_seconds(self) -> float:
        """For how long a worker has been at the same batch or call; the longest of all."""
        return 0.0 if self._batcher is None else self._batcher.busy_seconds

    @property
    def workers(self) -> int:
        """How many run batches at a time."""
        return 0 if self._batcher is None else self._batcher.workers - len(self.lost)

    @property
    def models(self) -> list[Loaded]:
        """Every loaded version of every model."""
        with self._replacing:
            return [opened.model for opened in self._opened.values()]

    @property
    def because(self) -> tuple[object, ...]:
        """What its standing follows from: it may be another one once this is."""
        return self.registry, self._metrics.changes, self.draining, dict(self.lost)

    @property
    def standing(self) -> Standing:
        """How it stands: the same object until something changes, however much is served."""
        known, because = self._standing, self.because
        if known is None or known.because != because:
            registry, lost = self.registry, self.lost
            report = registry.report()
            if reason := "; ".join(lost.values()) or ("draining" if self.draining else ""):
                report = unready(report, reason)
            ready = not self.draining and not lost and registry.ready
            known = self._standing = Standing(registry, ready, report, because)
        return known

    @property
    def ready(self) -> bool:
        """Whether every name answers, nothing has failed, and the server is not stopping."""
        return self.standing.ready

    def report(self) -> Mapping[str, str]:
        """State of every version, by `name@version`: `ready`, `draining`, or why it is not."""
        return self.standing.report

    @property
    def read_at(self) -> float | None:
        """When the source was last read, in seconds since 1970; None unless it is watched."""
        if self._source is None or self._watch_seconds is None:
            return None
        return self._source.read_at

    def index(self) -> list[Entry]:
        """Every version that is loaded, was refused, or is on disk; by name, oldest first."""
        slots = {(name, version): slot for name, version, slot in self.registry}
        for key in self._catalogue.versions():
            slots.setdefault(key, Slot())
        known = sorted(slots, key=lambda key: (key[0], int(key[1])))
        return [slots[key].entry(*key) for key in known]

    def start(self) -> None:
        """Load what the policy chooses, and begin to watch.

        Raises:
            StartError: the device does not work; there is no bundle, or none could be loaded, and
                the folder is not watched; or the folder is empty, and its source cannot be read.
        """
        fill(self._catalogue, self._source)
        with self._changing:
            try:
                self._seen = self._catalogue.fingerprints()
            except (BundleError, OSError) as error:
                raise StartError(f"model repository {error}") from error
            for name, present in self._seen.items():
                self._begin(name, present)
            self._tell_failures(wanted=True)
        if self._watch_seconds is None and not self.registry.models:
            self._refuse_to_start()
        if not self._seen:
            _logger.warning(self._nothing())
        self._watcher.start()

    def load(self, name: str, version: str | None = None) -> None:
        """Have a version loaded as its bundle is now.

        The bundle is checked, opened and tested before it takes traffic. A model of the same
        version that came from another bundle, or has failed, is replaced; any other is left as it
        is, but comes into memory.

        Args:
            name: The model's name.
            version: Its version; None for those that the policy chooses of what is on disk, in
                place of all others of the model.

        Raises:
            UnknownModelError: there is no bundle of that name.
            UnknownVersionError: there is none of that version.
            LoadFailedError: a bundle was refused. The others are loaded, and what was there before
                still answers.
            NotReadyError: the server is stopping.
        """
        self._ask(name, version)
        present = self._catalogue.find(name, version)
        chosen = self._policy.choose(name, present) if version is None else [version]
        if not chosen:
            pin = self._policy.pins[name]
            raise LoadFailedError(f"{name} is pinned to version {pin}, which is not there")
        with self._changing:
            self._load(name, chosen, alone=version is None, now=True)

    def unload(self, name: str, version: str | None = None) -> None:
        """Take a version out of service; what it has begun is finished.

        Args:
            name: The model's name.
            version: Its version; None for all of them.

        Raises:
            UnknownModelError: there is no model of that name, loaded or not.
            UnknownVersionError: there is none of that version.
        """
        index = self.index()
        known = [entry.version for entry in index if entry.name == name]
        if not known:
            names = Index({entry.name for entry in index})
            raise UnknownModelError.among(name, names, "in the repository")
        if version is not None and version not in known:
            raise UnknownVersionError(f"{name} has no version {version[:32]!r}", param="model")
        with self._changing:
            for own in known if version is None else [version]:
                self._drop(name, own)

    def look(self) -> None:
        """Act on what has changed in the folder since the last look, and on nothing else.

        Bundles that came or were changed are loaded, those that went are unloaded. So one that was
        refused is not tried again until it changes, and one that was unloaded on request stays so.
        Only what a file system would not do, or was refused for a shortage that may pass, is tried
        again the next time.

        Raises:
            BundleError: the folder is not there, or is empty all of a sudden.
            StorageError: its source cannot be read.
            OSError: it cannot be read, or written from its source.
        """
        if self._source is not None:
            self._source.refresh()
        with self._changing:
            found = self._catalogue.fingerprints()
            if self._seen and not found:
                raise BundleError(f"{self._catalogue.folder}: is empty; what is loaded stays")
            behind: Fingerprints = {}
            for name in sorted(self._seen.keys() | found.keys()):
                if self.draining:
                    return
                seen, present = self._seen.get(name, {}), found.get(name, {})
                try:
                    if seen != present or any(key[0] == name for key in self._short):
                        self._catch_up(name, seen, present)
                except OSError as error:
                    # The others' news would be lost with it.
                    behind[name] = seen
                    if name not in self._behind:
                        _logger.error("what is new of %s is tried again: %s", name, error)
            self._seen, self._behind = {**found, **behind}, set(behind)
            self._tell_failures()

    def forget(self) -> None:
        """Forget refusals of bundles that are gone; not while models change, or all are gone."""
        if not self._changing.acquire(blocking=False):
            return
        try:
            gone = [
                (name, version, slot)
                for name, version, slot in self.registry
                if slot.refused
                and (name, version) not in self._failures
                and self._is_gone(name, version)
            ]
            # All at once is a volume that is missing.
            for name, version, slot in gone if gone and self._catalogue.versions() else ():
                if slot.model is None:
                    # Another one in its place is new.
                    self._seen.get(name, {}).pop(version, None)
                    self._put(name, version, None)
                else:
                    self._put(name, version, replace(slot, refused=""))
        finally:
            self._changing.release()

    def forget_counts(self) -> None:
        """Forget what was counted of versions that are gone, also by answers that ended later."""
        # What comes now is in the directory before anything is counted of it.
        with self._replacing:
            self._metrics.keep(self.registry.counted)

    def drain(self) -> None:
        """Say that the server is stopping: no model is loaded any more, requests still answered."""
        self.draining = True

    def close(self, timeout: float) -> None:
        """Finish what was accepted, within `timeout` seconds over all models."""
        self.drain()
        self._stopped.set()
        if self._residents is not None:
            self._residents.stop()
        if self._source is not None:
            self._source.stop()
        end = time.monotonic() + timeout
        with self._replacing:
            retired = dict(self._retired)
            models = [*(opened.model for opened in self._opened.values()), *retired]
        for timer in retired.values():
            timer.cancel()
        for model in models:
            model.close(max(0.0, end - time.monotonic()))
        for timer in retired.values():
            timer.join(max(0.0, end - time.monotonic()))
        if self._batcher is not None:
            self._batcher.close(_BATCHER_SECONDS)
        if self._residents is not None:
            self._residents.join(_WATCH_SECONDS)
        if self._watcher.is_alive():
            # Python's exit aborts a thread that is in onnxruntime.
            self._watcher.join(_WATCH_SECONDS)

    @property
    def going(self) -> bool:
        """Once it was closed: whether a load or a run goes on for all that."""
        owners = (self._batcher, self._residents)
        return self._watcher.is_alive() or any(each.going for each in owners if each is not None)

    def _watch(self) -> None:
        """Look again and again: file systems of other machines tell nobody of changes."""
        said, pause = "", math.inf if self._watch_seconds is None else self._watch_seconds
        looks = time.monotonic() + pause
        while not self._stopped.wait(max(0.0, min(looks - time.monotonic(), _FORGET_SECONDS))):
            try:
                self.forget_counts()
                self.forget()
                if time.monotonic() < looks:
                    continue
                looks = time.monotonic() + pause
                self.look()
                said = ""
            except Exception as error:
                # Not again and again: what is wrong may stay so for days.
                if str(error) != said:
                    trace = not isinstance(error, StorageError)
                    _logger.error(
                        "the repository cannot be looked at; it is tried again: %s",
                        error,
                        exc_info=trace,
                    )
                said = str(error)

    def _ask(self, name: str, version: str | None) -> None:
        """Have what is wanted on request fetched; what is in the folder can be loaded anyway."""
        if self._source is None:
            return
        try:
            self._source.refresh(name, version)
        except (StorageError, OSError) as error:
            _logger.warning("what is loaded is as it was fetched before: %s", error)
        failures = self._source.failures
        if version is not None and (name, version) in failures:
            raise LoadFailedError(f"{name}@{version}: {failures[name, version]}", param="model")

    def _tell_failures(self, *, wanted: bool = False) -> None:
        """Say of what could not be fetched, and was wanted from the start, that it was refused."""
        if self._source is None:
            return
        before, self._failures = self._failures, self._source.failures
        for (name, version), said in before.items():
            slot = self.registry.get(name, version)
            if (name, version) not in self._failures and slot.refused == said:
                kept = replace(slot, refused="") if slot.model else self._left(name, version)
                self._put(name, version, kept)
        for (name, version), said in self._failures.items():
            slot = self.registry.get(name, version)
            self._put(name, version, replace(slot, refused=said, wanted=slot.wanted or wanted))
            if before.get((name, version)) != said:
                _logger.error("refused %s@%s: %s", name, version, said)
                self._metrics.refused(name, version)

    def _begin(self, name: str, present: Mapping[str, str]) -> None:
        """Load a model for the first time; an older version is better than none."""
        chosen = self._policy.choose(name, present)
        older = sorted(present.keys() - set(chosen), key=int, reverse=True)
        for version in [*chosen, *(older if self._policy.may_fall_back(name) else [])]:
            if version not in chosen and self.registry.versions(name):
                return
            try:
                self._bring(name, version, chosen=version in chosen)
            except LoadFailedError as error:
                # The directory says why a bundle was refused; no bundle is at fault for a device.
                if isinstance(error.__cause__, StartError):
                    raise error.__cause__ from None

    def _refuse_to_start(self) -> None:
        if not self._seen and not self._failures:
            raise StartError(self._nothing())
        # There is none where all names are pinned to versions that are not there.
        if reasons := [f"  {slot.refused}" for _, _, slot in self.registry if slot.refused]:
            raise StartError(
                "\n".join([f"model repository {self._place}: no bundle could be loaded:", *reasons])
            )

    def _nothing(self) -> str:
        hint = "`foretell export` writes them as <name>/<version>/"
        if self._source is not None:
            hint = "`foretell push` writes them there"
        elif near := self._catalogue.nearest():
            hint = f"did you mean {near}?"
        return f"model repository {self._place}: no bundle in it; {hint}"

    def _catch_up(self, name: str, seen: Mapping[str, str], present: Mapping[str, str]) -> None:
        """Act on what is new of a model: fingerprints by version, as they were and are."""
        gone = [version for version in seen if version not in present]
        chosen = self._policy.choose(name, present)
        changed = [version for version in chosen if present[version] != seen.get(version)]
        short = [version for version in chosen if (name, version) in self._short]
        news = [version for version in chosen if version in changed or version in short]
        if self._policy.only_latest and set(gone) & set(self.registry.versions(name)):
            news = chosen
        try:
            if news:
                # Nothing that is not tested takes the place of what answers.
                now = bool(self.registry.versions(name))
                self._load(name, news, alone=self._policy.only_latest, now=now)
        except ServiceError as error:
            if changed:
                _logger.warning("not all that is new of %s was loaded: %s", name, error)
        for version in gone:
            self._drop(name, version)

    def _load(self, name: str, versions: Sequence[str], *, alone: bool, now: bool) -> None:
        """Load versions of a model, if they are to be alone in place of all others of it."""
        reasons = []
        for version in versions:
            if self.draining:
                raise NotReadyError("the server is stopping")
            try:
                self._bring(name, version, now=now)
            except LoadFailedError as error:
                reasons.append(error.message)
        if reasons:
            raise LoadFailedError("; ".join(reasons), param="model")
        if alone:
            for version in self.registry.versions(name):
                if version not in versions:
                    self._drop(name, version)

    def _bring(self, name: str, version: str, *, chosen: bool = False, now: bool = False) -> None:
        """Have a version loaded as its bundle is.

        Nothing is done if it is, and works. Otherwise its bundle is opened and tested, and only
        then takes the place of what was there, which finishes what it has begun.

        Args:
            name: The model's name.
            version: Its version.
            chosen: Whether the policy wants it.
            now: Whether one that comes on demand is to do so now, too.

        Raises:
            LoadFailedError: the bundle is refused; what was there still answers.
        """
        slot = self.registry.get(name, version)
        slot = replace(slot, wanted=slot.wanted or chosen)
        is_retry = (name, version) in self._short
        self._short.discard((name, version))
        old = self._opened.get((name, version))
        opened: Loaded | None = None
        try:
            fingerprint = self._catalogue.fingerprint(name, version)
            same = old if old is not None and old.is_as_good_as(fingerprint) else None
            if old is None:
                slot = replace(slot, busy=State.LOADING)
                self._put(name, version, slot)
            started = time.monotonic()
            if same is None:
                model = opened = self._open(name, version)
                if now:
                    model.load()
        # Whatever is wrong with one bundle, the others are served.
        except Exception as error:
            said = self._refuse(name, version, slot, error, is_retry=is_retry)
            if opened is None:
                self._metrics.refused(name, version)
            else:
                # What loads on demand has counted it.
                opened.close(0.0)
            raise LoadFailedError(f"{name}@{version} was refused: {said}") from error
        if same is not None:
            with self._replacing:
                self._opened[name, version] = same._replace(fingerprint=fingerprint)
            self._put(name, version, replace(slot, refused=""))
            if now:
                same.model.load()
            return
        seconds = time.monotonic() - started
        with self._replacing:
            self._opened[name, version] = _Opened(model, fingerprint)
            self.registry = self.registry.having(name, version, Slot(model, wanted=True))
            if old is not None:
                self._retire(old.model)
            if not model.on_demand:
                self._metrics.loaded(name, version, seconds)
        done = "read" if model.on_demand else "loaded"
        _logger.info("%s %s@%s in %.2f s", done, name, version, seconds)

    def _refuse(
        self, name: str, version: str, slot: Slot, error: Exception, *, is_retry: bool
    ) -> str:
        """Note why a version was refused, and whether it is to be tried again; returns why."""
        full = str(error) or type(error).__name__
        said = without_folder(full, self._catalogue.folder)
        if isinstance(error, (OSError, NoRoomError, ShortageError)):
            self._short.add((name, version))
        # A shortage may last for days.
        if not is_retry or said != slot.refused:
            _logger.error("refused %s@%s: %s", name, version, full)
        self._put(name, version, replace(slot, busy=None, refused=said))
        return said

    def _open(self, name: str, version: str) -> Loaded:
        folder = self._catalogue.bundle(name, version)
        self._memory.check(folder)
        return self._open_model(folder)

    def _drop(self, name: str, version: str) -> None:
        """Take a version out of service; it finishes what it has begun."""
        self._short.discard((name, version))
        slot = self.registry.get(name, version)
        if slot.model is None:
            # One that is unloading goes once it is closed; what was never tried is no part of it.
            if slot.busy is None and version in self.registry.slots.get(name, {}):
                self._put(name, version, self._left(name, version))
            return
        with self._replacing:
            opened = self._opened.pop((name, version))
            leaving = Slot(busy=State.UNLOADING)
            self.registry = self.registry.having(name, version, leaving)
            self._retire(opened.model, leaving)

    def _retire(self, model: Loaded, leaving: Slot | None = None) -> None:
        """Close a model that can no longer be found, once no request can have it any more."""
        timer = threading.Timer(self._request_seconds, self._close, (model, leaving))
        timer.name = f"close-{model.name}@{model.version}"
        timer.daemon = True
        timer.start()
        self._retired[model] = timer

    def _close(self, model: Loaded, leaving: Slot | None) -> None:
        name, version = model.name, model.version
        # The deadlines of all that it was asked have passed.
        model.close(0.0)
        return_free_memory()
        try:
            left = self._left(name, version)
        except OSError:
            left = Slot()
        with self._replacing:
            del self._retired[model]
            # Unless it is in use again.
            if self.registry.get(name, version) is leaving:
                self.registry = self.registry.having(name, version, left)
        _logger.info("closed a model of %s@%s", name, version)

    def _left(self, name: str, version: str) -> Slot | None:
        """What stays of a version that is out of service: the index lists what is on disk."""
        return Slot() if self._catalogue.has(name, version) else None

    def _is_gone(self, name: str, version: str) -> bool:
        try:
            return not self._catalogue.has(name, version)
        except OSError:
            return False

    def _put(self, name: str, version: str, slot: Slot | None) -> None:
        with self._replacing:
            self.registry = self.registry.having(name, version, slot)
