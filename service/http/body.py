"""Bodies of requests and answers, their memory, and threads for large work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, Self, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foretell.service.errors import (
    BuffersFullError,
    ClientDisconnectedError,
    DeadlineExceededError,
    InvalidInputError,
    SlowBodyError,
    TooLargeError,
    UnsupportedMediaError,
    let_go,
)
from foretell.service.http.client import WHOLE
from foretell.service.http.compression import Body, Decompressor


class MemoryBudget:
    """Bytes that all requests share: bodies, memory to read large ones, and answers.

    For use on the event loop only.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0


@dataclass(slots=True, eq=False)
class Share:
    """One request's part of a `MemoryBudget`; it is given back at the end."""

    budget: MemoryBudget
    reserved: int = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        self.budget.reserved -= self.reserved
        self.reserved = 0

    def reserve(self, count: int) -> None:
        """Reserve `count` more bytes, or give bytes back if it is negative."""
        budget = self.budget
        if self.reserved + count > budget.limit:
            raise TooLargeError(
                f"reading or answering the request takes about {self.reserved + count} bytes, "
                f"and the server may hold {budget.limit} (max_buffered_bytes); send it in parts, "
                "or in binary"
            )
        if budget.reserved + count > budget.limit:
            raise BuffersFullError(
                f"the server holds {budget.reserved} bytes of requests and may hold {budget.limit}"
            )
        self.reserved += count
        budget.reserved += count


# Bytes of answers that a connection may hold outside the budget.
SMALL_ANSWER = 64 * 1024


class LargeAnswer(Response):
    """An answer of over `SMALL_ANSWER` bytes, reserved until the client has read nearly all of it.

    Sending it raises as `Share.reserve`.
    """

    def __init__(self, content: bytes, budget: MemoryBudget, headers: Mapping[str, str]) -> None:
        super().__init__(content, headers=headers)
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        size = len(self.body)
        with Share(self._budget) as share:
            share.reserve(size)
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            for begin in range(0, size, SMALL_ANSWER):
                # Each piece waits until the connection has room for it.
                end = begin + SMALL_ANSWER
                piece = {"body": self.body[begin:end], "more_body": end < size}
                await send({"type": "http.response.body", **piece})
        if self.background is not None:
            await self.background()


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# Least work that is done on a thread, counted in bytes of a JSON list of numbers to read. It takes
# about 2 ms, and a switch to a thread and back 0.1 ms.
LARGE = 256 * 1024
# Work that is never done on the event loop.
ALWAYS = LARGE
# With two, one huge body does not hold up all others; more would only contend for the GIL.
_THREADS = 2


class Offload:
    """Runs long functions on a few threads.

    The event loop continues after 5 ms of other Python, and at once while numpy or zlib run. One
    call of a JSON library cannot be interrupted: the loop waits for 2 to 5 ms a MB. So threads only
    help requests with many such calls, and only the size of a request bounds one call.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="offload")

    async def run(
        self,
        deadline: float,
        function: Callable[_Given, _Result],
        *arguments: _Given.args,
        **options: _Given.kwargs,
    ) -> _Result:
        """Call a function on a thread.

        At the deadline, on the clock of `time.monotonic`, a call that waits for a thread is
        dropped. A call that has begun is completed: it cannot be interrupted, and its memory is in
        use. Both raise DeadlineExceededError.
        """
        # The pool keeps a cancelled call until a thread reaches it; the list lets its arguments go.
        calls: list[Callable[[], _Result]] = [partial(function, *arguments, **options)]
        del arguments, options
        pending = self._pool.submit(_call, calls)
        done = asyncio.wrap_future(pending)
        try:
            await asyncio.wait([done], timeout=max(0.0, deadline - time.monotonic()))
            if not pending.cancel():
                result = await done
                if time.monotonic() <= deadline:
                    return result
        finally:
            done.cancel()
            if pending.cancel():
                calls.clear()
            # Both hold the error, if any, and its traceback holds this frame.
            del pending, done
        raise DeadlineExceededError("the deadline passed before the request was read or answered")

    def close(self) -> None:
        """Accept no more calls, and drop those that have not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(calls: list[Callable[[], _Result]]) -> _Result:
    """Call the only function; an error is stripped of the frames that hold its data."""
    try:
        return calls.pop()()
    except BaseException as error:
        let_go(error)
        raise


JSON = "application/json"
TIMEOUT_HEADER = "x-timeout-ms"
# Bytes that compression may add.
_FRAMING = 64 * 1024


def deadline_of(headers: Mapping[str, str], started: float, seconds: float) -> float:
    """The deadline of a request: the server's `seconds` after its start, or fewer by a header."""
    if TIMEOUT_HEADER in headers:
        seconds = min(seconds, timeout_of(headers[TIMEOUT_HEADER]))
    return started + seconds


def timeout_of(header: str) -> float:
    """The header `X-Timeout-Ms` in seconds."""
    if not (header.isascii() and header.isdecimal() and len(header) <= 12 and int(header)):
        raise InvalidInputError(
            f"expected a whole number of milliseconds from 1, got {header[:40]!r}",
            param="X-Timeout-Ms",
        )
    return int(header) / 1000


def media_type(headers: Mapping[str, str], *accepted: str) -> str:
    """The media type of a request's body; the first accepted one without a Content-Type."""
    given = headers.get("content-type", accepted[0]).partition(";")[0].strip().lower()
    if given not in accepted:
        raise UnsupportedMediaError(
            f"expected Content-Type: {' or '.join(accepted)}, got {given[:60]!r}",
            param="Content-Type",
            accepted=accepted,
        )
    return given


async def read_body(
    request: Request,
    headers: Mapping[str, str],
    limit: int,
    deadline: float,
    reserve: Callable[[int], None],
) -> Body:
    """The body of a request, decompressed by its `Content-Encoding`, at most `limit` bytes.

    `reserve` is called with the number of bytes of each piece, before it is kept.
    """
    promised = headers.get("content-length", "")
    if promised.isdecimal() and int(promised[:20]) > limit:
        # A body that announces too many bytes is refused before it is read.
        raise _too_large(limit)
    encoding = headers.get("content-encoding")
    decompressor = None if encoding is None else Decompressor(encoding, reserve)
    body: Body = b""
    try:
        # Most bodies arrive with their headers, and need no timer.
        is_here = WHOLE in request.scope.get("extensions", ())
        async with nullcontext() if is_here else asyncio.timeout(deadline - time.monotonic()):
            received, more = 0, True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnectedError("the client disconnected while sending")
                chunk, more = message.get("body", b""), message.get("more_body", False)
                received += len(chunk)
                if received > limit + _FRAMING:
                    raise _too_large(limit)
                for piece in (chunk,) if decompressor is None else decompressor.feed(chunk):
                    if len(body) + len(piece) > limit:
                        raise _too_large(limit)
                    reserve(len(piece))
                    body = _joined(body, piece) if body else piece
                    if len(piece) > len(chunk):
                        # A body that grows on decompression must not hold up other requests.
                        await asyncio.sleep(0)
    except TimeoutError:
        raise SlowBodyError("the deadline passed before the whole body arrived") from None
    if decompressor is not None:
        decompressor.finish()
    return body


def _joined(body: Body, piece: bytes) -> Body:
    """Append a piece to a body, in place."""
    if isinstance(body, bytes):
        body = bytearray(body)
    body += piece
    return body


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"expected a body of at most {limit} bytes")
