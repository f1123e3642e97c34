"""What every door needs from HTTP: the body, the deadline, and an eye on the caller."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from starlette.types import Receive

from foretell.service.arrays import Arrays
from foretell.service.directory import Pending
from foretell.service.doors.compression import Decoder
from foretell.service.errors import (
    CallerGoneError,
    DeadlineExceededError,
    InvalidInputError,
    SlowBodyError,
    TooLargeError,
    UnsupportedMediaError,
)
from foretell.service.web.callers import Caller

TIMEOUT_HEADER = "x-timeout-ms"
# Compressing may also add a little.
_FRAMING = 64 * 1024
# To put so many bytes together takes a millisecond.
_LARGE = 4 * 1024 * 1024
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
    receive: Receive,
    headers: Mapping[str, str],
    limit: int,
    deadline: float,
    take: Callable[[int], None],
) -> bytes:
    """The body of a request, unfolded as its `Content-Encoding` says.

    Args:
        receive: Brings its pieces.
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
    decoder = Decoder(headers.get("content-encoding", "identity"))
    promised = headers.get("content-length", "")
    if promised.isdecimal() and int(promised[:20]) > limit:
        raise _too_large(limit)
    pieces: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            came = 0
            more = True
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallerGoneError("the caller hung up while sending")
                chunk, more = message.get("body", b""), message.get("more_body", False)
                came += len(chunk)
                if came > limit + _FRAMING:
                    raise _too_large(limit)
                for piece in decoder.feed(chunk):
                    size += len(piece)
                    if size > limit:
                        raise _too_large(limit)
                    take(len(piece))
                    pieces.append(piece)
                    if len(piece) > len(chunk):
                        # What unfolds to much must not hold up the others.
                        await asyncio.sleep(0)
    except TimeoutError:
        raise SlowBodyError("the deadline passed before the whole body was here") from None
    decoder.finish()
    if size < _LARGE:
        return b"".join(pieces)
    # Which lets the others go on meanwhile.
    return await asyncio.to_thread(b"".join, pieces)


async def outcome(pending: Pending, caller: Caller, deadline: float) -> Arrays:
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
    over = loop.create_future()

    def wake() -> None:
        if not over.done():
            over.set_result(None)

    def ready(_: object) -> None:
        # On a worker's thread, which may finish after the server has stopped.
        if not loop.is_closed():
            loop.call_soon_threadsafe(wake)

    # What asyncio.wait would do, in two thirds of the time: every request comes by here.
    pending.add_done_callback(ready)
    timer = loop.call_later(max(0.0, deadline - time.monotonic()), wake)
    caller.watch(wake)
    try:
        await over
        if pending.done():
            return pending.result()
        if caller.gone:
            raise CallerGoneError("the caller hung up while waiting")
        raise DeadlineExceededError(_LATE)
    finally:
        timer.cancel()
        caller.unwatch(wake)
        pending.cancel()


def _too_large(limit: int) -> TooLargeError:
    return TooLargeError(f"expected a body of at most {limit} bytes")
