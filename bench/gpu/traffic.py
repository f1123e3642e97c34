"""A server on the GPUs under traffic: models that come and go, and how many requests it answers."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.gpu.check import windows_for
from bench.gpu.faults import FaultError
from bench.gpu.subjects import Subject
from bench.serving.client import Client, request
from bench.serving.contenders import ROOT
from bench.serving.ports import free_port
from bench.serving.process import running

# What a server is started with; tests put the stand-in's in its place.
SERVER: tuple[str, ...] = (sys.executable, "-m", "foretell")
_KEY = "gpu-check"
# As `foretell.service.cuda.gpu` says in the log.
_UNCAPTURED = "runs go without"
_TAIL = 1000
CONNECTIONS = 16
# A single process would be what is measured.
CLIENTS = 4
_START = "2024-01-01T00:00:00"


@contextmanager
def server(
    repository: Path,
    log: Path,
    **settings: object,
) -> Iterator[int]:
    """A server of a repository on the GPUs; its port.

    Raises:
        FaultError: it did not start, something failed within, or its log says that not every batch
            is captured; the message has the end of the log.
    """
    port = free_port()
    own = {"device": "cuda", "models": repository, "port": port, "admin_keys": _KEY, **settings}
    environment = {f"FORETELL_{name.upper()}": str(value) for name, value in own.items()}
    ready = f"http://127.0.0.1:{port}/readyz"
    try:
        with running([*SERVER, "serve"], ready, log, environment, ROOT):
            yield port
    except Exception as error:
        end = log.read_text(errors="replace")[-_TAIL:]
        raise FaultError(f"{error or type(error).__name__}; the server's log ends: {end}") from None
    for line in log.read_text(errors="replace").splitlines():
        if _UNCAPTURED in line:
            raise FaultError(line)


def body_of(subject: Subject) -> bytes:
    """A request for one window."""
    rows = windows_for(subject, 1).history[0].astype(float).round(3).tolist()
    series = {"series": rows, "start_timestamp": _START}
    return json.dumps({"model": subject.name, "inputs": [series]}).encode()


def come_and_go(subjects: Sequence[Subject], folder: Path) -> dict[str, int]:
    """Load, reload and unload all models but the first, which answers meanwhile.

    Returns:
        Answers of the first by status, or what became of the request.
    """
    first, *others = subjects
    repository = folder / "models"
    _place(first, repository)
    with server(repository, folder / "log") as port:
        client = Client(port, [request("/forecast", body_of(first))])
        return asyncio.run(_change(client, port, others, repository))


async def _change(
    client: Client, port: int, others: Sequence[Subject], repository: Path
) -> dict[str, int]:
    busy = True
    sending = asyncio.create_task(client.keep_busy(CONNECTIONS, lambda: busy))
    try:
        for _ in range(2):
            for other in others:
                _place(other, repository)
                await asyncio.to_thread(_control, port, other.name, "load")
            for other in others:
                await asyncio.to_thread(_control, port, other.name, "unload")
    finally:
        busy = False
        await sending
        await client.close()
    return {str(status): count for status, count in client.outcomes.statuses.items()}


def rate(
    subject: Subject,
    folder: Path,
    seconds: float,
    **settings: object,
) -> dict[str, Any]:
    """Requests a second of one window each, and their latency in milliseconds.

    Percentiles are those of the slowest of several clients.

    Raises:
        FaultError: see `server`.
    """
    repository = folder / "models"
    _place(subject, repository)
    body = folder / "body"
    body.write_bytes(body_of(subject))
    with server(repository, folder / "log", **settings) as port:
        command = [sys.executable, "-m", "bench.gpu.load", str(port), str(body), str(seconds)]
        clients = [
            subprocess.Popen([*command, str(CONNECTIONS)], cwd=ROOT, stdout=subprocess.PIPE)
            for _ in range(CLIENTS)
        ]
        try:
            said = [json.loads(one.communicate(timeout=seconds + 120)[0]) for one in clients]
        finally:
            for one in clients:
                one.kill()
        metrics = _get(f"http://127.0.0.1:{port}/metrics")
    windows, batches = (
        sum(
            float(line.rpartition(" ")[2])
            for line in metrics.splitlines()
            if line.startswith(f"foretell_batch_windows_{part}")
        )
        for part in ("sum", "count")
    )
    return {
        "rate": sum(one["rate"] for one in said),
        "p50": max(one["p50"] for one in said),
        "p99": max(one["p99"] for one in said),
        "failed": sum(one["failed"] for one in said),
        "windows": windows / max(1.0, batches),
    }


def _place(subject: Subject, repository: Path) -> None:
    target = repository / subject.name / subject.folder.name
    if not target.exists():
        shutil.copytree(subject.folder, target)


def _control(port: int, name: str, action: str) -> None:
    url = f"http://127.0.0.1:{port}/v2/repository/models/{name}/{action}"
    asked = urllib.request.Request(url, method="POST", headers={"X-API-Key": _KEY})
    with urllib.request.urlopen(asked, timeout=300) as answer:
        answer.read()


def _get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=60) as answer:
        text: str = answer.read().decode()
        return text
