"""The models that are served at a moment, and the lookup of the model that a request names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Protocol

from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.bundle.nearness import Index, listed
from foretell.service.arrays import Arrays
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.run import Run
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
# Reasons that do not mention files and libraries.
_PUBLIC = {"", "ready", "draining", "loading", "unloading", _NOT_LOADED, _NOT_PINNED, LOADING}


class Named(Protocol):
    """Name and version from a manifest, and the digest of the manifest."""

    manifest: Manifest
    # As `foretell.bundle.manifest.digest_of` writes it.
    digest: str

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def version(self) -> str:
        return self.manifest.version


class Model(Named, Protocol):
    """A loaded version, as HTTP workers see it."""

    intervals: Intervals
    # Whether requests load it and others evict it; a server is ready without it.
    on_demand: bool

    @property
    def max_batch(self) -> int:
        """Most windows in a batch."""

    @property
    def provider(self) -> str:
        """The execution provider that runs it."""

    @property
    def failure(self) -> str | None:
        """Why it does not work; None while it works."""

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
        background: bool = False,
    ) -> Run:
        """Queue windows, `[windows, …]` by input name, already checked.

        `attention` names outputs to return besides the forecast. `deadline` is on the clock of
        `time.monotonic`. With `admitted` the run continues accepted work. With `background` it runs
        only while nothing else waits, and loads no model. A ServiceError is the reason for a
        refusal; a pending run fails for the same reasons.
        """

    async def example(self) -> Example | None:
        """The example window of the bundle, if it has one; ServiceError if unreadable just now."""


class State(StrEnum):
    """States of a version, as the Open Inference Protocol's repository index names them."""

    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"
    LOADING = "LOADING"
    UNLOADING = "UNLOADING"


class IndexEntry(NamedTuple):
    name: str
    version: str
    state: State
    # Why it does not answer, or for a version that answers, why its changed bundle was refused.
    reason: str = ""


@dataclass(frozen=True)
class VersionState:
    """State of a version.

    Attributes:
        refused: Why the last attempt to load it failed, or empty.
        changing: LOADING before there is a model, UNLOADING after it was removed, or None.
        wanted: Whether it should be loaded: chosen by the policy at the start, or loaded and not
            unloaded since.
        fingerprint: Fingerprint of the bundle that the model was opened from.
    """

    model: Model | None = None
    refused: str = ""
    changing: State | None = None
    wanted: bool = False
    fingerprint: str = ""

    def entry(self, name: str, version: str) -> IndexEntry:
        """The version as the index shows it."""
        if self.model is not None:
            # Read once: the model may recover at any moment.
            if (failure := self.model.failure) is not None:
                return IndexEntry(name, version, State.UNAVAILABLE, failure)
            return IndexEntry(name, version, State.READY, self.refused)
        if self.changing is not None:
            return IndexEntry(name, version, self.changing)
        return IndexEntry(name, version, State.UNAVAILABLE, self.refused or _NOT_LOADED)


_UNKNOWN = VersionState()


@dataclass(frozen=True, eq=False)
class Registry:
    """An immutable snapshot of all versions, by name.

    Attributes:
        versions: State of every known version, by name and version.
        pins: Version that the operator chose for a name.
        challengers: Version that forecasts requests for a name once more, and their share.
        unavailable: Why the versions are unknown just now, or empty.
        not_ready: Why the server as a whole is not ready, or empty.
    """

    versions: Mapping[str, Mapping[str, VersionState]] = field(default_factory=dict)
    pins: Mapping[str, str] = field(default_factory=dict)
    challengers: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    unavailable: str = ""
    not_ready: str = ""

    def __iter__(self) -> Iterator[tuple[str, str, VersionState]]:
        """Every name, version and state; the oldest version first."""
        for name, versions in sorted(self.versions.items()):
            for version in sorted(versions, key=int):
                yield name, version, versions[version]

    def get(self, name: str, version: str) -> VersionState:
        """The state of a version; an empty one if it is unknown."""
        return self.versions.get(name, {}).get(version, _UNKNOWN)

    @property
    def models(self) -> list[Model]:
        return [state.model for _, _, state in self if state.model is not None]

    @cached_property
    def counted(self) -> Set[tuple[str, str]]:
        """Name and version of all versions in service: they have metrics."""
        return {
            (name, version)
            for name, versions in self.versions.items()
            for version, state in versions.items()
            if state.model is not None or state.changing is not None or state.refused
        }

    @cached_property
    def defaults(self) -> Mapping[str, Model]:
        """The model that each name means, for names with a model."""
        models = ((name, self.default(name)) for name in sorted(self.versions))
        return {name: model for name, model in models if model is not None}

    def default(self, name: str) -> Model | None:
        """The model that a name means: its pinned version, or else its newest loaded version."""
        pinned, loaded = self.pins.get(name), self.loaded(name)
        default = pinned or (loaded[-1] if loaded else "")
        return self.get(name, default).model

    @cached_property
    def challenged(self) -> Registry:
        """A snapshot in which names mean their challengers, as far as these are loaded."""
        loaded = {
            name: version
            for name, (version, _) in self.challengers.items()
            if self.get(name, version).model is not None
        }
        return self._with(loaded, pins={**self.pins, **loaded})

    @cached_property
    def names(self) -> Index:
        return Index(self.defaults)

    @cached_property
    def univariate(self) -> Mapping[str, Sequence[Model]]:
        """The default models with one channel, by frequency."""
        found: dict[str, list[Model]] = {}
        for model in self.defaults.values():
            if len(model.manifest.channels) == 1:
                found.setdefault(model.manifest.frequency, []).append(model)
        return found

    def loaded(self, name: str) -> list[str]:
        """Loaded versions of a model, oldest first."""
        versions = self.versions.get(name, {})
        return sorted((key for key, state in versions.items() if state.model is not None), key=int)

    def find(self, reference: str | None) -> Model:
        """The model that `name` or `name@version` means, or None for the only one served."""
        if self.unavailable:
            raise EngineLostError(self.unavailable)
        if reference is None:
            if not self.defaults:
                raise NotReadyError("no model is loaded; /readyz says why", param="model")
            if len(self.defaults) > 1:
                names = listed(self.names.names)
                raise InvalidInputError(
                    f"required when several models are served: {names}", param="model"
                )
            return next(iter(self.defaults.values()))
        if (model := self.defaults.get(reference)) is not None:
            return model
        name, at, version = reference.partition("@")
        state = self.versions.get(name, {}).get(version)
        if state is not None and state.model is not None:
            return state.model
        if name not in self.versions:
            raise UnknownModelError.among(name, self.names, "served (GET /models)")
        if at and state is None:
            raise UnknownVersionError(
                f"{name} has no version {version[:32]!r}; served: {listed(self.loaded(name))}",
                param="model",
            )
        raise NotReadyError(f"{reference} is not loaded; /readyz says why", param="model")

    def with_version(self, name: str, version: str, state: VersionState | None) -> Registry:
        return self.with_versions({(name, version): state})

    def with_versions(self, states: Mapping[tuple[str, str], VersionState | None]) -> Registry:
        """A snapshot with other states of some versions; None removes a version."""
        changed = {name: {**self.versions.get(name, {})} for name, _ in states}
        for (name, version), state in states.items():
            changed[name].pop(version, None)
            if state is not None:
                changed[name][version] = state
        every = {**self.versions, **changed}
        for name, versions in changed.items():
            if not versions:
                del every[name]
        return self._with(changed, versions=every)

    def with_choice(
        self, name: str, pin: str | None, challenger: tuple[str, float] | None
    ) -> Registry:
        """A snapshot with another pin and challenger of a name, or none."""
        pins = {**self.pins, name: pin}
        challengers = {**self.challengers, name: challenger}
        return self._with(
            [name],
            pins={name: each for name, each in pins.items() if each is not None},
            challengers={name: each for name, each in challengers.items() if each is not None},
        )

    def _with(self, changed: Iterable[str], **fields: Any) -> Registry:  # noqa: ANN401
        """A snapshot with other fields, which matter for a few of perhaps thousands of names."""
        registry = replace(self, **fields)
        if "defaults" in vars(self):
            models = {**self.defaults, **{name: registry.default(name) for name in changed}}
            vars(registry)["defaults"] = {
                name: model for name in sorted(models) if (model := models[name]) is not None
            }
        return registry

    def entries(self) -> list[IndexEntry]:
        """Every version as the index shows it; by name, oldest first."""
        return [state.entry(name, version) for name, version, state in self]

    @cached_property
    def report(self) -> Mapping[str, str]:
        """State of every version, by `name@version`: `ready`, `loading`, or the reason why not."""
        report = {
            f"{name}@{version}": reason if state is State.UNAVAILABLE else state.lower()
            for name, version, state, reason in self.entries()
        }
        for name, version in self.pins.items():
            report.setdefault(f"{name}@{version}", _NOT_PINNED)
        return unready(report, self.not_ready) if self.not_ready else report

    @cached_property
    def ready(self) -> bool:
        """Whether the server and every name answer, and no loaded model has failed.

        A refused version does not count while another version of the name answers. Models
        that were never wanted, were unloaded on request, or are loaded on demand do not count.
        """
        states = [(name, each) for name, of in self.versions.items() for each in of.values()]
        wanted = {name for name, state in states if state.wanted and state.refused}
        wanted |= self.pins.keys()
        models = [state.model for _, state in states if state.model is not None]
        failed = any(model.failure and not model.on_demand for model in models)
        answering = self.defaults.keys()
        return not self.not_ready and bool(answering) and wanted <= answering and not failed


def unready(report: Mapping[str, str], reason: str) -> dict[str, str]:
    """A `Registry.report` in which ready versions have the reason why the server is not ready."""
    return {key: reason if state == "ready" else state for key, state in report.items()}


def public_reason(reason: str) -> str:
    """A reason for callers without a key: errors may name files and libraries."""
    return reason if reason in _PUBLIC else "unavailable; the log says why"
