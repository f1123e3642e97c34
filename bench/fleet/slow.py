"""`python -m bench.fleet.slow serve …`: `foretell serve`, whose graphs take a given time.

A run of n windows takes `FLEET_BASE + FLEET_EACH * n` seconds; see `bench/waiting.py`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from bench.waiting import waiting
from foretell.__main__ import main
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session

BASE, EACH = "FLEET_BASE", "FLEET_EACH"


def _install() -> None:
    plain = Runtime.open
    base, each = float(os.environ[BASE]), float(os.environ[EACH])

    def open_slow(self: Runtime, graph: Path, **options: Any) -> Session:  # noqa: ANN401
        return waiting(plain(self, graph, **options), base, each)

    Runtime.open = open_slow  # type: ignore[method-assign]


# The processes of a server import it as `__mp_main__`; who imports it for its names keeps a
# runtime as it is.
if __name__ in {"__main__", "__mp_main__"}:
    _install()
if __name__ == "__main__":
    main()
