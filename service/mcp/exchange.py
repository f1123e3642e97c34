"""Requests to an ASGI application within the process, with answers in reserved memory."""

from __future__ import annotations

from asyncio import Event
from collections.abc import Callable
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Scope

from foretell.service.errors import ServiceError, TooLargeError
from foretell.service.http.compression import Body


class AnswerTooLargeError(TooLargeError, type="answer_too_large"):
    """The answer has more bytes than its reader takes."""


@dataclass(slots=True)
class Answer:
    """The answer to a request within the process."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytearray = field(default_factory=bytearray)


async def exchange(
    app: ASGIApp, scope: Scope, body: Body, most: int, reserve: Callable[[int], None]
) -> Answer:
    """Send a request whose whole body is here, and return the answer.

    Args:
        app: The application.
        scope: Scope of the request.
        body: Its body.
        most: Bytes of the largest answer.
        reserve: Reserves bytes of the answer, before they are kept.

    Raises:
        AnswerTooLargeError: the answer is larger.
    """
    messages = [{"type": "http.request", "body": body, "more_body": False}]
    answer, errors = Answer(), list[ServiceError]()

    async def receive() -> Message:
        if not messages:
            # Routes learn from the connection whether the client has disconnected.
            await Event().wait()
        return messages.pop()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            answer.status = message["status"]
            named = message.get("headers", ())
            answer.headers = {name.decode("latin-1"): at.decode("latin-1") for name, at in named}
            return
        piece = message.get("body", b"")
        if errors:
            return
        try:
            if len(answer.body) + len(piece) > most:
                raise AnswerTooLargeError(f"the answer has over {most:,} bytes")
            reserve(len(piece))
        except ServiceError as error:
            # It must not reach the application, which would take it for a failure of its own.
            errors.append(error)
            answer.body.clear()
        else:
            answer.body += piece

    await app(scope, receive, send)
    if errors:
        raise errors[0]
    return answer
