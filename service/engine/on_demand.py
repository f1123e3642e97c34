"""A model that is served whether it is in memory or not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from foretell.bundle import checksums
from foretell.bundle.example import Example
from foretell.service.arrays import Arrays
from foretell.service.engine.cache import CacheEntry, ModelCache
from foretell.service.engine.model import Bundled, Capacity, Proof, read_manifest
from foretell.service.engine.queues import Usage
from foretell.service.engine.registry import Pending
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.waiting import Waiting
from foretell.service.errors import NotReadyError


class OnDemand(Bundled):
    """A bundle that is loaded when it is asked for; see `registry.Loaded`.

    Its sums are compared and its probes replayed when it is loaded.

    Args:
        folder: The bundle.
        runtime: Where it is to run.
        capacity: Batch and queue, here of what waits for a load.
        cache: Loads it.
        proofs: What loads have shown, by folder: of this one it is forgotten with it.

    Attributes:
        provider: The execution provider that runs it.

    Raises:
        BundleError: the bundle cannot be served here, or does not lie where its manifest says.
    """

    on_demand = True

    def __init__(
        self,
        folder: Path,
        runtime: Runtime,
        capacity: Capacity,
        cache: ModelCache,
        proofs: dict[Path, Proof],
    ) -> None:
        about = read_manifest(folder, runtime)
        super().__init__(
            folder, about, lambda name: checksums.read(folder / name, about.files[name])
        )
        self.provider = runtime.provider
        self._max_batch = capacity.max_batch or runtime.largest_batch
        self._residents = cache
        self._proofs = proofs
        self._berth = CacheEntry(folder, self.manifest, capacity.max_windows, capacity.max_bytes)

    @property
    def max_batch(self) -> int:
        """Most windows run together; before it was loaded, what is usual."""
        model = self._berth.model
        return self._max_batch if model is None else model.max_batch

    @property
    def failure(self) -> str | None:
        """Why it does not work, or the last load of it failed, if so."""
        model = self._berth.model
        return (model and model.failure) or self._berth.refused or None

    @property
    def resident(self) -> bool:
        """Whether it is in memory."""
        return self._berth.model is not None

    @property
    def usage(self) -> Usage:
        """What its queue holds, or what waits for it."""
        berth = self._berth
        if (model := berth.model) is not None:
            return model.usage
        return Usage(berth.windows, berth.max_windows, berth.bytes, berth.max_bytes)

    def submit(
        self,
        feeds: Arrays,
        *,
        attention: Sequence[str] = (),
        deadline: float,
        admitted: bool = False,
    ) -> Pending:
        """See `registry.Model.submit`; it may wait to be loaded.

        Raises:
            ServiceError: as `Model.submit`, or `ModelCache.wait`.
        """
        berth = self._berth
        berth.used = time.monotonic()
        if (model := berth.model) is not None:
            try:
                return model.submit(
                    feeds, attention=attention, deadline=deadline, admitted=admitted
                )
            except NotReadyError:
                # It has just made room for another one.
                pass
        run = Waiting(feeds, attention, deadline)
        self._residents.wait(berth, run, admitted=admitted)
        return run

    async def example(self) -> Example | None:
        """See `registry.Model.example`."""
        if (model := self._berth.model) is not None:
            try:
                return await model.example()
            except NotReadyError:
                # It has just made room for another one: the folder has it as well.
                pass
        return await super().example()

    def load(self) -> None:
        """See `registry.Loaded.load`."""
        self._residents.load(self._berth)

    def close(self, timeout: float) -> None:
        """See `registry.Loaded.close`."""
        self._residents.close(self._berth, timeout)
        proof = self._proofs.get(self._folder)
        # A version that was replaced in place leaves that of the next one.
        if proof is not None and proof.manifest == self.manifest:
            del self._proofs[self._folder]
