"""A mix of good and bad requests for minutes: `python -m bench.soak` (`make bench-soak`).

A server with two HTTP workers gets good, refused, cut-off and hostile requests at every route, 16
at a time. Prints how many of each status came back, and memory before and after; ends with 1 if
memory grew by more than 64 MiB, or if an answer was a 5xx other than 503 with `Retry-After`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psutil

from bench.serving.ports import free_port
from bench.serving.process import memory, running
from tests.support.refusals import ADMIN_KEY, LARGE, SMALL, bomb, refusals, write_models

ROOT = Path(__file__).resolve().parent.parent
_MOST_GROWTH = 64 * 1024 * 1024
_CALLERS = 16
# The same mix, before memory is looked at for the first time.
_WARM_SECONDS = 60.0
# Memory of requests is given back after ten seconds without any.
_IDLE_SECONDS = 15.0
_ANSWER_SECONDS = 60.0
_GETS = (
    *("/", "/healthz", "/readyz", "/metrics", "/models", "/models/repeat", "/openapi.json"),
    *("/docs", "/v2", "/v2/health/ready", "/v2/models/repeat", "/v2/models/repeat/config"),
    *("/v2/models/stats", "/v1/timeseries/models", "/nixtla/v2/models", "/nowhere"),
)
_FORECAST = {"model": "repeat", "inputs": [{"series": [1.0] * 400}]}
_TENSOR = {"name": "history", "datatype": "FP32", "shape": [1, 8, 1], "data": [1.0] * 8}
_PANEL = {"series": {"y": [1.0] * 400, "sizes": [400]}, "freq": "h", "h": 2, "model": "repeat"}
_POSTS: dict[str, object] = {
    "/forecast": _FORECAST,
    "/v1/timeseries/forecast": _FORECAST,
    "/backtest": _FORECAST,
    "/v2/models/repeat/infer": {"inputs": [_TENSOR]},
    "/nixtla/v2/forecast": _PANEL,
    "/nixtla/v2/cross_validation": _PANEL | {"n_windows": 2},
}


@dataclass
class Outcome:
    """What came back.

    Attributes:
        statuses: How many answers there were of each kind of request and status; 0 for none.
        wrong: The first bytes of answers that no request may get.
    """

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[bytes] = field(default_factory=list)

    def add(self, kind: str, answer: bytes) -> None:
        """Counts an answer."""
        status = int(answer[9:12]) if answer.startswith(b"HTTP/1.1 ") else 0
        self.statuses[kind, status] += 1
        head = answer.partition(b"\r\n\r\n")[0].lower()
        if status >= 500 and not (status == 503 and b"\r\nretry-after:" in head):
            self.wrong.append(answer[:300])


def _request(method: str, path: str, body: bytes = b"") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: server\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


@cache
def _refused() -> list[bytes]:
    found = [*refusals(SMALL), *refusals(LARGE)]
    found += [bomb(route) for route in sorted({one.route for one in found})]
    return [one.request for one in found]


class Traffic:
    """Draws requests.

    Args:
        seed: The same seed draws the same requests.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._refused = _refused()
        self._good = [_request("GET", path) for path in _GETS]
        self._good += [_request("POST", path, json.dumps(b).encode()) for path, b in _POSTS.items()]

    def draw(self) -> tuple[str, bytes, Callable[[int], int]]:
        """A kind, the bytes that are sent, and the size of the next piece by how many are left."""
        kind = self._rng.choices(("good", "refused", "cut off", "hostile"), (6, 6, 2, 1))[0]
        if kind == "good":
            return kind, self._rng.choice(self._good), lambda left: left
        request = self._rng.choice(self._refused)
        if kind == "refused":
            return kind, request, lambda left: left
        if kind == "cut off":
            return kind, request[: self._rng.randrange(len(request))], lambda left: left
        return kind, *self._rng.choice(
            [
                # Byte by byte, and then the rest.
                (request, lambda left: 1 if left > len(request) - 200 else left),
                (self._rng.randbytes(5000), lambda left: left),
                (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, lambda left: left),
                (
                    b"POST /forecast HTTP/1.1\r\nContent-Length: 9" + b"9" * 30 + b"\r\n\r\n",
                    max_one,
                ),
                (self._rng.choice(self._good).replace(b"HTTP/1.1", b"HTTP/9.9"), max_one),
            ]
        )


def max_one(left: int) -> int:
    """A byte at a time."""
    return min(left, 1)


async def _send(port: int, request: bytes, size: Callable[[int], int], *, wait: bool) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        request = request.replace(b"Host: server", b"Host: server\r\nConnection: close", 1)
        sent = 0
        while sent < len(request):
            piece = size(len(request) - sent)
            writer.write(request[sent : sent + piece])
            await writer.drain()
            sent += piece
        if not wait:
            writer.transport.abort()
            return b""
        return await reader.read()
    finally:
        writer.transport.abort()


async def mix(port: int, seconds: float, seed: int) -> Outcome:
    """Sends the mix.

    Args:
        port: The server's.
        seconds: For how long.
        seed: Of what is drawn.
    """
    outcome = Outcome()
    end = time.monotonic() + seconds

    async def call(traffic: Traffic) -> None:
        while time.monotonic() < end:
            kind, request, size = traffic.draw()
            answer = b""
            # Whoever sends no HTTP may be cut off, and no answer may come to half a head.
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_ANSWER_SECONDS if kind != "hostile" else 5):
                    answer = await _send(port, request, size, wait=kind != "cut off")
            outcome.add(kind, answer)

    async with asyncio.TaskGroup() as group:
        for caller in range(_CALLERS):
            group.create_task(call(Traffic(seed * _CALLERS + caller)))
    return outcome


def _settled(server: psutil.Process) -> int:
    time.sleep(_IDLE_SECONDS)
    return memory(server)


def soak(seconds: float, warm_seconds: float = _WARM_SECONDS) -> tuple[Outcome, int, int]:
    """Runs a server with the mix.

    Args:
        seconds: For how long memory is observed.
        warm_seconds: For how long the mix runs before that.

    Returns:
        What came back; bytes of memory of all processes before and after.
    """
    port = free_port()
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        command = [sys.executable, "-m", "foretell", "serve", "--port", str(port)]
        environment = {
            "FORETELL_MODELS": str(write_models(folder / "models")),
            "FORETELL_WORKERS": "2",
            "FORETELL_DEVICE": "cpu",
            "FORETELL_ADMIN_KEYS": ADMIN_KEY,
            "FORETELL_LOG_LEVEL": "warning",
        }
        ready = f"http://127.0.0.1:{port}/readyz"
        _refused()
        with running(command, ready, folder / "log", environment, ROOT) as server:
            asyncio.run(mix(port, warm_seconds, seed=0))
            before = _settled(server)
            outcome = asyncio.run(mix(port, seconds, seed=1))
            return outcome, before, _settled(server)


def main() -> None:
    """Runs the soak and prints what was seen."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m bench.soak")
    parser.add_argument("--seconds", type=float, default=600)
    outcome, before, after = soak(parser.parse_args().seconds)
    for (kind, status), count in sorted(outcome.statuses.items()):
        print(f"{kind:9} {status or 'none':>4} {count:8,}")
    print(f"memory: {before / 2**20:.0f} MiB before, {after / 2**20:.0f} MiB after")
    for answer in outcome.wrong[:5]:
        print("wrong:", answer)
    sys.exit(bool(outcome.wrong) or after - before > _MOST_GROWTH)


if __name__ == "__main__":
    main()
