"""A device that takes a given time for every batch: a real session that waits before it returns."""

from __future__ import annotations

import time
from pathlib import Path

from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

BATCH_SECONDS = 0.1


class WaitingSession:
    """A session on such a device; see `session.Session`.

    Args:
        session: Computes what it returns, which takes next to no time.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self.graph = session.graph
        self.provider = session.provider
        self.inputs = session.inputs
        self.outputs = session.outputs

    def warm(self, worker: int) -> None:
        """See `Session.warm`."""
        self._session.warm(worker)

    def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
        """See `Session.run`."""
        ends = time.monotonic() + BATCH_SECONDS
        outputs = self._session.run(feeds, worker)
        time.sleep(max(0.0, ends - time.monotonic()))
        return outputs

    def shrink(self, feeds: Arrays) -> None:
        """See `Session.shrink`."""
        self._session.shrink(feeds)

    def stop(self) -> None:
        """See `Session.stop`."""
        self._session.stop()

    def close(self) -> None:
        """See `Session.close`."""
        self._session.close()


class WaitingRuntime(Runtime):
    """Opens sessions on such a device."""

    def open(self, graph: Path, *, max_batch: int | None = None) -> Session:
        """See `Runtime.open`."""
        return WaitingSession(super().open(graph, max_batch=max_batch))
