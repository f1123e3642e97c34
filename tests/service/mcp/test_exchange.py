"""Answers to requests within the process, and their limits."""

from __future__ import annotations

import asyncio

import pytest
from starlette.types import Receive, Scope, Send

from foretell.service.errors import BuffersFullError, ServiceError
from foretell.service.http.body import MemoryBudget, Share
from foretell.service.mcp.exchange import Answer, AnswerTooLargeError, exchange


def answered(share: Share, most: int) -> tuple[Answer | ServiceError, list[str]]:
    """The answer of an application that sends twelve bytes, and what it has seen."""
    seen: list[str] = []

    async def app(_: Scope, receive: Receive, send: Send) -> None:
        seen.append((await receive())["body"].decode())
        await send({"type": "http.response.start", "status": 203, "headers": [(b"a", b"b")]})
        for _ in range(3):
            await send({"type": "http.response.body", "body": b"1234", "more_body": True})
        seen.append("sent")

    try:
        return asyncio.run(exchange(app, {}, b"given", most, share.reserve)), seen
    except ServiceError as error:
        return error, seen


def test_answer_is_whole_and_reserved() -> None:
    share = Share(MemoryBudget(20))
    answer, seen = answered(share, 12)
    assert answer == Answer(203, {"a": "b"}, bytearray(b"123412341234"))
    assert (share.reserved, seen) == (12, ["given", "sent"])


@pytest.mark.parametrize(
    ("most", "reserved", "kind"), [(11, 0, AnswerTooLargeError), (20, 5, BuffersFullError)]
)
def test_large_answer_is_an_error_which_the_application_does_not_see(
    most: int, reserved: int, kind: type[ServiceError]
) -> None:
    budget = MemoryBudget(13)
    Share(budget).reserve(reserved)
    error, seen = answered(Share(budget), most)
    assert type(error) is kind
    assert seen == ["given", "sent"]
