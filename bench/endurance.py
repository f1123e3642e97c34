"""What operators ask of our server: `python -m bench.endurance`.

Start-up, overload, a long mixed load, a new version, a killed HTTP worker, a killed engine and
SIGTERM under full load. Writes its part of docs/benchmarks.md; `--quick` does everything for a
moment and prints the part instead.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import psutil
import uvloop

from bench.page import PAGE, machine, write_part
from bench.serving import bodies
from bench.serving.client import Client, Outcomes, request
from bench.serving.contenders import ROOT
from bench.serving.load import load
from bench.serving.ports import free_port
from bench.serving.process import engine_of, roles_of, running
from bench.serving.subjects import NAME, Subject, prepare
from bench.sizes import SIZES

# Small, large, and with a calendar.
_SIZES = (SIZES[0], SIZES[1], SIZES[4])
_SLOW = 1
_ADMIN = "endurance"
_CONNECTIONS = 64
_WORKERS = 2
_HTTP_WORKER = "HTTP worker"
# Those who are refused try again so much later.
_AGAIN_SECONDS = 0.02
# For a process that was killed to be replaced.
_PATIENCE = 60.0
_MIXED_SERIES = (1, 1, 1, 2, 8, 32)
# Windows that may wait: the queue's promise is the time they take at the measured capacity.
_QUEUE = 256
_PAGE = """\
## Endurance

`make bench-endurance` wrote this part: our server with three models (PatchTST d 16 and d 128,
Autoformer d 64) and two HTTP workers, the client on the same CPUs. Memory is that of all its
processes.

{machine}

{lines}
"""


@dataclass
class Findings:
    """Sentences for the page."""

    lines: list[str] = field(default_factory=list)

    def add(self, line: str) -> None:
        """Note and show a finding."""
        self.lines.append(f"- {line}\n")
        print(line, flush=True)


@dataclass(frozen=True)
class Scale:
    """How much is done."""

    overload_seconds: float
    mixed_requests: int
    warm_requests: int
    busy_seconds: float


_FULL = Scale(overload_seconds=60, mixed_requests=100_000, warm_requests=5_000, busy_seconds=5)
_QUICK = Scale(overload_seconds=3, mixed_requests=600, warm_requests=200, busy_seconds=1)


@contextmanager
def _server(repository: Path, folder: Path) -> Iterator[tuple[psutil.Process, int, float]]:
    """Our server; yields its process, port and seconds from its start until it was ready."""
    port = free_port()
    command = [sys.executable, "-m", "foretell", "serve", "--models", str(repository)]
    environment = {
        "PYTHONPATH": str(ROOT),
        "FORETELL_DEVICE": "cpu",
        "FORETELL_ADMIN_KEYS": _ADMIN,
        "FORETELL_MAX_QUEUE": str(_QUEUE),
        "FORETELL_MAX_INPUTS": str(_QUEUE),
        "FORETELL_WORKERS": str(_WORKERS),
        "FORETELL_LOG_LEVEL": "warning",
    }
    started = time.perf_counter()
    ready = f"http://127.0.0.1:{port}/readyz"
    with running([*command, "--port", str(port)], ready, folder / "log", environment, folder) as it:
        yield it, port, time.perf_counter() - started


def _mixed(subjects: list[Subject]) -> list[bytes]:
    """Requests of all sizes to all models."""
    found = []
    for number, subject in enumerate(subjects):
        for count in _MIXED_SERIES:
            body = bodies.ours(subject.windows[:count])
            body["model"] = subject.name
            if number == len(subjects) - 1:
                for entry in body["inputs"]:
                    entry["start_timestamp"] = "2026-01-01T00:00:00"
            found.append(request("/forecast", json.dumps(body).encode()))
    return found


def _resident(process: psutil.Process) -> int:
    sizes = [each.memory_info().rss for each in (process, *process.children(recursive=True))]
    return int(sum(sizes))


def _shown(outcomes: Outcomes) -> str:
    return ", ".join(f"{count} of {status}" for status, count in outcomes.statuses.most_common())


def overload(port: int, process: psutil.Process, subject: Subject, scale: Scale) -> str:
    """Four times the capacity."""
    text = json.dumps({"model": subject.name, **bodies.ours(subject.windows[:1])})
    body = subject.checkpoint.parent / "one.json"
    body.write_text(text)
    url = f"http://127.0.0.1:{port}/forecast"
    load(url, body, _CONNECTIONS, 2)
    capacity = load(url, body, _CONNECTIONS, max(1, round(scale.busy_seconds))).rate
    before = _resident(process)

    async def run() -> Outcomes:
        client = Client(port, [request("/forecast", text.encode())])
        await client.offer(4 * capacity, scale.overload_seconds, most=4 * _QUEUE)
        await client.close()
        return client.outcomes

    outcomes = uvloop.run(run())
    time.sleep(min(5.0, scale.busy_seconds))
    growth = _resident(process) / before - 1
    pace = len(outcomes.accepted) / scale.overload_seconds
    p99 = outcomes.percentile(0.99)
    return (
        f"Four times the capacity ({capacity:.0f} requests/s, {subject.size.name}) for "
        f"{scale.overload_seconds:.0f} s: {_shown(outcomes)}; p99 of the accepted {p99:.2f} s, "
        f"{p99 * pace / _QUEUE:.2f} of what {_QUEUE} windows take at the pace of that minute "
        f"({pace:.0f}/s: this client and refusals take their part of the CPUs), "
        f"{p99 * capacity / _QUEUE:.2f} of what they take at full capacity; memory "
        f"{growth:+.1%} afterwards."
    )


def mixed(port: int, process: psutil.Process, requests: list[bytes], scale: Scale) -> str:
    """Many requests of all sizes and models."""

    async def run() -> tuple[Outcomes, int]:
        client = Client(port, requests)
        outcomes = client.outcomes
        await client.keep_busy(8, lambda: outcomes.count < scale.warm_requests)
        before = _resident(process)
        await client.keep_busy(8, lambda: outcomes.count < scale.mixed_requests)
        await client.close()
        return outcomes, before

    outcomes, before = uvloop.run(run())
    after = _resident(process)
    return (
        f"{outcomes.count} requests of 1 to {max(_MIXED_SERIES)} series to three models: "
        f"{_shown(outcomes)}; memory {before / 2**20:.0f} MiB after the first "
        f"{scale.warm_requests}, {after / 2**20:.0f} MiB at the end ({after / before - 1:+.1%})."
    )


def roll(port: int, subject: Subject, repository: Path, scale: Scale) -> str:
    """A new version under full load."""
    text = json.dumps({"model": subject.name, **bodies.ours(subject.windows[:1])}).encode()
    source, staged = repository / subject.name / "1", repository / subject.name / ".2"
    shutil.copytree(source, staged)
    manifest = staged / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"version": "2"}))
    staged.rename(repository / subject.name / "2")
    headers = {"Authorization": f"Bearer {_ADMIN}"}
    url = f"http://127.0.0.1:{port}"

    async def run() -> tuple[Outcomes, str]:
        client = Client(port, [request("/forecast", text)])
        end = time.perf_counter() + 2 * scale.busy_seconds
        busy = asyncio.create_task(
            client.keep_busy(_CONNECTIONS, lambda: time.perf_counter() < end)
        )
        await asyncio.sleep(scale.busy_seconds / 2)
        async with httpx.AsyncClient(base_url=url, headers=headers, timeout=60) as admin:
            loaded = await admin.post(f"/v2/repository/models/{subject.name}/load")
            loaded.raise_for_status()
            await asyncio.sleep(scale.busy_seconds / 2)
            cards = (await admin.get("/models")).json()
        await busy
        await client.close()
        return client.outcomes, next(c["version"] for c in cards if c["name"] == subject.name)

    outcomes, version = uvloop.run(run())
    return f"Version {version} rolled in with {_CONNECTIONS} connections busy: {_shown(outcomes)}."


def kill(port: int, process: psutil.Process, name: str, subject: Subject, scale: Scale) -> str:
    """The end of a process under full load.

    Args:
        port: Of the server.
        process: The server's first.
        name: Which of its processes is killed: "engine" or "HTTP worker".
        subject: Whom requests are for.
        scale: For how long.
    """
    text = json.dumps({"model": subject.name, **bodies.ours(subject.windows[:1])}).encode()
    url = f"http://127.0.0.1:{port}/readyz"

    async def run() -> tuple[Outcomes, float]:
        client = Client(port, [request("/forecast", text)], pause=_AGAIN_SECONDS)
        working = True
        busy = asyncio.create_task(client.keep_busy(_CONNECTIONS, lambda: working))
        await asyncio.sleep(scale.busy_seconds)
        victim = _of_role(process, name)
        victim.kill()
        killed = time.perf_counter()
        async with httpx.AsyncClient(timeout=_PATIENCE) as http, asyncio.timeout(_PATIENCE):

            async def whole() -> bool:
                with suppress(httpx.TransportError):
                    answer = await http.get(url)
                    running = answer.json()["workers"]["running"]
                    return answer.status_code == 200 and bool(running == _WORKERS)
                return False

            while victim.pid in {each.pid for each in roles_of(process)}:
                await asyncio.sleep(0.005)
            while len(roles_of(process)) <= _WORKERS or not await whole():
                await asyncio.sleep(0.02)
        seconds = time.perf_counter() - killed
        await asyncio.sleep(scale.busy_seconds)
        working = False
        await busy
        await client.close()
        return client.outcomes, seconds

    outcomes, seconds = uvloop.run(run())
    article = "An" if name == _HTTP_WORKER else "The"
    return (
        f"{article} {name} killed with {_CONNECTIONS} connections busy: {_shown(outcomes)}; whole "
        f"again after {seconds:.1f} s."
    )


def _of_role(process: psutil.Process, name: str) -> psutil.Process:
    """The engine of a server, or an HTTP worker."""
    engine = engine_of(process)
    for each in roles_of(process):
        if (each == engine) == (name == "engine"):
            return each
    raise RuntimeError(f"no {name} is running")


def terminate(port: int, process: psutil.Process, subject: Subject, scale: Scale) -> str:
    """SIGTERM under full load."""
    text = json.dumps({"model": subject.name, **bodies.ours(subject.windows[:1])}).encode()

    async def run() -> tuple[Outcomes, int]:
        client = Client(port, [request("/forecast", text)])
        end = time.perf_counter() + scale.busy_seconds
        stopping = False
        busy = asyncio.create_task(
            client.keep_busy(_CONNECTIONS, lambda: not stopping and time.perf_counter() < end + 10)
        )
        await asyncio.sleep(scale.busy_seconds)
        before = client.outcomes.count
        process.send_signal(signal.SIGTERM)
        # Whoever waits is answered; nobody sends anything more.
        stopping = True
        await busy
        await client.close()
        return client.outcomes, client.outcomes.count - before

    outcomes, late = uvloop.run(run())
    return (
        f"SIGTERM with {_CONNECTIONS} connections busy: {_shown(outcomes)}, {late} of them after "
        f"the signal; exit status {process.wait(timeout=60)}."
    )


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.endurance", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="for a moment")
    quick = parser.parse_args().quick
    scale = _QUICK if quick else _FULL
    findings = Findings()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        repository = folder / "repository"
        subjects = [
            prepare(size, folder / f"{NAME}-{number}", repository, f"{NAME}-{number}")
            for number, size in enumerate(_SIZES)
        ]
        with _server(repository, folder) as (process, port, seconds):
            findings.add(
                f"Ready {seconds:.1f} s after its start, with {_resident(process) / 2**20:.0f} MiB "
                "resident."
            )
            findings.add(mixed(port, process, _mixed(subjects), scale))
            findings.add(overload(port, process, subjects[_SLOW], scale))
            findings.add(roll(port, subjects[0], repository, scale))
            findings.add(kill(port, process, _HTTP_WORKER, subjects[0], scale))
            findings.add(kill(port, process, "engine", subjects[0], scale))
            findings.add(terminate(port, process, subjects[0], scale))
    text = _PAGE.format(machine=machine("onnxruntime"), lines="".join(findings.lines))
    if quick:
        print(text)
    else:
        write_part("endurance", text)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
