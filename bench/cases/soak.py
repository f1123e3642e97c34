"""Good, refused, cut-off and hostile requests: no memory is lost, and no answer is a 5xx."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

from bench.harness import Result, Run
from bench.servers import memory
from bench.servers import ours as serve
from tests.support.refusals import ADMIN_KEY, LARGE, SMALL, bomb, refusals, write_models

_MOST_GROWTH = 64
_CALLERS = 16
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
    """The answers.

    Attributes:
        statuses: Number of answers by kind of request and status; 0 without an answer.
        wrong: The first bytes of answers that no request may get.
    """

    statuses: Counter[tuple[str, int]] = field(default_factory=Counter)
    wrong: list[bytes] = field(default_factory=list)

    def add(self, kind: str, answer: bytes) -> None:
        """Count an answer."""
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


@cache
def _good() -> list[bytes]:
    posts = [_request("POST", path, json.dumps(body).encode()) for path, body in _POSTS.items()]
    return [_request("GET", path) for path in _GETS] + posts


def draw(rng: random.Random) -> tuple[str, bytes, Callable[[int], int]]:
    """A kind of request, its bytes, and a function from the remaining bytes to the next piece."""
    [kind] = rng.choices(("good", "refused", "cut off", "hostile"), (6, 6, 2, 1))
    if kind == "good":
        return kind, rng.choice(_good()), _all
    request = rng.choice(_refused())
    if kind == "refused":
        return kind, request, _all
    if kind == "cut off":
        return kind, request[: rng.randrange(len(request))], _all
    length = b"POST /forecast HTTP/1.1\r\nContent-Length: 9" + b"9" * 30 + b"\r\n\r\n"
    return kind, *rng.choice(
        [
            # Byte by byte, and then the rest.
            (request, lambda left: 1 if left > len(request) - 200 else left),
            (rng.randbytes(5000), _all),
            (b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 20_000, _all),
            (length, lambda _: 1),
            (rng.choice(_good()).replace(b"HTTP/1.1", b"HTTP/9.9"), lambda _: 1),
        ]
    )


def _all(left: int) -> int:
    return left


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
        return await reader.read() if wait else b""
    finally:
        writer.transport.abort()


async def _mix(port: int, seconds: float, seed: int) -> Outcome:
    outcome = Outcome()
    end = time.monotonic() + seconds

    async def call(rng: random.Random) -> None:
        while time.monotonic() < end:
            kind, request, size = draw(rng)
            answer = b""
            # The server may cut off what is not HTTP, and need not answer half a head.
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(60 if kind != "hostile" else 5):
                    answer = await _send(port, request, size, wait=kind != "cut off")
            outcome.add(kind, answer)

    async with asyncio.TaskGroup() as group:
        for caller in range(_CALLERS):
            group.create_task(call(random.Random(seed * _CALLERS + caller)))
    return outcome


def measure(run: Run) -> Result:
    """Send the mix for a minute, and then while memory is watched."""
    models = write_models(run.folder / "models")
    _refused()
    with serve(models, run.folder / "server", workers=2, admin_keys=ADMIN_KEY) as (process, port):
        found = []
        for seed, seconds in enumerate((run.pick(60, 1), run.duration(600, 2))):
            outcome = asyncio.run(_mix(port, seconds, seed))
            # Memory is returned after ten seconds without requests.
            time.sleep(run.pick(15, 0))
            found.append(memory(process))
    before, after = found
    rows = [
        {"requests": kind, "status": str(status) if status else "none", "answers": count}
        for (kind, status), count in sorted(outcome.statuses.items())
    ]
    failures = [f"an answer: {answer!r}" for answer in outcome.wrong[:5]]
    if after - before > _MOST_GROWTH and not run.quick:
        failures.append(f"memory: {before} MiB before, {after} MiB after")
    sizes = [{"before, MiB": before, "after, MiB": after, "5xx": len(outcome.wrong)}]
    return Result({"answers": rows, "memory": sizes}, failures)
