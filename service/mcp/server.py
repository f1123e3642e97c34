"""The route `POST /mcp`: the SDK's server, behind the checks of all other routes.

Each message is a request of its own, without a session, so that any HTTP worker answers any of
them. Answers are JSON and never streams.
"""

from __future__ import annotations

import logging
import time
from contextlib import AbstractAsyncContextManager
from importlib import metadata
from typing import Any

from fastapi import APIRouter, Request, Response
from mcp.server import Server, ServerRequestContext
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecurityMiddleware, TransportSecuritySettings
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    ToolAnnotations,
)
from mcp.types import Tool as Described
from starlette.types import ASGIApp

from foretell.bundle.nearness import suggestion
from foretell.service.errors import ForbiddenError, ForeignHostError, ServiceError, error_object
from foretell.service.forecast.parse import parsing_bytes
from foretell.service.http.body import (
    JSON,
    Share,
    deadline_of,
    media_type,
    read_body,
)
from foretell.service.http.middleware import request_context
from foretell.service.http.pipeline import Shared
from foretell.service.mcp.accuracy import ACCURACY
from foretell.service.mcp.caller import Caller, RefusedError, exchange
from foretell.service.mcp.forecasts import BACKTEST, FORECAST
from foretell.service.mcp.models import LIST_MODELS
from foretell.service.mcp.results import place
from foretell.service.mcp.tools import Tool
from foretell.service.settings import Settings

_logger = logging.getLogger(__name__)

# Bytes of the largest message: the SDK reads it on the event loop.
_MOST_BYTES = 1024 * 1024
_INSTRUCTIONS = (
    "Forecasts of time series by trained models. Call list_models first: it has what each model "
    "needs."
)
_CALLER = "mcp_caller"
_LOCAL = ("localhost", "127.0.0.1", "[::1]")
# Addresses that mean all, and name no host.
_ALL = ("", "0.0.0.0", "::", "*")  # noqa: S104 - they are compared


class McpServer:
    """The tools and their route.

    Args:
        shared: Objects of all routes.
        app: The whole application, which the tools send requests to.

    Attributes:
        router: The route.
    """

    def __init__(self, shared: Shared, app: ASGIApp) -> None:
        self._settings, self._budget, self._app = shared.settings, shared.budget, app
        self._metrics = shared.engine.metrics
        self._most = min(_MOST_BYTES, self._settings.max_body_bytes)
        tools = [LIST_MODELS, FORECAST, BACKTEST]
        if self._settings.ledger is not None:
            tools.append(ACCURACY)
        self._tools = {tool.name: tool for tool in tools}
        self._hosts = _hosts(self._settings)
        self._security = TransportSecurityMiddleware(
            TransportSecuritySettings(
                allowed_hosts=[*self._hosts, *(f"{name}:*" for name in self._hosts)],
                allowed_origins=[*self._settings.cors_origins],
            )
        )
        server = Server(
            "foretell",
            version=metadata.version("foretell"),
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        # `foretell.service.tracing` makes the spans.
        server.middleware.clear()
        # The SDK logs a line for each request, as the server itself does.
        logging.getLogger("mcp").setLevel(logging.ERROR)
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=self._most
        )
        self.router = APIRouter()
        self.router.add_api_route(
            "/mcp", self._respond, methods=["POST"], include_in_schema=False, response_model=None
        )

    def run(self) -> AbstractAsyncContextManager[None]:
        """Serve within the block."""
        return self._manager.run()

    async def _respond(self, request: Request) -> Response:
        context, seconds = request_context(request.scope), self._settings.timeout_seconds
        deadline = deadline_of(context.headers, time.monotonic(), seconds)
        media_type(context.headers, JSON)
        await self._check(request)
        with Share(self._budget) as share:
            body = await read_body(request, context.headers, self._most, deadline, share.reserve)
            # Until the answer, the SDK holds the parsed message too.
            share.reserve(parsing_bytes(body))
            caller = Caller(self._app, request.scope, deadline)
            scope = {**request.scope, "state": {_CALLER: caller}}
            answer = await exchange(self._manager.handle_request, scope, bytes(body))
        return Response(bytes(answer.body), answer.status, answer.headers)

    async def _check(self, request: Request) -> None:
        """Refuse hosts and origins by which a foreign page could reach a server without keys."""
        if "*" in self._settings.cors_origins:
            kept = [line for line in request.scope["headers"] if line[0] != b"origin"]
            request = Request({**request.scope, "headers": kept})
        refused = await self._security.validate_request(request)
        if refused is None:
            return
        if refused.status_code == ForbiddenError.status:
            raise ForbiddenError(
                "pages of this origin may not call the server; add it to FORETELL_CORS_ORIGINS",
                param="Origin",
            )
        host = request.headers.get("host", "")
        raise ForeignHostError(
            f"expected one of {', '.join(self._hosts)}, got {host[:60]!r}; add the name by which "
            "clients reach the server to FORETELL_MCP_HOSTS",
            param="Host",
        )

    async def _list(
        self, _: ServerRequestContext, __: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return ListToolsResult(tools=[_described(tool) for tool in self._tools.values()])

    async def _call(
        self, context: ServerRequestContext, given: CallToolRequestParams
    ) -> CallToolResult:
        tool = self._tools.get(given.name)
        if tool is None:
            message = f"no tool {given.name[:60]!r}; {suggestion(given.name, [*self._tools])}"
            raise MCPError(INVALID_PARAMS, message)
        request: Any = context.request
        caller: Caller = request.scope["state"][_CALLER]
        try:
            result = await tool(caller, given.arguments or {})
        except RefusedError as error:
            return _refused(error.fields, error.retry_after)
        except ServiceError as error:
            # Routes count their own refusals.
            self._metrics.rejected(error.type)
            return _refused(error_object(error))
        except Exception:
            _logger.exception("the tool %s failed unexpectedly", tool.name)
            raise MCPError(INTERNAL_ERROR, "the server failed; its log says why") from None
        return CallToolResult(
            content=[TextContent(text=result.text)], structured_content=result.fields
        )


def _hosts(settings: Settings) -> list[str]:
    """Names of the server in `Host` headers."""
    own = settings.host.strip("[]")
    named = [] if own in _ALL else [f"[{own}]" if ":" in own else own]
    return [*dict.fromkeys([*_LOCAL, *named, *settings.mcp_hosts])]


def _described(tool: Tool) -> Described:
    hints = ToolAnnotations(
        title=tool.title,
        read_only_hint=tool.reads_only,
        destructive_hint=False,
        open_world_hint=False,
    )
    return Described(
        name=tool.name,
        title=tool.title,
        description=tool.description,
        input_schema=tool.schema,
        annotations=hints,
    )


def _refused(error: dict[str, str | None], retry_after: str | None = None) -> CallToolResult:
    """The result of a tool that failed, as the answer of its route."""
    later = f" (retry after {retry_after} s)" if retry_after else ""
    text = f"{place(error)}{error['message']}{later}"
    return CallToolResult(
        content=[TextContent(text=text)], structured_content={"error": error}, is_error=True
    )
