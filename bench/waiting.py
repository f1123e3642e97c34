"""A device that takes a given time for every batch: a real session that waits before it returns.

As a GPU would, it leaves the CPU to the rest.
"""

from __future__ import annotations

import time

from foretell.service.arrays import Arrays
from foretell.service.session import Session


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
