from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

import httpx
import pytest
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from foretell.service.ray.proxy import PATH


def passed(answer: ASGIApp, path: str = "/forecast") -> httpx.Response:
    """What callers get of an answer."""

    async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
        await answer(scope, receive, send)

    module, _, name = PATH.rpartition(".")
    (middleware,) = getattr(import_module(module), name)()
    app = middleware.cls(proxy)

    async def ask() -> httpx.Response:
        transport: Any = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://proxy") as http:
            return await http.get(path)

    return asyncio.run(ask())


async def nothing(scope: Scope, receive: Receive, send: Send) -> None:
    """What the proxy says of a replica that died before it had begun to answer."""


@pytest.mark.parametrize("answer", [PlainTextResponse("The actor died.", 500), nothing])
def test_a_door_that_died_is_one_to_ask_again(answer: ASGIApp) -> None:
    found = passed(answer)
    assert (found.status_code, found.headers["Retry-After"]) == (503, "1")
    assert found.json()["error"] == {
        "code": "503",
        "message": "the process that read this has ended; ask again",
        "param": None,
        "type": "engine_lost",
    }
    other = passed(PlainTextResponse("died", 500), "/v2/models/one/infer")
    assert other.json() == {"error": "the process that read this has ended; ask again"}


@pytest.mark.parametrize(
    "answer",
    [
        JSONResponse({"error": "a bug"}, 500),
        PlainTextResponse("not there", 404),
        PlainTextResponse("alive"),
    ],
)
def test_all_else_passes(answer: Response) -> None:
    found = passed(answer)
    assert (found.status_code, found.content) == (answer.status_code, answer.body)
    assert found.headers["Content-Type"] == answer.headers["Content-Type"]
