"""A decorator for tests that are coroutines."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on the server's event loop."""

    @functools.wraps(test)
    def run(*args: Any, **fixtures: Any) -> None:
        uvloop.run(test(*args, **fixtures))

    return run
