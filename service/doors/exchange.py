"""What every door needs from HTTP: the body, the deadline, and an eye on the caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive

from service.errors import (
    CallerGoneError,
    DeadlineExceededError,
    InvalidInputError,
    TooLargeError,
    UnreadableError,
)

_Outcome = TypeVar("_Outcome")

TIMEOUT_HEADER = "x-timeout-ms"
_LATE = "the deadline passed before the forecast was ready"


def deadline_of(headers: Mapping[str, str], timeout_seconds: float) -> float:
    """When a request must be answered, on the clock of `time.monotonic`.

    Args:
        headers: The request's; `X-Timeout-Ms` may shorten the time.
        timeout_seconds: The server's limit.

    Raises:
        InvalidInputError: the header is no whole number from 1.
    """
    given = headers.get(TIMEOUT_HEADER)
    if given is not None:
        if not (given.isascii() and given.isdecimal() and len(given) <= 12 and int(given)):
            raise InvalidInputError(
                f"expected a whole number of milliseconds from 1, got {given[:40]!r}",
                param="X-Timeout-Ms",
            )
        timeout_seconds = min(timeout_seconds, int(given) / 1000)
    return time.monotonic() + timeout_seconds


async def read_json(
    request: Request, limit: int, deadline: float, take: Callable[[int], None]
) -> bytearray:
    """The body of a request that should hold JSON.

    Args:
        request: The request.
        limit: Most bytes; they are counted as they come.
        deadline: When the whole body must be here.
        take: Takes the bytes from the server's budget, as they come.

    Raises:
        BuffersFullError: the budget is spent.
        UnreadableError: the headers promise something else than plain JSON.
        TooLargeError: the body is over the limit.
        DeadlineExceededError: the caller sends too slowly.
        CallerGoneError: the caller hung up.
    """
    headers = request.headers
    media = headers.get("content-type", "application/json").partition(";")[0].strip().lower()
    if media != "application/json":
        raise UnreadableError(
            f"expected Content-Type: application/json, got {media[:60]!r}", param="Content-Type"
        )
    encoding = headers.get("content-encoding", "identity").strip().lower()
    if encoding != "identity":
        raise UnreadableError(
            f"compressed bodies are not supported, got {encoding[:60]!r}", param="Content-Encoding"
        )
    promised = headers.get("content-length", "")
    if promised.isdecimal() and int(promised[:20]) > limit:
        raise _too_large(limit)
    body = bytearray()
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            async for chunk in request.stream():
                if len(body) + len(chunk) > limit:
                    raise _too_large(limit)
                take(len(chunk))
                body += chunk
    except TimeoutError:
        raise DeadlineExceededError("the deadline passed before the whole body was here") from None
    except ClientDisconnect:
        raise CallerGoneError("the caller hung up while sending") from None
    return body


async def outcome(future: Future[_Outcome], receive: Receive, deadline: float) -> _Outcome:
    """Wait for a result; whatever ends the wait cancels what is still queued.

    Args:
        future: The result.
        receive: Tells when the caller, whose body was read, hangs up.
        deadline: When the wait is over.

    Raises:
        DeadlineExceededError: the result did not come in time.
        CallerGoneError: the caller hung up.
        ServiceError: what the future failed with.
    """
    result = asyncio.wrap_future(future)
    gone = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait(
            (result, gone),
            timeout=max(0.0, deadline - time.monotonic()),
            return_when=asyncio.FIRST_COMPLETED,
        )
        if result.done():
            return result.result()
        if gone.done():
            raise CallerGoneError("the caller hung up while waiting")
        raise DeadlineExceededError(_LATE)
    finally:
        result.cancel()
        gone.cancel()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"expected a body of at most {limit} bytes")
