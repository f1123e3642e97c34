"""Requests of tools to the application's own routes, within the process."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

import orjson
from pydantic_core import to_json
from starlette.types import ASGIApp, Scope

from foretell.service.errors import DeadlineExceededError
from foretell.service.forecast.parse import parsing_bytes
from foretell.service.http.body import JSON, LARGE, TIMEOUT_HEADER, Offload, Share
from foretell.service.http.client import WHOLE
from foretell.service.http.middleware import request_context
from foretell.service.mcp.exchange import exchange

# Headers of the client that its tools' requests have too.
_PASSED = ("authorization", "x-api-key", "traceparent", "tracestate")
# Members of the client's ASGI scope that they have too; the others belong to its own route.
_KEPT = ("type", "asgi", "http_version", "scheme", "root_path", "client", "server")
_ERRORS = 400
# Bytes of the largest answer that a tool reads.
_MOST_BYTES = 4 * 1024 * 1024


class RefusedError(Exception):
    """The answer of a route is an error.

    Attributes:
        fields: The fields of `errors.error_fields`.
        retry_after: Seconds after which a retry may succeed, if it may.
    """

    def __init__(self, fields: dict[str, str | None], retry_after: str | None = None) -> None:
        super().__init__(fields["message"])
        self.fields = fields
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class Caller:
    """A client of `/mcp`, whose tools send requests as the client would.

    They have its keys, its request id and its trace, and what is left of its time. So keys,
    admission, limits, memory, metrics and logs are those of the routes.

    Attributes:
        app: The whole application, with its middleware.
        scope: Scope of the client's request.
        deadline: End of its time, on the clock of `time.monotonic`.
        share: Memory of the client's request, to which answers of the routes are added.
        offload: Threads that read large answers.
    """

    app: ASGIApp
    scope: Scope
    deadline: float
    share: Share
    offload: Offload

    async def get(self, path: str, query: Mapping[str, object] | None = None) -> Any:  # noqa: ANN401 - any JSON
        """Send a GET request; returns as `post`."""
        return await self._send("GET", path, urlencode(query or {}), b"")

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """Send a POST request of JSON.

        Returns:
            The parsed answer.

        Raises:
            RefusedError: the answer is an error.
            AnswerTooLargeError: the answer is too large for a tool.
            DeadlineExceededError: no time is left.
        """
        # The routes read NaN, Infinity and integers of any size, and name their places.
        return await self._send("POST", path, "", to_json(body, inf_nan_mode="constants"))

    async def _send(self, method: str, path: str, query: str, body: bytes) -> Any:  # noqa: ANN401
        scope = self._scope(method, path, query)
        answer = await exchange(self.app, scope, body, _MOST_BYTES, self.share.reserve)
        if len(answer.body) < LARGE:
            self.share.reserve(parsing_bytes(answer.body))
            content = orjson.loads(answer.body)
        else:
            run, deadline = self.offload.run, self.deadline
            self.share.reserve(await run(deadline, parsing_bytes, answer.body))
            content = await run(deadline, orjson.loads, answer.body)
        if answer.status >= _ERRORS:
            raise RefusedError(content["error"], answer.headers.get("retry-after"))
        return content

    def _scope(self, method: str, path: str, query: str) -> Scope:
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError("the deadline passed before the tool had its answer")
        context = request_context(self.scope)
        headers = {name: context.headers[name] for name in _PASSED if name in context.headers}
        if context.trace is not None:
            headers |= context.trace.headers()
        headers |= {
            "content-type": JSON,
            "x-request-id": context.request_id,
            TIMEOUT_HEADER: str(max(1, round(1000 * left))),
        }
        return {
            **{name: self.scope[name] for name in _KEPT if name in self.scope},
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), text.encode("latin-1")) for name, text in headers.items()],
            # It has a context of its own. The connection stays the client's.
            "state": {},
            "extensions": {**self.scope.get("extensions", {}), WHOLE: {}},
        }
