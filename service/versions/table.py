"""What is known of every version, and which model a request means."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from foretell.service.errors import (
    InvalidInputError,
    NotReadyError,
    UnknownModelError,
    UnknownVersionError,
)
from foretell.service.model import Model
from foretell.service.versions.policy import Policy

_NOT_LOADED = "not loaded"


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
        checksum: Of the manifest that was loaded, or refused.
        refused: Why the last attempt to load it failed, or empty.
        busy: LOADING or UNLOADING while no model is there yet, or no more.
        stamp: Of the last wish that was attempted; see `Desired`.
    """

    model: Model | None = None
    checksum: str = ""
    refused: str = ""
    busy: State | None = None
    stamp: int = 0

    def entry(self, name: str, version: str) -> Entry:
        """The slot as the index shows it."""
        if self.model is not None:
            failure = self.model.failure
            if failure is not None:
                return Entry(name, version, State.UNAVAILABLE, failure)
            return Entry(name, version, State.READY, self.refused)
        if self.busy is not None:
            return Entry(name, version, self.busy)
        return Entry(name, version, State.UNAVAILABLE, self.refused or _NOT_LOADED)


class Table:
    """Slots by name and version. Readers take no lock: a change replaces what they read.

    Args:
        policy: Says which version a name means.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._changing = threading.Lock()
        self._slots: dict[str, dict[str, Slot]] = {}
        self._defaults: dict[str, Model] = {}

    def __iter__(self) -> Iterator[tuple[str, str, Slot]]:
        """Every name, version and slot; versions from the oldest."""
        for name, versions in sorted(self._slots.items()):
            for version in sorted(versions, key=int):
                yield name, version, versions[version]

    def get(self, name: str, version: str) -> Slot:
        """The slot of a version; an empty one if nothing is known of it."""
        return self._slots.get(name, {}).get(version, Slot())

    def put(self, name: str, version: str, slot: Slot) -> None:
        """Change a slot, at once for every reader."""
        with self._changing:
            self._replace(name, {**self._slots.get(name, {}), version: slot})

    def leave(self, name: str, version: str, slot: Slot, left: Slot | None) -> bool:
        """Change a slot, or take it away, unless it is another one by now; returns whether."""
        with self._changing:
            versions = dict(self._slots.get(name, {}))
            if versions.get(version) is not slot:
                return False
            del versions[version]
            if left is not None:
                versions[version] = left
            self._replace(name, versions)
            return True

    def loaded(self, name: str) -> list[str]:
        """Loaded versions of a model, oldest first."""
        versions = self._slots.get(name, {})
        return sorted((key for key, slot in versions.items() if slot.model is not None), key=int)

    @property
    def defaults(self) -> list[Model]:
        """The model of every name that answers, by name."""
        return [model for _, model in sorted(self._defaults.items())]

    def find(self, reference: str | None) -> Model:
        """See `Repository.find`."""
        if reference is None:
            return self._only()
        name, at, version = reference.partition("@")
        model = self.get(name, version).model if at else self._defaults.get(name)
        if model is not None:
            return model
        if name not in self._slots:
            served = ", ".join(sorted(self._defaults))
            raise UnknownModelError(f"no model {name[:64]!r}; served: {served}", param="model")
        if at and version not in self._slots[name]:
            versions = ", ".join(self.loaded(name))
            raise UnknownVersionError(
                f"{name} has no version {version[:32]!r}; served: {versions}", param="model"
            )
        raise NotReadyError(f"{reference} is not loaded; /readyz says why", param="model")

    def report(self) -> dict[str, str]:
        """State of every version, by `name@version`: `ready`, `loading`, or why it is not."""
        report = {}
        for name, version, slot in self:
            entry = slot.entry(name, version)
            report[f"{name}@{version}"] = (
                entry.state.lower() if entry.state is not State.UNAVAILABLE else entry.reason
            )
        for name, version in self._policy.pins.items():
            report.setdefault(f"{name}@{version}", "pinned, and not loaded")
        return report

    @property
    def ready(self) -> bool:
        """Whether every name answers, and nothing that is loaded has failed.

        A version that was refused takes no traffic away while another one answers to the name, nor
        does a model that was never wanted by all processes, or was unloaded on request.
        """
        served = self._defaults.keys()
        missed = {name for name, _, slot in self if slot.stamp and slot.refused}
        missed |= self._policy.pins.keys()
        failed = any(slot.model.failure for _, _, slot in self if slot.model is not None)
        return bool(served) and missed <= served and not failed

    def _only(self) -> Model:
        models = self.defaults
        if len(models) > 1:
            names = ", ".join(model.name for model in models)
            raise InvalidInputError(
                f"required when several models are served: {names}", param="model"
            )
        if not models:
            raise NotReadyError("no model is loaded; /readyz says why", param="model")
        return models[0]

    def _replace(self, name: str, versions: dict[str, Slot]) -> None:
        """Put the slots of a model in place; what readers hold is never changed."""
        slots = {**self._slots, name: versions}
        if not versions:
            del slots[name]
        defaults = {key: model for key, model in self._defaults.items() if key != name}
        loaded = [version for version, slot in versions.items() if slot.model is not None]
        version = self._policy.default(name, loaded)
        model = versions[version].model if version is not None else None
        if model is not None:
            defaults[name] = model
        self._slots, self._defaults = slots, defaults
