"""What stands before the routes: keys are asked for, and the hot routes are found at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable

from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from foretell.service.errors import ServiceError
from foretell.service.web.keys import Keys

Refuse = Callable[[Request, Exception], Awaitable[Response]]

# Probes and metrics, which are for machines without keys, and what says no more than the manual.
OPEN = frozenset(
    {
        "/",
        "/docs",
        "/openapi.json",
        "/healthz",
        "/readyz",
        "/metrics",
        "/v2/health/live",
        "/v2/health/ready",
    }
)


class Guarded:
    """ASGI middleware that lets only those in who have a key.

    Args:
        app: What it guards, all but a few paths that are open to everybody.
        keys: The right ones.
        refuse: Makes an error an answer.
    """

    def __init__(self, app: ASGIApp, keys: Keys, refuse: Refuse) -> None:
        self._app = app
        self._keys = keys
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope["type"] == "http" and scope["path"] not in OPEN:
            try:
                self._keys.require(Headers(scope=scope))
            except ServiceError as error:
                refusal = await self._refuse(Request(scope, receive), error)
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


class Direct:
    """ASGI middleware that calls the endpoints that do the work without asking every route.

    The framework's way to a route, and its dependencies, cost more than a small forecast takes.

    Args:
        app: Answers everything else.
        routes: Of these, those that take POST are called directly; their endpoints take the request
            alone, and return a response.
        refuse: Makes an error an answer.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[BaseRoute], refuse: Refuse) -> None:
        self._app = app
        self._refuse = refuse
        hot = [route for route in routes if isinstance(route, APIRoute)]
        hot = [route for route in hot if route.methods == {"POST"}]
        self._fixed = {route.path: route for route in hot if "{" not in route.path}
        self._patterns = [route for route in hot if "{" in route.path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        route = None
        if scope["type"] == "http" and scope["method"] == "POST":
            route = self._find(scope)
        if route is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = route
        request = Request(scope, receive)
        try:
            response = await route.endpoint(request)
        except ServiceError as error:
            response = await self._refuse(request, error)
        await response(scope, receive, send)

    def _find(self, scope: Scope) -> APIRoute | None:
        """The route of a request, whose parts of the path are then known."""
        path = scope["path"]
        if path in self._fixed:
            return self._fixed[path]
        for route in self._patterns:
            if found := route.path_regex.match(path):
                scope["path_params"] = found.groupdict()
                return route
        return None
