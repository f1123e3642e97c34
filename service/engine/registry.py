"""What is served at a moment, and which model a request means."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import Index, listed
from foretell.service.arrays import Arrays
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.queues import Usage
from foretell.service.errors import (
    EngineLostError,
    InvalidInputError,
    NotReadyError,
    UnknownModelError,
    UnknownVersionError,
)

_NOT_LOADED = "not loaded"
_NOT_PINNED = "pinned, and not loaded"
LOADING = "the models are being loaded"
# What strangers are told as it is.
_PLAIN = {"", "ready", "draining", "loading", "unloading", _NOT_LOADED, _NOT_PINNED, LOADING}


class Pending(Protocol):
    """A run of a model that was accepted.

    Attributes:
        submitted: When, on the clock of `time.monotonic`.
        began: When the first of its batches was taken.
        ended: When the last of them had run.
        batch: Windows of the largest of them.
        loading: Seconds that it waited for its model to come into memory.
    """

    submitted: float
    began: float
    ended: float
    batch: int
    loading: float

    def add_done_callback(self, callback: Callable[[Any], object], /) -> None:
        """Have a function called when it is done, from any thread; at once if it is."""

    def done(self) -> bool:
        """Whether it has its outputs or has failed."""

    def result(self) -> Arrays:
        """Its outputs, `[windows, …]` by name, or raises what it failed with."""

    def cancel(self) -> bool:
        """Give it up: what of it still waits is not run."""


class Named(Protocol):
    """What is called as its manifest says."""

    manifest: Manifest

    @property
    def name(self) -> str:
        """The name it is served under."""
        return self.manifest.name

    @property
    def version(self) -> str:
        """Its version."""
        return self.manifest.version


class Model(Named, Protocol):
    """A version that answers.

    Attributes:
        intervals: Its quantiles.
        on_demand: Whether it comes into memory when it is asked for, and may go again: a server is
            ready without it.
    """

    intervals: Intervals
    on_demand: bool

    @property
    def max_batch(self) -> int:
        """Most windows run together."""

    @property
    def provider(self) -> str:
        """The execution provider that runs it."""

    @property
    def failure(self) -> str | None:
        """Why it does not work any more, if so."""

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Pending:
        """Queue windows.

        Args:
            feeds: `[windows, …]` by input name, already checked.
            attention: Names of the attention outputs that are wanted besides the forecast.
            deadline: On the clock of `time.monotonic`.
            admitted: Whether this continues work that was accepted.

        Raises:
            ServiceError: it is not accepted; what is pending fails for the same reasons.
        """

    async def example(self) -> Example | None:
        """The window that its bundle carries, if it does.

        Raises:
            ServiceError: it cannot be had just now.
        """


class Loaded(Model, Protocol):
    """A model in the process that runs it."""

    @property
    def usage(self) -> Usage:
        """What its queue holds."""

    @property
    def resident(self) -> bool:
        """Whether it is in memory."""

    def is_of_folder(self) -> bool:
        """Whether the bundle in its folder has the content that it was opened with.

        Raises:
            OSError: that cannot be read.
        """

    def load(self) -> None:
        """Have it in memory when this returns.

        Raises:
            LoadFailedError: it was refused; `ShortageError` likewise.
            NotReadyError: the server is stopping.
        """

    def close(self, timeout: float) -> None:
        """Refuse new work and finish what was accepted, within `timeout` seconds; drop the rest."""


class State(StrEnum):
    """States of a version, as the Open Inference Protocol's repository index has them."""

    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


@dataclass(frozen=True)
class Entry:
    """One version in the index.

    Attributes:
        name: The model's name.
        version: Its version.
        state: Whether it answers.
        reason: Why not; of a version that answers, why its changed bundle does not; or empty.
    """

    name: str
    version: str
    state: State
    reason: str = ""


@dataclass(frozen=True)
class Slot:
    """The place of a version.

    Attributes:
        model: Answers, if it is loaded.
        refused: Why the last attempt to load it failed, or empty.
        busy: LOADING or UNLOADING while no model is there yet, or no more.
        wanted: Whether it should be loaded: it was chosen at the start, or loaded, and has not been
            unloaded since.
    """

    model: Model | None = None
    refused: str = ""
    busy: State | None = None
    wanted: bool = False

    def entry(self, name: str, version: str) -> Entry:
        """The slot as the index shows it."""
        if self.model is not None:
            # Asked once: it may recover at any moment.
            if (failure := self.model.failure) is not None:
                return Entry(name, version, State.UNAVAILABLE, failure)
            return Entry(name, version, State.READY, self.refused)
        if self.busy is not None:
            return Entry(name, version, self.busy)
        return Entry(name, version, State.UNAVAILABLE, self.refused or _NOT_LOADED)


@dataclass(frozen=True, eq=False)
class Registry:
    """Slots by name and version; it is replaced as models come and go, and never changed.

    Attributes:
        slots: Of every version that anything is known of.
        means: The version that each name means, of those that are loaded: the newest or the pinned.
        pins: The version that a name is to mean, by the operator's word.
        gone: Why nothing is known just now, or empty.
    """

    slots: Mapping[str, Mapping[str, Slot]] = field(default_factory=dict)
    means: Mapping[str, str] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    gone: str = ""

    def __iter__(self) -> Iterator[tuple[str, str, Slot]]:
        """Every name, version and slot; versions from the oldest."""
        for name, versions in sorted(self.slots.items()):
            for version in sorted(versions, key=int):
                yield name, version, versions[version]

    def get(self, name: str, version: str) -> Slot:
        """The slot of a version; an empty one if nothing is known of it."""
        return self.slots.get(name, {}).get(version, Slot())

    @property
    def models(self) -> list[Model]:
        """Every loaded version of every model."""
        return [slot.model for _, _, slot in self if slot.model is not None]

    @cached_property
    def counted(self) -> Set[tuple[str, str]]:
        """Name and version of what may be counted: all that is not out of service."""
        return {
            (name, version)
            for name, versions in self.slots.items()
            for version, slot in versions.items()
            if slot.model is not None or slot.busy is not None or slot.refused
        }

    @cached_property
    def names(self) -> Index:
        """The names that answer."""
        return Index(self.means)

    @cached_property
    def defaults(self) -> Sequence[Model]:
        """The model that each name means, by name."""
        return [self._of(name, self.means[name]) for name in sorted(self.means)]

    @cached_property
    def univariate(self) -> Mapping[str, Sequence[Model]]:
        """Those of them that have one channel, by their frequency."""
        found: dict[str, list[Model]] = {}
        for model in self.defaults:
            if len(model.manifest.channels) == 1:
                found.setdefault(model.manifest.frequency, []).append(model)
        return found

    def versions(self, name: str) -> list[str]:
        """Loaded versions of a model, oldest first."""
        versions = self.slots.get(name, {})
        return sorted((key for key, slot in versions.items() if slot.model is not None), key=int)

    def find(self, reference: str | None) -> Model:
        """The model a request means.

        Args:
            reference: `name`, `name@version`, or None for the only model served.

        Raises:
            InvalidInputError: no name is given and several models are served.
            UnknownModelError: the name is not known.
            UnknownVersionError: the name is known, that version of it is not.
            NotReadyError: the model or version is known and not loaded.
            EngineLostError: nothing is known just now.
        """
        if self.gone:
            raise EngineLostError(self.gone)
        if reference is None:
            return self._only()
        name, at, version = reference.partition("@")
        slot = self.slots.get(name, {}).get(version if at else self.means.get(name, ""))
        if slot is not None and slot.model is not None:
            return slot.model
        if name not in self.slots:
            raise UnknownModelError.among(name, self.names, "served (GET /models)")
        if at and version not in self.slots[name]:
            raise UnknownVersionError(
                f"{name} has no version {version[:32]!r}; served: {listed(self.versions(name))}",
                param="model",
            )
        raise NotReadyError(f"{reference} is not loaded; /readyz says why", param="model")

    def having(self, name: str, version: str, slot: Slot | None) -> Registry:
        """This with another slot of a version, or with none."""
        versions = {**self.slots.get(name, {}), version: slot}
        kept = {key: own for key, own in versions.items() if own is not None}
        loaded = [key for key, own in kept.items() if own.model is not None]
        # Of thousands of names the others are not looked at one by one.
        slots, means = {**self.slots, name: kept}, {**self.means}
        if not kept:
            del slots[name]
        means.pop(name, None)
        if (meant := self.pins.get(name) or max(loaded, key=int, default="")) in loaded:
            means[name] = meant
        return replace(self, slots=slots, means=means)

    def entries(self) -> list[Entry]:
        """Every slot as the index shows it; by name, oldest first."""
        return [slot.entry(name, version) for name, version, slot in self]

    def report(self) -> dict[str, str]:
        """State of every version, by `name@version`: `ready`, `loading`, or why it is not."""
        report = {
            f"{entry.name}@{entry.version}": (
                entry.state.lower() if entry.state is not State.UNAVAILABLE else entry.reason
            )
            for entry in self.entries()
        }
        for name, version in self.pins.items():
            report.setdefault(f"{name}@{version}", _NOT_PINNED)
        return report

    @property
    def ready(self) -> bool:
        """Whether every name answers, and nothing that is loaded has failed.

        A version that was refused takes no traffic away while another one answers to the name, nor
        does a model that was never wanted, or was unloaded on request, or comes on demand.
        """
        missed = {name for name, _, slot in self if slot.wanted and slot.refused}
        missed |= self.pins.keys()
        failed = any(model.failure and not model.on_demand for model in self.models)
        return bool(self.means) and missed <= self.means.keys() and not failed

    def _only(self) -> Model:
        if len(self.means) > 1:
            raise InvalidInputError(
                f"required when several models are served: {listed(self.names.names)}",
                param="model",
            )
        if not self.means:
            raise NotReadyError("no model is loaded; /readyz says why", param="model")
        ((name, version),) = self.means.items()
        return self._of(name, version)

    def _of(self, name: str, version: str) -> Model:
        model = self.slots[name][version].model
        assert model is not None  # noqa: S101 - a name means only what is loaded
        return model


@dataclass(frozen=True, eq=False)
class Standing:
    """How a repository stands; another one takes its place with every change.

    Attributes:
        registry: What is served.
        ready: Whether the server can answer.
        report: State of every version, as `Registry.report`.
        because: What it follows from.
    """

    registry: Registry
    ready: bool
    report: Mapping[str, str]
    because: tuple[object, ...]


def unready(report: Mapping[str, str], reason: str) -> dict[str, str]:
    """A `Registry.report` of a server that answers nothing, and why it does not."""
    return {key: reason if said == "ready" else said for key, said in report.items()}


def brief(said: str) -> str:
    """What is said of a version, without the words of errors: they quote files and libraries."""
    return said if said in _PLAIN else "unavailable; the log says why"
