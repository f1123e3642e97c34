"""Loads and unloads, off the event loop, on threads that nothing else waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec

from foretell.service.errors import NotReadyError
from foretell.service.repository import Repository

_Given = ParamSpec("_Given")

# Processes load one model at a time: one thread does, the other waits for the other processes.
_THREADS = 2
_LOOK_SECONDS = 0.25


class Changes:
    """Runs what changes the models.

    Args:
        repository: The models.
    """

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="change")

    async def run(
        self, change: Callable[_Given, None], *arguments: _Given.args, **options: _Given.kwargs
    ) -> None:
        """Call a function that may wait for long.

        Args:
            change: Loads or unloads.
            arguments: Passed on.
            options: Passed on.

        Raises:
            NotReadyError: the server is stopping, and does not wait for the change to end.
        """
        self._check()
        done = asyncio.wrap_future(self._pool.submit(change, *arguments, **options))
        try:
            while not (await asyncio.wait([done], timeout=_LOOK_SECONDS))[0]:
                self._check()
            done.result()
        finally:
            # Nobody waits any more; what has not begun never will.
            done.cancel()

    def close(self) -> None:
        """Take no more changes and drop what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _check(self) -> None:
        if self._repository.draining:
            raise NotReadyError("the server is stopping")
