"""`python -m bench.fleet.slow serve …`: `foretell serve`, whose graphs take a given time.

A run of n windows takes `FLEET_BASE + FLEET_EACH * n` seconds, which are waited for, not computed:
as a GPU would, it leaves the CPU to the doors.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from foretell.__main__ import main
from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

BASE, EACH = "FLEET_BASE", "FLEET_EACH"


def _slow(session: Session) -> Session:
    run = session.run
    base, each = float(os.environ[BASE]), float(os.environ[EACH])

    def wait(feeds: Arrays, worker: int = 0) -> Arrays:
        began = time.perf_counter()
        outputs = run(feeds, worker)
        windows = len(next(iter(feeds.values())))
        time.sleep(max(0.0, began + base + each * windows - time.perf_counter()))
        return outputs

    session.run = wait  # type: ignore[method-assign]
    return session


def _install() -> None:
    plain = Runtime.open

    def open_slow(self: Runtime, graph: Path, **options: Any) -> Session:  # noqa: ANN401
        return _slow(plain(self, graph, **options))

    Runtime.open = open_slow  # type: ignore[method-assign]


# The processes of a server import it as `__mp_main__`; who imports it for its names keeps a
# runtime as it is.
if __name__ in {"__main__", "__mp_main__"}:
    _install()
if __name__ == "__main__":
    main()
