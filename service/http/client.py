"""The client of a request: whether it is still there, and has sent the whole body."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.requests import Request

# Members of `extensions` in the ASGI scope: the client, and a mark that the body is complete.
EXTENSION = "foretell.client"
WHOLE = "foretell.body_complete"

Watcher = Callable[[], None]


@dataclass(slots=True, eq=False)
class ClientConnection:
    """Calls functions when the client disconnects; for use on the event loop only."""

    # Resumes reading, which may have paused during a large body: only reading finds the end of a
    # connection.
    resume_reading: Callable[[], None]
    disconnected: bool = False
    watchers: set[Watcher] = field(default_factory=set)

    def watch(self, watcher: Watcher) -> None:
        """Call a function when the client disconnects, or now if it has disconnected."""
        self.watchers.add(watcher)
        if self.disconnected:
            watcher()
        else:
            self.resume_reading()

    def unwatch(self, watcher: Watcher) -> None:
        self.watchers.discard(watcher)

    def disconnect(self) -> None:
        self.disconnected = True
        for watcher in tuple(self.watchers):
            watcher()


def connection_of(request: Request) -> ClientConnection:
    """The client of a request; a request without a connection has one that never disconnects."""
    client: ClientConnection | None = request.scope.get("extensions", {}).get(EXTENSION)
    return ClientConnection(lambda: None) if client is None else client
