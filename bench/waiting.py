"""A device that takes a given time for every batch: a real session that waits before it returns.

As a GPU would, it leaves the CPU to the rest.
"""

from __future__ import annotations

import time
from pathlib import Path

from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

# So long that two CPUs carry a cluster, its doors and its callers besides.
BATCH_SECONDS = 0.2


def waiting(session: Session, base: float, each: float = 0.0) -> Session:
    """The same session, whose runs of n windows take `base + each * n` seconds."""
    run = session.run

    def wait(feeds: Arrays, worker: int = 0) -> Arrays:
        windows = len(next(iter(feeds.values())))
        ends = time.monotonic() + base + each * windows
        outputs = run(feeds, worker)
        time.sleep(max(0.0, ends - time.monotonic()))
        return outputs

    session.run = wait  # type: ignore[method-assign]
    return session


class WaitingRuntime(Runtime):
    """Opens sessions whose batches take `BATCH_SECONDS` each."""

    def open(self, graph: Path, *, max_batch: int | None = None) -> Session:
        """See `Runtime.open`."""
        return waiting(super().open(graph, max_batch=max_batch), BATCH_SECONDS)
