"""What Ray's proxy says of a door that died, in our words.

Of what it had passed to a replica that died the proxy answers nothing, or 500 in plain text: its
server makes either 500. A forecast changes nothing, so callers are to ask again. Ray asks
`middlewares` for what goes around its proxy where `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH` names
it in a node's environment.
"""

from __future__ import annotations

from starlette.middleware import Middleware
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretell.service.errors import EngineLostError, error_body, error_object

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
PATH = f"{__name__}.middlewares"


class DoorLost:
    """ASGI middleware that makes 503 of what the proxy doesn't answer, and of its plain 500.

    Args:
        app: The proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        began = lost = False

        async def send_ours(message: Message) -> None:
            nonlocal began, lost
            began = True
            if message["type"] == "http.response.start":
                lost = message["status"] == 500 and not _is_ours(message)
            if not lost:
                await send(message)

        await self._app(scope, receive, send_ours)
        if scope["type"] == "http" and (lost or not began):
            error = EngineLostError("the process that read this has ended; ask again")
            body = error_body(scope["path"], error_object(error))
            await JSONResponse(body, error.status, error.headers)(scope, receive, send)


def middlewares() -> list[Middleware]:
    """What goes around Ray's proxy."""
    return [Middleware(DoorLost)]


def _is_ours(start: Message) -> bool:
    kinds = [value for name, value in start["headers"] if name.lower() == b"content-type"]
    return any(kind.startswith(b"application/json") for kind in kinds)
