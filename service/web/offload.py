"""Work on large bodies, off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# Reading 256 KiB of JSON takes 2 ms; going to a thread and back takes 0.1 ms.
_LARGE = 256 * 1024
# Two, so that one huge body does not hold up all others; more would only contend for the GIL.
_THREADS = 2


class Offload:
    """Runs functions on the event loop, or on a few threads when they handle many bytes."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="offload")

    async def run(
        self,
        size: int,
        function: Callable[_Given, _Result],
        *arguments: _Given.args,
        **options: _Given.kwargs,
    ) -> _Result:
        """Call the function.

        Args:
            size: About how many bytes it reads or writes.
            function: Does not wait for anything.
            arguments: Passed on.
            options: Passed on.
        """
        if size < _LARGE:
            return function(*arguments, **options)
        return await asyncio.wrap_future(self._pool.submit(function, *arguments, **options))

    def close(self) -> None:
        """Take no more work and drop what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
