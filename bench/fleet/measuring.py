"""Real servers whose devices take a given time, under load from this process."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import uvloop

from bench.fleet.balancing import Choice
from bench.fleet.hosts import Device
from bench.fleet.outcome import Outcome
from bench.fleet.seen import Seen
from bench.fleet.slow import BASE, EACH
from bench.serving.client import Client, request
from bench.serving.contenders import ROOT
from bench.serving.ports import free_port
from bench.serving.process import running
from tests.support.bundles import Spec, write_bundle

SPEC = Spec(context=96, horizon=24)
PATH = "/forecast"


@dataclass(frozen=True)
class Measured:
    """What servers did with requests.

    Attributes:
        sent: When each request was sent, in seconds from the first.
        seen: What came of them.
        run: Seconds of a run, on average.
        cpu: Seconds of the servers' CPUs for each request that was answered.
    """

    sent: list[float]
    seen: Seen
    run: float
    cpu: float


class Servers:
    """Servers of one process each, and as many connections to them as it takes.

    Args:
        ports: Where they listen.
        processes: They themselves.
    """

    def __init__(self, ports: Sequence[int], processes: Sequence[psutil.Process]) -> None:
        self._ports = ports
        self._processes = processes

    def offer(self, times: Sequence[float], choose: Choice) -> Measured:
        """Send requests at these times, whatever comes back.

        Raises:
            RuntimeError: one was neither answered nor refused for lack of room.
        """
        before = self._counts()
        outcome, sent = uvloop.run(_offer(self._ports, times, choose))
        runs, windows, seconds, cpu = (
            now - then for now, then in zip(self._counts(), before, strict=True)
        )
        return Measured(
            sent, Seen.of(outcome, windows / runs), seconds / runs, cpu / len(outcome.seconds)
        )

    def exchanged(self) -> int:
        """Bytes of a request and its answer, without what lies below HTTP."""
        answer = httpx.post(f"http://127.0.0.1:{self._ports[0]}{PATH}", content=body())
        head = sum(len(name) + len(value) + 4 for name, value in answer.headers.raw)
        return len(request(PATH, body())) + head + len(answer.content)

    def _counts(self) -> tuple[float, float, float, float]:
        """Runs, their windows and seconds, and the seconds of CPUs so far, of all servers."""
        texts = [httpx.get(f"http://127.0.0.1:{port}/metrics").text for port in self._ports]
        names = ("batch_windows_count", "batch_windows_sum", r'stage_seconds_sum(?=.*stage="run")')
        runs, windows, seconds = (
            sum(
                float(value)
                for text in texts
                for value in re.findall(rf"^foretell_{name}.* (\S+)$", text, re.MULTILINE)
            )
            for name in names
        )
        # What has ended is no part of it: a server of one process starts none.
        times = [process.cpu_times() for process in self._processes]
        return runs, windows, seconds, sum(one.user + one.system for one in times)


def body() -> bytes:
    """A request of one window."""
    series = [round(100 + step % 24 + 0.25 * step % 7, 3) for step in range(SPEC.context)]
    return json.dumps({"model": SPEC.name, "inputs": [{"series": series}]}).encode()


@contextmanager
def servers(device: Device, count: int, queue: int, folder: Path) -> Iterator[Servers]:
    """Start servers with one device each, until the end of the block.

    Args:
        device: What each run takes.
        count: How many servers.
        queue: Most windows that wait at each.
        folder: For their bundle and logs.
    """
    write_bundle(folder / "models", SPEC)
    environment = {
        "PYTHONPATH": str(ROOT),
        BASE: str(device.base),
        EACH: str(device.each),
        "FORETELL_MODELS": str(folder / "models"),
        "FORETELL_DEVICE": "cpu",
        "FORETELL_THREADS": "1",
        "FORETELL_MAX_BATCH": str(device.batch),
        "FORETELL_MAX_QUEUE": str(queue),
        "FORETELL_MAX_INPUTS": "1",
        # Who is refused is to be refused by the queue.
        "FORETELL_MAX_CONNECTIONS": "8192",
        "FORETELL_LOG_LEVEL": "warning",
    }
    with ExitStack() as stack:
        ports, processes = [], []
        for index in range(count):
            ports.append(free_port())
            command = [sys.executable, "-m", "bench.fleet.slow", "serve", "--port", str(ports[-1])]
            ready = f"http://127.0.0.1:{ports[-1]}/readyz"
            log = folder / f"log-{index}"
            processes.append(stack.enter_context(running(command, ready, log, environment, ROOT)))
        yield Servers(ports, processes)


async def _offer(
    ports: Sequence[int], times: Sequence[float], choose: Choice
) -> tuple[Outcome, list[float]]:
    clients = [Client(port, [request(PATH, body())]) for port in ports]
    loads = [0] * len(clients)
    sent = []

    async def send(index: int) -> None:
        await clients[index].send()
        loads[index] -= 1

    async with asyncio.TaskGroup() as group:
        began = time.perf_counter()
        for planned in times:
            # A loop that is late lets others go on, too.
            await asyncio.sleep(max(0.0, planned - (time.perf_counter() - began)))
            sent.append(time.perf_counter() - began)
            index = choose(loads)
            loads[index] += 1
            group.create_task(send(index))
    span = time.perf_counter() - began - sent[0]
    outcome = Outcome(span=span)
    for client in clients:
        await client.close()
        outcome.seconds += client.outcomes.accepted
        outcome.refused += client.outcomes.statuses.pop(429, 0)
        if set(client.outcomes.statuses) - {200}:
            raise RuntimeError(f"neither answered nor refused: {client.outcomes.statuses}")
    return outcome, sent
