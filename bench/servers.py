"""Servers in processes of their own, of foretell and others, and load for them."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path

import httpx
import psutil

from bench.harness import ROOT
from tests.support.process import free_port

_LOAD_SCRIPT = Path(__file__).with_name("load.lua")
_PATIENCE = 120.0
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
_JSON = {"Content-Type": "application/json"}


@contextmanager
def running(
    command: Sequence[object], ready: str, folder: Path, environment: Mapping[str, str]
) -> Iterator[psutil.Process]:
    """Run a server in a folder until the end of the block.

    Args:
        command: Starts it.
        ready: A URL that answers 200 once it serves.
        folder: Made for it and its log.
        environment: Added to this process's.

    Raises:
        RuntimeError: it ended, or was not ready in time; the message has the end of its log.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(part) for part in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **environment},
            cwd=folder,
            start_new_session=True,
        )
    try:
        end = time.monotonic() + _PATIENCE
        while not _answers(ready):
            if process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"it did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield psutil.Process(process.pid)
    finally:
        with suppress(psutil.Error):
            parent = psutil.Process(process.pid)
            family = [parent, *parent.children(recursive=True)]
            process.send_signal(signal.SIGTERM)
            for one in psutil.wait_procs(family, timeout=10)[1]:
                with suppress(psutil.Error):
                    one.kill()
        process.wait()


def _answers(url: str) -> bool:
    with suppress(httpx.HTTPError):
        return httpx.get(url, timeout=2).status_code == httpx.codes.OK
    return False


@contextmanager
def ours(
    models: Path,
    folder: Path,
    *,
    python: str | Path = sys.executable,
    module: str = "foretell",
    tree: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    **settings: object,
) -> Iterator[tuple[psutil.Process, int]]:
    """A server of foretell, on a CPU by default; its process and port."""
    port = free_port()
    own = {"device": "cpu", "log_level": "warning", "models": models, "port": port, **settings}
    variables = {f"FORETELL_{name.upper()}": str(value) for name, value in own.items()}
    variables = {"PYTHONPATH": str(tree), **(environment or {}), **variables}
    ready = f"http://127.0.0.1:{port}/readyz"
    with running([python, "-m", module, "serve"], ready, folder, variables) as process:
        yield process, port


def memory(process: psutil.Process) -> int:
    """MiB of proportional set size, of a process and its descendants."""
    total = 0
    for one in (process, *process.children(recursive=True)):
        with suppress(psutil.Error):
            total += one.memory_full_info().pss
    return round(total / 2**20)


def resident(*processes: psutil.Process) -> int:
    """Resident MiB of processes."""
    return round(sum(one.memory_info().rss for one in processes) / 2**20)


def roles(process: psutil.Process) -> tuple[list[psutil.Process], psutil.Process | None]:
    """The living HTTP workers of a server of foretell, and its engine."""
    workers, engines = [], []
    for each in process.children():
        with suppress(psutil.NoSuchProcess):
            if "spawn_main" in " ".join(each.cmdline()):
                loaded = any("onnxruntime" in one.path for one in each.memory_maps())
                (engines if loaded else workers).append(each)
    return workers, engines[0] if len(engines) == 1 else None


def metrics(port: int, *names: str) -> list[float]:
    """The sums of metrics over their labels; a name may have labels that it must have."""
    lines = httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text.splitlines()
    found = []
    for name in names:
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        found.append(sum(float(value) for sample, value in samples if re.match(name, sample)))
    return found


@dataclass(frozen=True)
class Load:
    """A load by wrk.

    Attributes:
        rate: Requests answered with success a second.
        p50: Median latency in seconds.
        p99: Its 99th percentile.
        failed: Requests that got no answer or another status than 2xx or 3xx.
    """

    rate: float
    p50: float
    p99: float
    failed: int


def middle(turns: Iterable[Load]) -> Load:
    """The turn whose rate is the median."""
    ranked = sorted(turns, key=lambda turn: turn.rate)
    return ranked[len(ranked) // 2]


def load(
    url: str, body: Path, connections: int, seconds: int, headers: Mapping[str, str] = _JSON
) -> Load:
    """POST a file repeatedly, one request at a time on each connection.

    Raises:
        RuntimeError: wrk failed.
    """
    command = ["wrk", "--threads", "1", "--connections", str(connections), "--latency"]
    command += ["--duration", f"{seconds}s", "--timeout", "30s", "--script", str(_LOAD_SCRIPT)]
    command += [url, "--", str(body), *chain(*headers.items())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode:
        raise RuntimeError(f"wrk: {done.stderr or done.stdout}")
    found = json.loads(done.stdout.splitlines()[-1])
    good = max(found["requests"] - found["failed"], 0)
    return Load(good / found["seconds"], found["p50"], found["p99"], found["failed"])


def request(path: str, body: object) -> bytes:
    """The bytes of a POST of JSON."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


@dataclass
class Client:
    """Persistent connections to a server, which send requests in turn.

    Attributes:
        port: Port on the loopback interface.
        requests: Whole HTTP/1.1 requests.
        pause: Seconds from an answer that is no 200 to the next request, for `keep_busy`.
        statuses: Number of requests by status; those without an answer by the reason.
        seconds: Duration of each request that was answered with 200.
    """

    port: int
    requests: Sequence[bytes]
    pause: float = 0.0
    statuses: Counter[int | str] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._next = itertools.cycle(self.requests)
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def keep_busy(self, connections: int, more: Callable[[], bool]) -> None:
        """Keep one request in flight on each connection, as long as `more()`."""

        async def loop() -> None:
            while more():
                if not await self.send():
                    await asyncio.sleep(self.pause)

        await asyncio.gather(*(loop() for _ in range(connections)))

    async def offer(self, rate: float, seconds: float, most: int) -> None:
        """Send this number of requests a second without waiting; at most `most` are in flight."""
        tasks: set[asyncio.Task[bool]] = set()
        began, sent = time.perf_counter(), 0
        while (elapsed := time.perf_counter() - began) < seconds:
            while sent < elapsed * rate:
                sent += 1
                if len(tasks) < most:
                    task = asyncio.create_task(self.send())
                    tasks.add(task)
                    task.add_done_callback(tasks.discard)
            await asyncio.sleep(0.001)
        await asyncio.gather(*tasks)

    async def send(self) -> bool:
        """Send the next request; returns whether it was answered 200."""
        began = time.perf_counter()
        status: int | str
        try:
            async with asyncio.timeout(60):
                status = await self._exchange(next(self._next))
        except TimeoutError:
            status = "no answer"
        except (OSError, EOFError):
            status = "connection lost"
        self.statuses[status] += 1
        if status == httpx.codes.OK:
            self.seconds.append(time.perf_counter() - began)
        return status == httpx.codes.OK

    async def _exchange(self, content: bytes) -> int:
        while self._idle:
            reader, writer = self._idle.pop()
            if not reader.at_eof():
                break
            writer.close()
        else:
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        kept = False
        try:
            writer.write(content)
            head = await reader.readuntil(b"\r\n\r\n")
            length = _LENGTH.search(head)
            await reader.readexactly(int(length[1]) if length else 0)
            kept = b"connection: close" not in head.lower()
        finally:
            if kept:
                self._idle.append((reader, writer))
            else:
                writer.close()
        return int(head.split(b" ", 2)[1])

    def close(self) -> None:
        """Close the connections."""
        for _, writer in self._idle:
            writer.close()

    @property
    def answers(self) -> str:
        """Number of answers by status."""
        return ", ".join(f"{count:,} of {status}" for status, count in self.statuses.most_common())
