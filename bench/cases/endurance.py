"""foretell in operation: a long mixed load, overload, a new version, and stops."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import uvloop

from bench.harness import Result, Row, Run
from bench.models import NAME, SERVED, SIZES, START, Subject, ours, prepare
from bench.servers import Client, load, request, resident, roles
from bench.servers import ours as serve
from tests.support.variants import TRANSFORMERS

# Small, large, and with a calendar.
_SIZES = (SIZES[0], SIZES[1], SIZES[4])
_QUICK = (SERVED[-1], SERVED[-1], TRANSFORMERS[0])
_ADMIN = "endurance"
_CONNECTIONS, _WORKERS = 64, 2
_MIXED = (1, 1, 1, 2, 8, 32)
# Windows that may wait; at the measured capacity they take the longest wait of the queue.
_QUEUE = 256
# Seconds from a refusal to the next request on its connection.
_AGAIN = 0.02
_PATIENCE = 60.0


@dataclass(frozen=True)
class Served:
    """A server of foretell, and the size of its load."""

    run: Run
    process: psutil.Process
    port: int
    busy: float

    def client(self, *requests: bytes, pause: float = 0.0) -> Client:
        return Client(self.port, requests, pause)

    @property
    def memory(self) -> int:
        return resident(self.process, *self.process.children(recursive=True))


def measure(run: Run) -> Result:
    """Run all parts, one after the other."""
    repository = run.folder / "repository"
    subjects = [
        prepare(size, run.folder / f"{NAME}-{number}", f"{NAME}-{number}", repository)
        for number, size in enumerate(run.pick(_SIZES, _QUICK))
    ]
    began = time.perf_counter()
    settings = {"max_queue": _QUEUE, "max_inputs": _QUEUE, "workers": _WORKERS}
    with serve(repository, run.folder / "server", admin_keys=_ADMIN, **settings) as (process, port):
        took = time.perf_counter() - began
        served = Served(run, process, port, run.duration(5, 0.5))
        rows: list[Row] = [{"what": "start", "ready after, s": took, "memory, MiB": served.memory}]
        small = request("/forecast", ours(subjects[0].windows[:1], subjects[0].name))
        for part, arguments in (
            (mixed, (_mix(subjects),)),
            (overload, (subjects[1],)),
            (roll, (small, subjects[0].name, repository)),
            (kill, (small, "HTTP worker")),
            (kill, (small, "engine")),
            (terminate, (small,)),
        ):
            rows.append(part(served, *arguments))  # type: ignore[operator]
            print(rows[-1], flush=True)
    return Result({"endurance": rows})


def _mix(subjects: list[Subject]) -> list[bytes]:
    """Requests of all sizes to all models, the last of which has a calendar."""
    found = []
    for subject in subjects:
        for count in _MIXED:
            body = ours(subject.windows[:count], subject.name)
            for entry in body["inputs"] if subject is subjects[-1] else ():
                entry["start_timestamp"] = START
            found.append(request("/forecast", body))
    return found


def mixed(served: Served, requests: list[bytes]) -> Row:
    """Many requests of all sizes and models."""
    warm, every = served.run.pick((5_000, 100_000), (60, 200))

    async def all_of_them() -> tuple[Client, int]:
        client = served.client(*requests)
        await client.keep_busy(8, lambda: client.statuses.total() < warm)
        before = served.memory
        await client.keep_busy(8, lambda: client.statuses.total() < every)
        client.close()
        return client, before

    client, before = uvloop.run(all_of_them())
    return {
        "what": f"requests of 1 to {max(_MIXED)} series to three models",
        "answers": client.answers,
        "memory, MiB": f"{before} after {warm:,}, {served.memory} at the end",
    }


def overload(served: Served, subject: Subject) -> Row:
    """Four times the capacity."""
    body = ours(subject.windows[:1], subject.name)
    file = served.run.folder / "one.json"
    file.write_text(json.dumps(body))
    url = f"http://127.0.0.1:{served.port}/forecast"
    capacity = load(url, file, _CONNECTIONS, max(1, round(served.busy))).rate
    seconds, before = 12 * served.busy, served.memory

    async def offer() -> Client:
        client = served.client(request("/forecast", body))
        await client.offer(4 * capacity, seconds, most=4 * _QUEUE)
        client.close()
        return client

    client = uvloop.run(offer())
    time.sleep(served.busy)
    ranked = sorted(client.seconds)
    p99 = ranked[int(0.99 * len(ranked))]
    return {
        "what": f"four times the capacity of {capacity:.0f}/s for {seconds:.0f} s",
        "answers": client.answers,
        "memory, MiB": f"{before} before, {served.memory} after",
        "p99 of the accepted, s": p99,
        "of what the queue takes at their pace": p99 * len(ranked) / seconds / _QUEUE,
    }


def roll(served: Served, content: bytes, name: str, repository: Path) -> Row:
    """A new version under full load."""
    staged = repository / name / ".2"
    shutil.copytree(repository / name / "1", staged)
    manifest = staged / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": "2"}))
    staged.rename(repository / name / "2")

    async def load_it(http: httpx.AsyncClient) -> str:
        loaded = await http.post(f"/v2/repository/models/{name}/load")
        loaded.raise_for_status()
        await asyncio.sleep(served.busy / 2)
        cards = (await http.get("/models")).json()
        return next(card["version"] for card in cards if card["name"] == name)

    client, version = uvloop.run(_meanwhile(served, content, load_it))
    return {"what": f"version {version} is loaded under load", "answers": client.answers}


def kill(served: Served, content: bytes, role: str) -> Row:
    """The end of an HTTP worker or of the engine under full load."""

    async def kill_it(http: httpx.AsyncClient) -> float:
        workers, engine = roles(served.process)
        victim = workers[0] if role != "engine" else engine
        assert victim is not None
        victim.kill()
        began = time.perf_counter()

        async def whole() -> bool:
            with suppress(httpx.TransportError):
                answer = await http.get("/readyz")
                running = answer.json()["workers"]["running"]
                return answer.status_code == httpx.codes.OK and bool(running == _WORKERS)
            return False

        while time.perf_counter() < began + _PATIENCE:
            workers, engine = roles(served.process)
            alive = {each.pid for each in (*workers, engine) if each is not None}
            if victim.pid not in alive and len(alive) > _WORKERS and await whole():
                return time.perf_counter() - began
            await asyncio.sleep(0.02)
        raise TimeoutError(f"no other {role} after {_PATIENCE:.0f} s")

    client, seconds = uvloop.run(_meanwhile(served, content, kill_it))
    return {
        "what": f"the {role} is killed under load",
        "answers": client.answers,
        "ready after, s": seconds,
    }


async def _meanwhile(
    served: Served, content: bytes, act: Callable[..., object]
) -> tuple[Client, object]:
    """Keep all connections busy before, during and after an action."""
    client, working = served.client(content, pause=_AGAIN), True
    sending = asyncio.create_task(client.keep_busy(_CONNECTIONS, lambda: working))
    await asyncio.sleep(served.busy)
    base, key = f"http://127.0.0.1:{served.port}", {"X-API-Key": _ADMIN}
    async with httpx.AsyncClient(base_url=base, headers=key, timeout=_PATIENCE) as http:
        found = await act(http)  # type: ignore[misc]
    await asyncio.sleep(served.busy)
    working = False
    await sending
    client.close()
    return client, found


def terminate(served: Served, content: bytes) -> Row:
    """SIGTERM under full load."""

    async def stop() -> tuple[Client, int]:
        client, working = served.client(content), True
        sending = asyncio.create_task(client.keep_busy(_CONNECTIONS, lambda: working))
        await asyncio.sleep(served.busy)
        before = client.statuses.total()
        served.process.send_signal(signal.SIGTERM)
        # Requests that wait are answered; no more are sent.
        working = False
        await sending
        client.close()
        return client, client.statuses.total() - before

    client, late = uvloop.run(stop())
    status = served.process.wait(timeout=_PATIENCE)
    return {
        "what": f"SIGTERM under load, exit status {status}",
        "answers": f"{client.answers}, {late} of them after the signal",
    }
