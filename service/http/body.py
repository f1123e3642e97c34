"""Bodies of requests and answers, the memory that they take, and threads for large work."""

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
from foretell.service.http.compression import Body, Decompressor
from foretell.service.http.protocol import WHOLE


class MemoryBudget:
    """Bytes that all requests share: their bodies, what large ones take to be read, and answers.

    For use on the event loop alone.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.reserved = 0


@dataclass(slots=True, eq=False)
class Share:
    """What one request has reserved of a `MemoryBudget`; it is given back at the end."""

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
        """Reserve that many bytes more, or give back as many where it is negative."""
        budget = self.budget
        if self.reserved + count > budget.limit:
            raise TooLargeError(
                f"to read or answer the request would take about {self.reserved + count} bytes, "
                f"and the server may hold {budget.limit} (max_buffered_bytes); send it in parts, "
                "or in binary"
            )
        if budget.reserved + count > budget.limit:
            raise BuffersFullError(
                f"the server holds {budget.reserved} bytes of requests and may hold {budget.limit}"
            )
        self.reserved += count
        budget.reserved += count


# What a connection may hold of answers besides.
SMALL_ANSWER = 64 * 1024


class LargeAnswer(Response):
    """An answer of over `SMALL_ANSWER` bytes, reserved until the client has taken nearly all of it.

    It raises as `Share.reserve` when it is to be sent.
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
                # Each waits until the connection has room for it.
                end = begin + SMALL_ANSWER
                piece = {"body": self.body[begin:end], "more_body": end < size}
                await send({"type": "http.response.body", **piece})


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# From so much work on a thread does it. Work is counted in bytes of a JSON list of numbers to read:
# this takes about 2 ms, and going to a thread and back 0.1 ms.
LARGE = 256 * 1024
# Work that is not done on the event loop, however little it is.
ALWAYS = LARGE
# Two, so that one huge body does not hold up all others; more would only contend for the GIL.
_THREADS = 2


class Offload:
    """Runs functions that have much to do on a few threads.

    The event loop goes on after 5 ms of other Python, and at once while numpy or zlib are at work.
    What nothing interrupts is one call of a JSON library: the loop waits for all of it, 2 to 5 ms a
    MB, so that threads help where a request is many such calls, and only the request's bytes bound
    how long one may take.
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
        dropped. One that has begun is waited for: it cannot be interrupted, and its memory is in
        use. DeadlineExceededError follows in both cases.
        """
        # The pool keeps a cancelled call until a thread gets to it, but not its arguments.
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
            # Both hold the error, if there is one, whose traceback holds this frame.
            del pending, done
        raise DeadlineExceededError("the deadline passed before the request was read or answered")

    def close(self) -> None:
        """Take no more work and drop what has not begun."""
        self._pool.shutdown(wait=False, cancel_futures=True)


def _call(calls: list[Callable[[], _Result]]) -> _Result:
    """Call the only function; what it worked on is freed when its error reaches the event loop."""
    try:
        return calls.pop()()
    except BaseException as error:
        let_go(error)
        raise


JSON = "application/json"
TIMEOUT_HEADER = "x-timeout-ms"
# Compressing may also add a little.
_FRAMING = 64 * 1024


def timeout_of(header: str) -> float:
    """The seconds that the header `X-Timeout-Ms` says."""
    if not (header.isascii() and header.isdecimal() and len(header) <= 12 and int(header)):
        raise InvalidInputError(
            f"expected a whole number of milliseconds from 1, got {header[:40]!r}",
            param="X-Timeout-Ms",
        )
    return int(header) / 1000


def media_type(headers: Mapping[str, str], *accepted: str) -> str:
    """The media type of a request's body; the first accepted one where the headers name none."""
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
    """The body of a request, decompressed as its `Content-Encoding` says; then `limit` bounds it.

    `reserve` is called with the number of bytes of each piece, before it is kept.
    """
    promised = headers.get("content-length", "")
    if promised.isdecimal() and int(promised[:20]) > limit:
        # One that promises too much is refused before it is read.
        raise _too_large(limit)
    encoding = headers.get("content-encoding")
    decompressor = None if encoding is None else Decompressor(encoding, reserve)
    body: Body = b""
    try:
        # Most bodies come with their head, and need no timer.
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
                        # A body that decompresses to much must not hold up other requests.
                        await asyncio.sleep(0)
    except TimeoutError:
        raise SlowBodyError("the deadline passed before the whole body was here") from None
    if decompressor is not None:
        decompressor.finish()
    return body


def _joined(body: Body, piece: bytes) -> Body:
    """A body and its next piece; it grows in place, and holds no piece besides."""
    if isinstance(body, bytes):
        body = bytearray(body)
    body += piece
    return body


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"expected a body of at most {limit} bytes")
