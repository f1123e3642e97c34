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
from pydantic_core import from_json
from starlette.types import ASGIApp

from foretell.bundle.nearness import suggestion
from foretell.service.errors import ServiceError, error_object, let_go
from foretell.service.forecast.parse import parsing_bytes
from foretell.service.http.body import (
    JSON,
    LARGE,
    SMALL_ANSWER,
    LargeAnswer,
    Share,
    deadline_of,
    media_type,
    read_body,
)
from foretell.service.http.compression import NAMES, Body, choose_encoding, compress, unreadable
from foretell.service.http.middleware import BUG, request_context
from foretell.service.http.pipeline import COMPRESSION, Shared
from foretell.service.mcp.accuracy import ACCURACY
from foretell.service.mcp.caller import Caller, RefusedError
from foretell.service.mcp.exchange import Answer, exchange
from foretell.service.mcp.forecasts import BACKTEST, FORECAST
from foretell.service.mcp.hosts import Hosts
from foretell.service.mcp.models import LIST_MODELS
from foretell.service.mcp.tools import Tool
from foretell.service.mcp.wording import place, translated

_logger = logging.getLogger(__name__)

# Bytes of the largest message: the SDK reads it on the event loop, within about 10 ms.
_MOST_BYTES = 512 * 1024
# Bytes of the largest answer, which has the result twice.
_MOST_ANSWERED = 4 * 1024 * 1024
_INSTRUCTIONS = (
    "Forecasts of time series by trained models. Call list_models first: it has what each model "
    "needs."
)
_CALLER = "mcp_caller"


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
        self._offload = shared.offload
        self._metrics = shared.engine.metrics
        self._most = min(_MOST_BYTES, self._settings.max_body_bytes)
        tools = [LIST_MODELS, FORECAST, BACKTEST]
        if self._settings.ledger is not None:
            tools.append(ACCURACY)
        self._tools = {tool.name: tool for tool in tools}
        self._listed = ListToolsResult(tools=[*map(_described, tools)])
        self._hosts = Hosts(self._settings)
        server = Server(
            "foretell",
            version=metadata.version("foretell"),
            instructions=_INSTRUCTIONS,
            on_list_tools=self._list,
            on_call_tool=self._call,
            get_tool_input_schema=self._schema,
        )
        # `foretell.service.tracing` makes the spans.
        server.middleware.clear()
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
        self._hosts.check(context.headers)
        with Share(self._budget) as share:
            body = await read_body(request, context.headers, self._most, deadline, share.reserve)
            # Until the answer, the SDK holds the parsed message too.
            share.reserve(parsing_bytes(body))
            _check_json(body)
            caller = Caller(self._app, request.scope, deadline, share, self._offload)
            scope = {**request.scope, "state": {_CALLER: caller}}
            app = self._manager.handle_request
            answer = await exchange(app, scope, bytes(body), _MOST_ANSWERED, share.reserve)
            accepted = context.headers.get("accept-encoding", "")
            return await self._response(answer, accepted, deadline)

    async def _response(self, answer: Answer, accepted: str, deadline: float) -> Response:
        """The answer as a response; a large one is compressed and reserves its memory."""
        body, headers = bytes(answer.body), dict(answer.headers)
        headers.pop("content-length", None)
        if len(body) <= SMALL_ANSWER:
            return Response(body, answer.status, headers)
        if encoding := choose_encoding(accepted, NAMES):
            headers |= {"content-encoding": encoding, "vary": "Accept-Encoding"}
            if COMPRESSION * len(body) < LARGE:
                body = compress(encoding, [body])
            else:
                body = await self._offload.run(deadline, compress, encoding, [body])
        response = LargeAnswer(body, self._budget, headers)
        response.status_code = answer.status
        return response

    async def _list(
        self, _: ServerRequestContext, __: PaginatedRequestParams | None
    ) -> ListToolsResult:
        return self._listed

    def _schema(self, name: str) -> dict[str, Any] | None:
        tool = self._tools.get(name)
        return None if tool is None else tool.schema

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
        except Exception as error:
            _logger.exception("the tool %s failed unexpectedly", tool.name)
            let_go(error)
            self._metrics.rejected(BUG)
            raise MCPError(INTERNAL_ERROR, "the server failed; its log says why") from None
        return CallToolResult(
            content=[TextContent(text=result.text)], structured_content=result.fields
        )


def _check_json(body: Body) -> None:
    """Refuse JSON that the SDK reads and no answer could repeat, such as half a character."""
    try:
        from_json(body, cache_strings="keys")
    except ValueError as error:
        raise unreadable(f"the body is not JSON: {error}", body) from None


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
    error = translated(error)
    text = f"{place(error)}{error['message']}{later}"
    return CallToolResult(
        content=[TextContent(text=text)], structured_content={"error": error}, is_error=True
    )
