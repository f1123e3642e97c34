"""The served models: which there are, which answers a request, and which come and go."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path

from foretell.bundle.errors import BundleError
from foretell.service.batcher import Batcher
from foretell.service.engine.memory import Memory
from foretell.service.errors import (
    LoadFailedError,
    StartError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.model import Model
from foretell.service.versions.catalogue import Catalogue
from foretell.service.versions.inflight import InFlight
from foretell.service.versions.lifecycle import Lifecycle, Observer
from foretell.service.versions.lookout import Lookout
from foretell.service.versions.policy import Policy
from foretell.service.versions.rollout import Rollout
from foretell.service.versions.state import Desired, LocalState, State
from foretell.service.versions.table import Entry, Slot, Table
from foretell.service.versions.watcher import Watcher

_FOLLOW_SECONDS = 0.25
# The models have stopped by then: its threads have nothing to do.
_LAST_SECONDS = 0.5
# A load that is going on fails as soon as it needs a worker, or ends soon after.
_LOOK_SECONDS = 4.0


class Repository:
    """Models by name and version, which come and go while others answer.

    `start`, `load`, `unload`, `look`, `index` and `close` read files and wait: they are not for an
    event loop. All may be called from several threads.

    Args:
        folder: `<folder>/<name>/<version>/` are bundles.
        open_model: Opens a bundle, tests it and makes it ready for traffic.
        observer: Told of what comes and goes.
        policy: Which versions are loaded, and which one a name means.
        state: Where the processes of the server agree; None if there is but this one.
        watch_seconds: How often the folder is looked at; None never looks again.
        memory: Refuses bundles that do not fit.
        request_seconds: Most time that a request takes.
        batcher: What runs the models; closed after them.
        lost: Why a GPU works no more, by the worker that it was of; empty while all do.
    """

    def __init__(
        self,
        folder: Path,
        open_model: Callable[[Path], Model],
        observer: Observer,
        *,
        policy: Policy | None = None,
        state: State | None = None,
        watch_seconds: float | None = None,
        memory: Memory | None = None,
        request_seconds: float = 30.0,
        batcher: Batcher | None = None,
        lost: Callable[[], dict[int, str]] = dict,
    ) -> None:
        self._catalogue = Catalogue(folder)
        self._policy = policy or Policy()
        self._state = state or LocalState()
        self._table = Table(self._policy)
        self._lifecycle = Lifecycle(
            self._catalogue,
            self._table,
            open_model,
            memory=memory or Memory(None),
            observer=observer,
            request_seconds=request_seconds,
        )
        self._rollout = Rollout(self._table, self._lifecycle, self._state)
        self._lookout = Lookout(
            self._catalogue, self._table, self._policy, self._rollout, self._state, self.load
        )
        self._batcher = batcher
        self._lost = lost
        self._draining = False
        self._watch_seconds = watch_seconds
        self._follows = state is not None
        self._watchers: list[Watcher] = []

    @property
    def requests(self) -> InFlight:
        """Where requests say that they begin and end; they keep the models they found alive."""
        return self._lifecycle.requests

    @property
    def names(self) -> list[str]:
        """Names of the models that answer."""
        return [model.name for model in self.defaults]

    @property
    def defaults(self) -> list[Model]:
        """The model that each name means, by name."""
        return self._table.defaults

    @property
    def models(self) -> list[Model]:
        """Every loaded version of every model."""
        return [slot.model for _, _, slot in self._table if slot.model is not None]

    def versions(self, name: str) -> list[str]:
        """Loaded versions of a model, oldest first."""
        return self._table.loaded(name)

    def find(self, reference: str | None) -> Model:
        """The model a request means.

        It answers until the request ends, whatever is loaded and unloaded meanwhile, if the request
        is one of `requests`.

        Args:
            reference: `name`, `name@version`, or None for the only model served.

        Raises:
            InvalidInputError: no name is given and several models are served.
            UnknownModelError: the name is not known.
            UnknownVersionError: the name is known, that version of it is not.
            NotReadyError: the model or version is known and not loaded.
        """
        return self._table.find(reference)

    @property
    def draining(self) -> bool:
        """Whether the server is stopping."""
        return self._draining

    @property
    def lost(self) -> dict[int, str]:
        """Why a GPU works no more, by the worker that it was of; others may go on answering."""
        return self._lost()

    @property
    def dead(self) -> bool:
        """Whether nothing runs any more, as all GPUs are lost."""
        return self._batcher is not None and len(self.lost) >= self._batcher.workers

    @property
    def ready(self) -> bool:
        """Whether every name answers, nothing has failed, and the server is not stopping."""
        return not self._draining and not self.lost and self._table.ready

    def report(self) -> dict[str, str]:
        """State of every version, by `name@version`: `ready`, `draining`, or why it is not."""
        report = self._table.report()
        if reason := "; ".join(self.lost.values()) or ("draining" if self._draining else ""):
            return {key: reason if said == "ready" else said for key, said in report.items()}
        return report

    def index(self) -> list[Entry]:
        """Every version that is loaded, was refused, or is on disk; by name, oldest first."""
        slots = {(name, version): slot for name, version, slot in self._table}
        for key in self._catalogue.versions():
            slots.setdefault(key, Slot())
        known = sorted(slots, key=lambda key: (key[0], int(key[1])))
        return [slots[key].entry(*key) for key in known]

    def start(self) -> None:
        """Load what the policy chooses, or what the other processes have, and begin to watch.

        Raises:
            StartError: the device does not work; there is no bundle, or none could be loaded, and
                the folder is not watched.
        """
        try:
            desired = self._rollout.begin(self._first_wishes)
        except (BundleError, OSError) as error:
            raise StartError(f"model repository {error}") from error
        for name, wanted in desired.wanted.items():
            self._fall_back(name, desired.seen.get(name, {}).keys() - wanted.keys())
        if not self.models and self._watch_seconds is None:
            self._refuse_to_start(desired)
        self._rollout.announce()
        if self._follows:
            self._watchers.append(Watcher(self._rollout.follow, _FOLLOW_SECONDS, "follow"))
        if self._watch_seconds is not None:
            self._watchers.append(Watcher(self.look, self._watch_seconds, "watch"))

    def load(self, name: str, version: str | None = None) -> None:
        """Have a version loaded as its bundle is now, in every process.

        The bundle is checked, opened and tested before it takes traffic. A model of the same
        version that came from another bundle, or has failed, is replaced; any other is left as it
        is.

        Args:
            name: The model's name.
            version: Its version; None for those that the policy chooses of what is on disk, in
                place of all others of the model.

        Raises:
            UnknownModelError: there is no bundle of that name.
            UnknownVersionError: there is none of that version.
            LoadFailedError: a process refused a bundle; what was there still answers.
            NotReadyError: the server is stopping.
        """
        present = self._catalogue.find(name, version)
        if version is not None:
            self._rollout.load(name, [version])
            return
        chosen = self._policy.choose(name, present)
        if not chosen:
            pin = self._policy.pins[name]
            raise LoadFailedError(f"{name} is pinned to version {pin}, which is not there")
        self._rollout.load(name, chosen)
        if superseded := [one for one in self.versions(name) if one not in chosen]:
            self._rollout.unload(name, superseded)

    def unload(self, name: str, version: str | None = None) -> None:
        """Take a version out of service in every process; what it has begun is finished.

        Args:
            name: The model's name.
            version: Its version; None for all of them.

        Raises:
            UnknownModelError: there is no model of that name, loaded or not.
            UnknownVersionError: there is none of that version.
            NotReadyError: the server is stopping; the others have been told.
        """
        known = [entry.version for entry in self.index() if entry.name == name]
        if not known:
            raise UnknownModelError(f"no model {name[:64]!r}", param="model")
        if version is not None and version not in known:
            raise UnknownVersionError(f"{name} has no version {version[:32]!r}", param="model")
        self._rollout.unload(name, known if version is None else [version])

    def look(self) -> None:
        """Act on what has changed in the folder since any process looked; see `Lookout`.

        Raises:
            BundleError: the folder is not there, or is empty all of a sudden.
            OSError: it cannot be read.
        """
        # What this process has seen, no other one would act on.
        if not self._draining:
            self._lookout.look()

    def drain(self) -> None:
        """Say that the server is stopping: no model is loaded any more, requests still answered."""
        self._draining = True
        self._rollout.stop()

    def close(self, timeout: float) -> None:
        """Finish what was accepted, within `timeout` seconds over all models."""
        self.drain()
        for watcher in self._watchers:
            watcher.stop()
        self._lifecycle.close(timeout)
        if self._batcher is not None:
            self._batcher.close(_LAST_SECONDS)
        for watcher in self._watchers:
            watcher.join(_LOOK_SECONDS)
        self._state.close()

    def _first_wishes(self, desired: Desired) -> Desired:
        desired = desired.having_seen(self._catalogue.fingerprints())
        for name, present in desired.seen.items():
            desired = desired.with_wishes(name, self._policy.choose(name, present))
        return desired

    def _refuse_to_start(self, desired: Desired) -> None:
        folder = self._catalogue.folder
        if not desired.seen:
            raise StartError(
                f"model repository {folder}: no bundle in it; "
                "`foretell export` writes them as <name>/<version>/"
            )
        # There is none if all were unloaded before this process came.
        if reasons := [f"  {slot.refused}" for _, _, slot in self._table if slot.refused]:
            raise StartError(
                "\n".join([f"model repository {folder}: no bundle could be loaded:", *reasons])
            )

    def _fall_back(self, name: str, others: Collection[str]) -> None:
        """At the start, an older version is better than none."""
        for version in sorted(others, key=int, reverse=True):
            if self.versions(name) or not self._policy.may_fall_back(name):
                return
            with suppress(LoadFailedError):
                self._rollout.load(name, [version])
