"""An agent: the protocol's own client, and plain messages."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx
import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import CallToolResult


class Agent:
    """Calls tools of a server, each with a connection of its own.

    Args:
        url: Address of the server, without the path.
        mode: `auto` for the newest version of the protocol, `legacy` for those with a handshake.
        headers: Headers of every request.
    """

    def __init__(self, url: str, mode: str = "auto", **headers: str) -> None:
        self._url, self._mode = f"{url}/mcp", mode
        self._headers = {name.replace("_", "-"): value for name, value in headers.items()}

    def call(self, tool: str, **given: Any) -> CallToolResult:
        async def act(client: Client) -> CallToolResult:
            return await client.call_tool(tool, given)

        found: CallToolResult = self._run(act)
        return found

    def fields(self, tool: str, **given: Any) -> dict[str, Any]:
        """The structured content of a call that succeeds."""
        result = self.call(tool, **given)
        assert not result.is_error, result.content
        found: dict[str, Any] = result.structured_content
        return found

    def error(self, tool: str, **given: Any) -> tuple[str, dict[str, Any]]:
        """The text of a call that fails, and the error's fields."""
        result = self.call(tool, **given)
        assert result.is_error
        return text(result), result.structured_content["error"]

    def tools(self) -> dict[str, Any]:
        """The tools by name."""

        async def act(client: Client) -> dict[str, Any]:
            return {tool.name: tool for tool in (await client.list_tools()).tools}

        found: dict[str, Any] = self._run(act)
        return found

    def refusal(self, tool: str = "list_models", **given: Any) -> str:
        """The message of a call that the server refuses before a tool runs."""
        found: BaseException | None = None
        try:
            self.call(tool, **given)
        except (MCPError, ExceptionGroup) as error:
            found = error
        while isinstance(found, BaseExceptionGroup):
            found = found.exceptions[0]
        assert isinstance(found, MCPError), found
        return found.message

    def _run(self, act: Any) -> Any:
        async def run() -> Any:
            async with httpx2.AsyncClient(headers=self._headers, timeout=60) as http:
                transport = streamable_http_client(self._url, http_client=http)
                async with Client(transport, mode=self._mode) as client:
                    return await act(client)

        return asyncio.run(run())


def text(result: CallToolResult) -> str:
    [content] = result.content
    assert content.type == "text"
    return content.text


def send(url: str, message: Mapping[str, Any] | None = None, **headers: str) -> httpx.Response:
    """POST a message, by default one that lists the tools."""
    message = message or {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{url}/mcp", json=message, headers={"Accept": "application/json", **named})
