"""The models of an engine in another process, read from its updates."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Protocol, cast
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from foretell.bundle.calibration import Calibration
from foretell.bundle.example import Example
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine import ipc
from foretell.service.engine.intervals import Intervals
from foretell.service.engine.registry import Named, Registry, VersionState
from foretell.service.engine.run import Run


class Sender(Protocol):
    """The part of a connection to an engine that its models use."""

    def submit(self, feeds: Arrays, *about: Any) -> Run:  # noqa: ANN401
        """Send windows, with the fields of `ipc.Submit` after its number."""

    async def call(self, method: str, *arguments: object) -> tuple[Any, Arrays]:
        """Call a method of the engine."""


@dataclass(eq=False, repr=False)
class RemoteModel(Named):
    """A `registry.Model` that the engine runs."""

    # The connection to the engine that loaded it, and the engine's number of the load.
    connection: Sender
    number: int
    manifest: Manifest
    digest: str
    intervals: Intervals
    provider: str
    max_batch: int
    on_demand: bool
    failure: str | None = None

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
        background: bool = False,
    ) -> Run:
        """Send windows to the engine; a run that it refuses fails later."""
        about = self.number, deadline, admitted, background, tuple(attention)
        return self.connection.submit(feeds, *about)

    async def example(self) -> Example | None:
        series, arrays = await self.connection.call("example", self.number)
        return Example(series=series, **arrays) if arrays else None


class RemoteModels:
    """Reads the updates of an engine, in which models are new, changed or removed.

    Most models are the same after the engine was replaced, and are not read again.
    """

    def __init__(self) -> None:
        # By the digest of their load.
        self._known: WeakValueDictionary[bytes, RemoteModel] = WeakValueDictionary()

    def read(
        self, registry: Registry, frames: Sequence[NDArray[np.uint8]], connection: Sender
    ) -> Registry:
        """The registry after the changes of some updates, given the one before them."""
        states: dict[tuple[str, str], VersionState | None] = {}
        for frame in frames:
            changes, loads = ipc.decode(frame.data)
            assert isinstance(changes, ipc.Changes)  # noqa: S101
            pins, challengers = changes.pins, changes.challengers
            not_ready = changes.not_ready
            states |= dict.fromkeys(changes.removed)
            for name, version, number, failure, refused, changing, wanted in changes.changed:
                key, model = (name, version), None
                if number is not None:
                    if str(number) in loads:
                        model = self._model(number, loads[str(number)], connection)
                    else:
                        state = states.get(key) or registry.get(*key)
                        model = cast("RemoteModel", state.model)
                    model.failure = failure
                states[key] = VersionState(model, refused, changing, wanted)
        registry = registry.with_versions(states)
        choice = registry.pins, registry.challengers, registry.not_ready
        if choice != (pins, challengers, not_ready):
            registry = replace(registry, pins=pins, challengers=challengers, not_ready=not_ready)
        # The registry caches its defaults; with thousands of versions this, too, is for a thread.
        _ = registry.defaults
        return registry

    def _model(self, number: int, load: NDArray[np.uint8], connection: Sender) -> RemoteModel:
        digest = sha256(load.data).digest()
        known = self._known.get(digest)
        if known is not None:
            model = replace(known, connection=connection, number=number, failure=None)
        else:
            about, arrays = ipc.decode(load.data)
            assert isinstance(about, ipc.Load)  # noqa: S101
            read = Manifest.model_validate_json(about.manifest)
            calibration = None
            if arrays:
                calibration = Calibration(arrays["levels"].copy(), arrays["offsets"].copy())
            model = RemoteModel(
                connection,
                number,
                read,
                about.digest,
                Intervals(read, calibration),
                about.provider,
                about.max_batch,
                about.on_demand,
            )
        self._known[digest] = model
        return model
