"""What a door knows of what is served, and what it is told when that changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from foretell.service.engine.registry import Model, Registry

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")


class Told(NamedTuple):
    """What is served, in what JSON can say.

    Attributes:
        ready: Whether the server can answer.
        report: As `Registry.report`.
        pins: As `Registry.pins`.
        slots: By name and version the handle of the model, why it does not work any more, and why
            the last attempt to load it failed.
    """

    ready: bool
    report: Mapping[str, str]
    pins: Mapping[str, str]
    slots: Mapping[tuple[str, str], tuple[int | None, str | None, str]]

    @classmethod
    def of(cls, registry: Registry, handle: Callable[[Model], int]) -> Told:
        """How a repository stands.

        Args:
            registry: A snapshot.
            handle: The handle of a model.
        """
        slots = {}
        for name, version, slot in registry:
            own, failure = None, None
            if slot.model is not None:
                own, failure = handle(slot.model), slot.model.failure
            slots[name, version] = own, failure, slot.refused
        return cls(registry.ready, registry.report, registry.pins, slots)

    @property
    def handles(self) -> set[int]:
        """Those of all models."""
        return {handle for handle, _, _ in self.slots.values() if handle is not None}

    def since(self, before: Told) -> dict[str, Any]:
        """What has changed; of what is gone, it is None."""
        return {
            "ready": self.ready,
            "report": _changes(before.report, self.report),
            "pins": self.pins,
            "slots": [*_changes(before.slots, self.slots).items()],
        }


NOTHING = Told(ready=False, report={}, pins={}, slots={})


def updated(
    known: Mapping[_Key, _Value], changes: Mapping[_Key, _Value | None]
) -> Mapping[_Key, _Value]:
    """What is known after changes as those of `Told.since`."""
    both: dict[_Key, _Value | None] = {**known, **changes}
    return {key: value for key, value in both.items() if value is not None}


def _changes(
    before: Mapping[_Key, _Value], now: Mapping[_Key, _Value]
) -> dict[_Key, _Value | None]:
    changed = {key: value for key, value in now.items() if before.get(key) != value}
    return changed | dict.fromkeys(before.keys() - now.keys())
