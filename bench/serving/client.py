"""A client that keeps sending at its own pace, whatever the server does."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import cast

# A request that was cut off, or never answered.
BROKEN, HUNG = "connection lost", "no answer"
_PATIENCE = 60.0


@dataclass
class Outcomes:
    """What came of the requests.

    Attributes:
        statuses: Requests by HTTP status, or `BROKEN` or `HUNG`.
        accepted: Seconds of each request that was answered 200.
    """

    statuses: Counter[int | str] = field(default_factory=Counter)
    accepted: list[float] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Requests that have an outcome."""
        return self.statuses.total()

    def percentile(self, share: float) -> float:
        """Seconds within which that share of the accepted was answered."""
        ranked = sorted(self.accepted)
        return ranked[min(len(ranked) - 1, int(share * len(ranked)))] if ranked else 0.0


class _Connection(asyncio.Protocol):
    """A persistent connection, with one request on its way at most.

    Attributes:
        usable: Whether it takes another request.
    """

    def __init__(self) -> None:
        self.usable = True
        self._transport: asyncio.Transport
        self._status: asyncio.Future[int] | None = None
        self._head = b""
        # Bytes of the answer's body that are still to come, once its head is here.
        self._left: int | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's is no subclass of it.
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.usable = False
        if self._status is not None and not self._status.done():
            self._status.set_exception(exc or EOFError("the server hung up"))

    def data_received(self, data: bytes) -> None:
        if self._left is None:
            self._head += data
            head, end, body = self._head.partition(b"\r\n\r\n")
            if not end:
                return
            head = head.lower()
            self._left = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            self.usable = b"connection: close" not in head
            data = body
        self._left -= len(data)
        if self._left <= 0 and self._status is not None and not self._status.done():
            self._status.set_result(int(self._head.split(b" ", 2)[1]))

    async def exchange(self, request: bytes) -> int:
        """Send a request; returns the status of its answer, which is then here."""
        self._status = asyncio.get_running_loop().create_future()
        self._head, self._left = b"", None
        self._transport.write(request)
        try:
            return await self._status
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.usable = False
        self._transport.close()


class Client:
    """Persistent connections to one server.

    Args:
        port: On the loopback interface.
        requests: Whole HTTP/1.1 requests; they are sent in turn.
        pause: Seconds from an answer that is no 200 to the next request, for `keep_busy`.
    """

    def __init__(self, port: int, requests: Sequence[bytes], pause: float = 0.0) -> None:
        self._pause = pause
        self.outcomes = Outcomes()
        self._port = port
        self._requests = itertools.cycle(requests)
        self._idle: deque[_Connection] = deque()

    async def offer(self, rate: float, seconds: float, most: int) -> None:
        """Send at a rate, without waiting for answers.

        Args:
            rate: Requests a second.
            seconds: How long.
            most: Requests on their way at any time; beyond it a turn is left out.
        """
        tasks: set[asyncio.Task[object]] = set()
        started = time.perf_counter()
        sent = 0
        while (elapsed := time.perf_counter() - started) < seconds:
            while sent < elapsed * rate:
                sent += 1
                if len(tasks) < most:
                    task: asyncio.Task[object] = asyncio.create_task(self.send())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    async def keep_busy(self, connections: int, more: Callable[[], bool]) -> None:
        """Have a request on its way on each connection, as long as `more()`."""

        async def loop() -> None:
            while more():
                if not await self.send():
                    await asyncio.sleep(self._pause)

        await asyncio.gather(*(loop() for _ in range(connections)))

    async def send(self) -> bool:
        """Send the next request and note its outcome; returns whether it was answered 200."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(_PATIENCE):
                status = await self._exchange(next(self._requests))
        except TimeoutError:
            self.outcomes.statuses[HUNG] += 1
        except (OSError, EOFError):
            self.outcomes.statuses[BROKEN] += 1
        else:
            self.outcomes.statuses[status] += 1
            if status == 200:
                self.outcomes.accepted.append(time.perf_counter() - started)
                return True
        return False

    async def close(self) -> None:
        """Close the connections."""
        for connection in self._idle:
            connection.close()

    async def _exchange(self, request: bytes) -> int:
        connection = self._find_idle()
        if connection is None:
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_connection(_Connection, "127.0.0.1", self._port)
        status = await connection.exchange(request)
        if connection.usable:
            self._idle.append(connection)
        else:
            connection.close()
        return status

    def _find_idle(self) -> _Connection | None:
        while self._idle:
            connection = self._idle.popleft()
            if connection.usable:
                return connection
        return None


def request(path: str, body: bytes) -> bytes:
    """A whole POST of JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
