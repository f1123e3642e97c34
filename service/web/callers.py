"""Whether the caller of a request is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.requests import Request
from starlette.types import Receive

# In the scope of a request, among what servers offer beyond ASGI.
EXTENSION = "foretell.caller"

Watcher = Callable[[], None]


class Caller:
    """The caller at the other end of a connection; for use on the event loop alone.

    Args:
        listen: Has the server read on, which may have paused when it had enough of a body: the end
            of a connection is something that is read.

    Attributes:
        gone: Whether it hung up.
    """

    def __init__(self, listen: Callable[[], None]) -> None:
        self.gone = False
        self._listen = listen
        self._watchers: set[Watcher] = set()

    @property
    def watched(self) -> bool:
        """Whether anybody would be told."""
        return bool(self._watchers)

    def watch(self, watcher: Watcher) -> None:
        """Have a function called when the caller hangs up, or at once if it has."""
        self._watchers.add(watcher)
        if self.gone:
            watcher()
        else:
            self._listen()

    def unwatch(self, watcher: Watcher) -> None:
        """Have it called no more."""
        self._watchers.discard(watcher)

    def hang_up(self) -> None:
        """The caller is gone."""
        self.gone = True
        for watcher in tuple(self._watchers):
            watcher()


class _Reached(Caller):
    """A caller of whom no more is known than ASGI tells, which takes a task to listen.

    Args:
        receive: Of a request whose body was read.
    """

    def __init__(self, receive: Receive) -> None:
        super().__init__(self._begin)
        self._receive = receive
        self._task: asyncio.Task[None] | None = None

    def unwatch(self, watcher: Watcher) -> None:
        super().unwatch(watcher)
        if self._task is not None and not self.watched:
            self._task.cancel()
            self._task = None

    def _begin(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.hang_up()


def caller_of(request: Request) -> Caller:
    """The caller of a request whose body was read."""
    caller: Caller | None = request.scope.get("extensions", {}).get(EXTENSION)
    return _Reached(request.receive) if caller is None else caller
