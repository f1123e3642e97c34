"""What every route needs: the body, the deadline, threads for large work, an eye on the client."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import ParamSpec, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from foretell.service.arrays import Arrays
from foretell.service.engine.engine import Engine
from foretell.service.engine.registry import Pending
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
from foretell.service.http.compression import Body, Decoder
from foretell.service.http.protocol import WHOLE, ClientConnection
from foretell.service.settings import Settings


class MemoryBudget:
    """Bytes that all requests share: their bodies, what large ones take to be read, and answers.

    For use on the event loop alone.

    Args:
        limit: Most bytes held at a time.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held = 0

    @contextmanager
    def share(self) -> Iterator[Callable[[int], None]]:
        """One request's share, given back at the end.

        Yields:
            Takes that many bytes more, or gives them back if they are less than none; raises
            `BuffersFullError` if they are not to be had now, `TooLargeError` if they never are.
        """
        taken = 0

        def take(count: int) -> None:
            nonlocal taken
            if taken + count > self._limit:
                raise TooLargeError(
                    f"to read or answer the request would take about {taken + count} bytes, and "
                    f"the server may hold {self._limit} (max_buffered_bytes); send it in parts, or "
                    "in binary"
                )
            if self._held + count > self._limit:
                raise BuffersFullError(
                    f"the server holds {self._held} bytes of requests and may hold {self._limit}"
                )
            taken += count
            self._held += count

        try:
            yield take
        finally:
            self._held -= taken


# What a connection may hold of answers besides.
_SMALL_ANSWER = 64 * 1024


def response_of(
    content: bytes, budget: MemoryBudget, headers: Mapping[str, str], media_type: str | None = None
) -> Response:
    """An answer, which counts, if it is large, until its caller has taken nearly all of it.

    Args:
        content: Its body.
        budget: Counts it, and refuses it when it is to be sent if there is no room.
        headers: As for `Response`, like the type that follows.
        media_type: Of the body.
    """
    if len(content) <= _SMALL_ANSWER:
        return Response(content, headers=headers, media_type=media_type)
    return _LargeAnswer(content, budget, headers, media_type)


class _LargeAnswer(Response):
    def __init__(
        self,
        content: bytes,
        budget: MemoryBudget,
        headers: Mapping[str, str],
        media_type: str | None,
    ) -> None:
        super().__init__(content, headers=headers, media_type=media_type)
        self._budget = budget

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        size = len(self.body)
        with self._budget.share() as take:
            take(size)
            start = {"status": self.status_code, "headers": self.raw_headers}
            await send({"type": "http.response.start", **start})
            for begin in range(0, size, _SMALL_ANSWER):
                # Each waits until the connection has room for it.
                end = begin + _SMALL_ANSWER
                piece = {"body": self.body[begin:end], "more_body": end < size}
                await send({"type": "http.response.body", **piece})


_Given = ParamSpec("_Given")
_Result = TypeVar("_Result")

# What takes about 2 ms; going to a thread and back takes 0.1 ms.
LARGE = 256 * 1024
# Work that is not done on the event loop, however little it is.
ALWAYS = LARGE
# Two, so that one huge body does not hold up all others; more would only contend for the GIL.
_THREADS = 2


class Offload:
    """Runs functions on the event loop, or on a few threads when they have much to do.

    The event loop goes on after 5 ms of other Python, and at once while numpy or zlib are at work.
    What nothing interrupts is one call of a JSON library: the loop waits for all of it, 2 to 5 ms a
    MB, so that threads help where a request is many such calls, and only the caller's bytes bound
    how long one may take.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="offload")

    async def run(
        self,
        work: int,
        deadline: float,
        function: Callable[_Given, _Result],
        *arguments: _Given.args,
        **options: _Given.kwargs,
    ) -> _Result:
        """Call the function.

        Args:
            work: How much it has to do, as bytes of a JSON list of numbers that it might read.
            deadline: On the clock of `time.monotonic`. What waits for a thread is dropped then.
                What has begun is waited for, since it cannot be interrupted: its memory is in use.
            function: Does not wait for anything.
            arguments: Passed on.
            options: Passed on.

        Raises:
            DeadlineExceededError: it did not end in time, on a thread.
        """
        if work < LARGE:
            return function(*arguments, **options)
        # The pool keeps what was cancelled until a thread gets to it, but no more its arguments.
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
    """Call the function there is; what it worked on is gone when its error reaches the caller."""
    try:
        return calls.pop()()
    except BaseException as error:
        let_go(error)
        raise


@dataclass(frozen=True)
class Shared:
    """What routes that run models share.

    Attributes:
        engine: Runs the models.
        settings: Limits.
        budget: Counts the bodies of requests.
        offload: Reads large requests and writes large answers.
    """

    engine: Engine
    settings: Settings
    budget: MemoryBudget
    offload: Offload


TIMEOUT_HEADER = "x-timeout-ms"
# Compressing may also add a little.
_FRAMING = 64 * 1024
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


def media_type(headers: Mapping[str, str], *accepted: str) -> str:
    """What the body of a request is.

    Args:
        headers: The request's.
        accepted: Media types; the first is taken for granted where the headers name none.

    Raises:
        UnsupportedMediaError: it is none of them.
    """
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
    take: Callable[[int], None],
) -> Body:
    """The body of a request, unfolded as its `Content-Encoding` says.

    Args:
        request: Brings its pieces.
        headers: The request's.
        limit: Most bytes, unfolded; they are counted as they come.
        deadline: When the whole body must be here.
        take: Takes the bytes from the server's budget, as they come.

    Raises:
        BuffersFullError: the budget is spent.
        UnsupportedMediaError: the encoding is unknown.
        UnreadableError: the body is not in it.
        TooLargeError: the body is over the limit.
        SlowBodyError: the caller sends too slowly.
        CallerGoneError: the caller hung up.
    """
    decoder = _decoder(headers, limit, take)
    body: Body = b""
    try:
        # Most bodies come with their head; what takes no time needs no clock.
        is_here = WHOLE in request.scope.get("extensions", ())
        clock = nullcontext() if is_here else asyncio.timeout(deadline - time.monotonic())
        async with clock:
            came = 0
            more = True
            while more:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnectedError("the caller hung up while sending")
                chunk, more = message.get("body", b""), message.get("more_body", False)
                came += len(chunk)
                if came > limit + _FRAMING:
                    raise _too_large(limit)
                for piece in (chunk,) if decoder is None else decoder.feed(chunk):
                    if len(body) + len(piece) > limit:
                        raise _too_large(limit)
                    take(len(piece))
                    body = _with(body, piece)
                    if len(piece) > len(chunk):
                        # What unfolds to much must not hold up the others.
                        await asyncio.sleep(0)
    except TimeoutError:
        raise SlowBodyError("the deadline passed before the whole body was here") from None
    if decoder is not None:
        decoder.finish()
    return body


async def outcome(pending: Pending, caller: ClientConnection, deadline: float) -> Arrays:
    """Wait for the outputs of a run; whatever ends the wait cancels what is still queued.

    Args:
        pending: The run.
        caller: Who waits for it, and may hang up.
        deadline: When the wait is over.

    Raises:
        DeadlineExceededError: the result did not come in time.
        CallerGoneError: the caller hung up.
        ServiceError: what the run failed with.
    """
    loop = asyncio.get_running_loop()
    own = threading.get_ident()
    over = loop.create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    def ready(_: object) -> None:
        if threading.get_ident() == own:
            wake()
        # On a worker's thread, which may finish after the server has stopped.
        elif not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    # What asyncio.wait would do, in two thirds of the time: every request comes by here.
    pending.add_done_callback(ready)
    timer = loop.call_later(max(0.0, deadline - time.monotonic()), wake)
    caller.watch(wake)
    ended = False
    try:
        await over
        if ended := pending.done():
            return pending.result()
        if caller.disconnected:
            raise ClientDisconnectedError("the caller hung up while waiting")
        raise DeadlineExceededError(_LATE)
    finally:
        timer.cancel()
        caller.unwatch(wake)
        if not ended:
            pending.cancel()


def _decoder(headers: Mapping[str, str], limit: int, take: Callable[[int], None]) -> Decoder | None:
    """What unfolds the body, if it is compressed; one that promises too much is not read."""
    promised = headers.get("content-length", "")
    if promised.isdecimal() and int(promised[:20]) > limit:
        raise _too_large(limit)
    encoding = headers.get("content-encoding")
    return None if encoding is None else Decoder(encoding, take)


def _with(body: Body, piece: bytes) -> Body:
    """A body and what follows it: of several pieces it grows, and no piece is kept besides."""
    if not body:
        return piece
    if isinstance(body, bytes):
        body = bytearray(body)
    body += piece
    return body


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"expected a body of at most {limit} bytes")
