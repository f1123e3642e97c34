"""What Ray's proxy says of a door that died, in our words.

The proxy answers what it had passed to a replica that died with 500, in plain text. A forecast
changes nothing, so callers are to ask again. Ray asks `middlewares` for what goes around its proxy
where `RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH` names it in a node's environment.
"""

from __future__ import annotations

import orjson
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretell.service.errors import EngineLostError, error_body, error_object

CALLBACK = "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH"
PATH = f"{__name__}.middlewares"


class DoorLost:
    """ASGI middleware that makes errors of the proxy, which are plain text, 503.

    Args:
        app: The proxy.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        lost = False

        async def send_ours(message: Message) -> None:
            nonlocal lost
            if message["type"] == "http.response.start":
                lost = message["status"] == 500 and not _is_ours(message)
                if lost:
                    error = EngineLostError("the process that read this has ended; ask again")
                    body = orjson.dumps(error_body(scope["path"], error_object(error)))
                    headers = {**error.headers, "Content-Type": "application/json"}
                    headers["Content-Length"] = str(len(body))
                    pairs = [(key.lower().encode(), val.encode()) for key, val in headers.items()]
                    await send({**message, "status": error.status, "headers": pairs})
                    await send({"type": "http.response.body", "body": body})
            elif lost:
                # The rest of what the proxy had to say.
                return
            if not lost:
                await send(message)

        await self._app(scope, receive, send_ours)


def middlewares() -> list[Middleware]:
    """What goes around Ray's proxy."""
    return [Middleware(DoorLost)]


def _is_ours(start: Message) -> bool:
    kinds = [value for name, value in start["headers"] if name.lower() == b"content-type"]
    return any(kind.startswith(b"application/json") for kind in kinds)
