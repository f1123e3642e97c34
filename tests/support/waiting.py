"""Waiting for what other threads and processes do."""

from __future__ import annotations

import time
from collections.abc import Callable

_PATIENCE = 60


def until(condition: Callable[[], bool]) -> None:
    """Call until the result is true, for a minute at most."""
    end = time.monotonic() + _PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)
