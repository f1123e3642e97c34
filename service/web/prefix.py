"""A path that a proxy puts before all others, because the service is a part of its host."""

from __future__ import annotations

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send


class Prefixed:
    """ASGI middleware that takes the prefix off; some proxies have done so, and some do not.

    Args:
        app: Knows no prefix.
        prefix: Such as `/forecasts`.
    """

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http":
            before, found, path = scope["path"].partition(self._prefix)
            if not before and found:
                if not path:
                    # What the page names is found next to it: its address has to end with a slash.
                    redirect = RedirectResponse(f"{self._prefix}/", 308)
                    await redirect(scope, receive, send)
                    return
                if path.startswith("/"):
                    scope["path"] = path
        await self._app(scope, receive, send)
