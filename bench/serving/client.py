"""A client that keeps sending at its own pace, whatever the server does."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

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


class Client:
    """Persistent connections to one server.

    Args:
        port: On the loopback interface.
        requests: Whole HTTP/1.1 requests; they are sent in turn.
    """

    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self.outcomes = Outcomes()
        self._port = port
        self._requests = itertools.cycle(requests)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def offer(self, rate: float, seconds: float, most: int) -> None:
        """Send at a rate, without waiting for answers.

        Args:
            rate: Requests a second.
            seconds: How long.
            most: Requests on their way at any time; beyond it a turn is left out.
        """
        tasks: set[asyncio.Task[None]] = set()
        started = time.perf_counter()
        sent = 0
        while (elapsed := time.perf_counter() - started) < seconds:
            while sent < elapsed * rate:
                sent += 1
                if len(tasks) < most:
                    task = asyncio.create_task(self.send())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    async def keep_busy(self, connections: int, more: Callable[[], bool]) -> None:
        """Have a request on its way on each connection, as long as `more()`."""

        async def loop() -> None:
            while more():
                await self.send()

        await asyncio.gather(*(loop() for _ in range(connections)))

    async def send(self) -> None:
        """Send the next request and note its outcome."""
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

    async def close(self) -> None:
        """Close the connections."""
        for _, writer in self._idle:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()

    async def _exchange(self, request: bytes) -> int:
        if self._idle:
            reader, writer = self._idle.pop()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            await reader.readexactly(length)
        except BaseException:
            writer.close()
            raise
        if b"connection: close" in head:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return int(head.split(b" ", 2)[1])


def request(path: str, body: bytes) -> bytes:
    """A whole POST of JSON."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
