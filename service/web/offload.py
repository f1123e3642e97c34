"""Work on large bodies, and on many inputs, off the event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

from foretell.service.errors import DeadlineExceededError

_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# What takes about 2 ms; going to a thread and back takes 0.1 ms.
_LARGE = 256 * 1024
# Work that is not done on the event loop, however little it is.
ALWAYS = _LARGE
# Two, so that one huge body does not hold up all others; more would only contend for the GIL.
_THREADS = 2


class Offload:
    """Runs functions on the event loop, or on a few threads when they have much to do.

    The event loop goes on after 5 ms of other Python, and at once while numpy or zlib are at work.
    What nothing interrupts is one call of a JSON library: the loop waits for all of it, 2 to 5 ms a
    MB, so that threads help where a request is many such calls, and only the caller's bytes bound
    how long one may take.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="offload")

    async def run(
        self,
        work: int,
        deadline: float,
        function: Callable[_Given, _Result],
        *arguments: _Given.args,
        **options: _Given.kwargs,
    ) -> _Result:
        """Call the function.

        Args:
            work: How much it has to do, as bytes of a JSON list of numbers that it might read.
            deadline: On the clock of `time.monotonic`. What waits for a thread is dropped then.
                What has begun is waited for, since it cannot be interrupted: its memory is in use.
            function: Does not wait for anything.
            arguments: Passed on.
            options: Passed on.

        Raises:
            DeadlineExceededError: it did not end in time, on a thread.
        """
        if work < _LARGE:
            return function(*arguments, **options)
        # The pool keeps what was cancelled until a thread gets to it, but no more its arguments.
        calls = [partial(function, *arguments, **options)]
        del arguments, options
        pending = self._pool.submit(lambda: calls.pop()())
        done = asyncio.wrap_future(pending)
        try:
            await asyncio.wait([done], timeout=max(0.0, deadline - time.monotonic()))
            if not pending.cancel():
                result = await done
                if time.monotonic() <= deadline:
                    return result
        finally:
            done.cancel()
            if pending.cancel():
                calls.clear()
        raise DeadlineExceededError("the deadline passed before the request was read or answered")

    def close(self) -> None:
        """Take no more work and drop what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)
