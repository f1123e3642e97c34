"""Two HTTP workers before a GPU of a given speed: `python -m bench.gpu.workers`; two minutes.

On the stand-in, under load from wrk, which shares the CPUs. Writes its part of docs/gpu.md.
`--before` loads our server at earlier commits in turns with it, and prints the part instead. They
run with the libraries of the stand-in, not of their own pins.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import psutil

from bench.gpu.report import PAGE
from bench.page import machine, table, write_part
from bench.server import in_turns, middle
from bench.serving import before, bodies
from bench.serving.contenders import OURS, ROOT
from bench.serving.load import Load, load
from bench.serving.ports import free_port
from bench.serving.process import engine_of, roles_of, running
from bench.serving.subjects import NAME, SUBJECTS, Subject, prepare
from bench.stand_in.machine import Machine, UnavailableError, build

_WORKERS = 2
_CONNECTIONS, _REPLAY_US = 64, 1000
_BINARY_CONNECTIONS, _BINARY_REPLAY_US, _BINARY_WINDOWS = 32, 300, (8, 128)
# Windows that may wait: all that the connections send at a time.
_QUEUE = _BINARY_CONNECTIONS * max(_BINARY_WINDOWS)
_SECONDS = 12
_WINDOWS = re.compile(r"^foretell_batch_windows_(sum|count)\{[^}]*\} (\S+)$", re.MULTILINE)
_HEAD = (
    "server",
    "requests/s",
    "p50, ms",
    "windows a batch",
    "engine, µs",
    "an HTTP worker, MiB",
    "the engine, MiB",
    *(f"{windows} windows: windows/s" for windows in _BINARY_WINDOWS),
    "failed",
)
_TEXT = """\
## HTTP workers before a GPU

`make gpu-workers` wrote this part: a server with {workers} HTTP workers on the stand-in, and wrk,
which shares the CPUs. {machine}

First {connections} connections with a window of JSON in each request, and a GPU that takes
{replay:,} µs for a replay: how many windows there are in a batch on average, and how long the
engine is busy with a request, all its threads together; and what the largest HTTP worker and the
engine have resident afterwards. Then {binary} connections with tensors of
the Open Inference Protocol in binary, several windows in each request, and {binary_replay} µs a
replay.

{rows}"""


@dataclass
class Server:
    """One that runs, and what was measured of it.

    Attributes:
        name: What the report calls it.
        url: Where it answers.
        process: It.
        json: A window in JSON a request.
        batch: Windows in a batch then.
        engine: Microseconds of the engine a request then; None without one.
        memory: Bytes of the largest HTTP worker then, and of the engine, 0 without one.
        binary: Windows a second, by windows a request.
        failed: Requests without a forecast.
    """

    name: str
    url: str
    process: psutil.Process
    json: Load | None = None
    batch: float = 0.0
    engine: float | None = None
    memory: tuple[int, int] = 0, 0
    binary: dict[int, float] = field(default_factory=dict)
    failed: int = 0


@contextmanager
def start(
    stand_in: Machine, trees: Mapping[str, tuple[Path, Path]], replay_us: int, folder: Path
) -> Iterator[list[Server]]:
    """Start servers before a GPU of their own that takes so long.

    Args:
        stand_in: Has the GPUs.
        trees: Code and repository by name.
        replay_us: Of a batch of any size.
        folder: For logs.
    """
    with ExitStack() as stack:
        servers = []
        for number, (name, (tree, repository)) in enumerate(trees.items()):
            port = free_port()
            command = [stand_in.python, "-m", "bench.stand_in.serve", "serve"]
            command += ["--models", str(repository), "--port", str(port)]
            environment = stand_in.environment(graph_us=replay_us) | {
                "PYTHONPATH": str(tree),
                "FORETELL_DEVICE": "cuda",
                "FORETELL_WORKERS": str(_WORKERS),
                "FORETELL_LOG_LEVEL": "warning",
                "FORETELL_MAX_QUEUE": str(_QUEUE),
            }
            url, log = f"http://127.0.0.1:{port}", folder / f"{replay_us}-{number}.log"
            started = running(command, f"{url}/readyz", log, environment, tree)
            servers.append(Server(name, url, stack.enter_context(started)))
        yield servers


def measure_json(servers: Sequence[Server], subject: Subject, folder: Path, seconds: int) -> None:
    """A window a request."""
    body = subject.write_body(bodies.ours, folder / "one.json", 1)
    found = in_turns([partial(_observed, server, body) for server in servers], seconds)
    for server, turns in zip(servers, found, strict=True):
        server.json = middle([turn[0] for turn in turns])
        server.failed += server.json.failed
        windows, batches, busy = (sum(turn[1][at] for turn in turns) for at in range(3))
        server.batch = windows / batches if batches else 0.0
        server.engine = 1e6 * busy / windows if busy else None
        engine = engine_of(server.process)
        workers = [each for each in roles_of(server.process) if each != engine]
        server.memory = max(map(_resident, workers)), _resident(engine)


def _observed(server: Server, body: Path, seconds: int) -> tuple[Load, tuple[float, ...]]:
    """What wrk saw, and meanwhile windows, batches, and seconds of the engine's CPU."""
    engine = engine_of(server.process)
    first, began = _batches(server.url), _busy(engine)
    seen = load(f"{server.url}/forecast", body, _CONNECTIONS, seconds)
    last, ended = _batches(server.url), _busy(engine)
    windows, batches = (last[name] - first[name] for name in ("sum", "count"))
    return seen, (windows, batches, ended - began)


def _batches(url: str) -> dict[str, float]:
    """How many windows and batches there were so far."""
    found = dict.fromkeys(("sum", "count"), 0.0)
    for name, value in _WINDOWS.findall(httpx.get(f"{url}/metrics").text):
        found[name] += float(value)
    return found


def _busy(process: psutil.Process | None) -> float:
    return 0.0 if process is None else sum(process.cpu_times()[:2])


def _resident(process: psutil.Process | None) -> int:
    return 0 if process is None else int(process.memory_info().rss)


def measure_binary(servers: Sequence[Server], subject: Subject, folder: Path, seconds: int) -> None:
    """Several windows a request."""
    for windows in _BINARY_WINDOWS:
        path, headers = binary_request(subject, windows, folder)
        parts: list[Callable[[int], Load]] = [
            partial(
                load,
                f"{server.url}/v2/models/{NAME}/infer",
                path,
                _BINARY_CONNECTIONS,
                headers=headers,
            )
            for server in servers
        ]
        for server, turns in zip(servers, in_turns(parts, seconds), strict=True):
            seen = middle(turns)
            server.binary[windows] = windows * seen.rate
            server.failed += seen.failed


def binary_request(subject: Subject, windows: int, folder: Path) -> tuple[Path, dict[str, str]]:
    """The body of a request for so many windows, and its headers."""
    values = np.ascontiguousarray(subject.windows[:windows], np.float32)
    tensor = {
        "name": "history",
        "shape": values.shape,
        "datatype": "FP32",
        "parameters": {"binary_data_size": values.nbytes},
    }
    request = {"inputs": [tensor], "parameters": {"binary_data_output": True}}
    head = json.dumps(request).encode()
    path = folder / f"{windows}.bin"
    path.write_bytes(head + values.tobytes())
    return path, {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(head)),
    }


def _rows(jsons: Sequence[Server], binaries: Sequence[Server]) -> Iterator[tuple[str, ...]]:
    for one, other in zip(jsons, binaries, strict=True):
        assert one.json is not None
        yield (
            one.name,
            f"{one.json.rate:,.0f}",
            f"{one.json.p50 * 1e3:.1f}",
            f"{one.batch:.1f}",
            "" if one.engine is None else f"{one.engine:.0f}",
            *(f"{size / 2**20:.0f}" if size else "" for size in one.memory),
            *(f"{other.binary[windows]:,.0f}" for windows in _BINARY_WINDOWS),
            f"{one.failed + other.failed}",
        )


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu.workers", description=__doc__)
    parser.add_argument("--before", metavar="COMMIT", nargs="+", default=[])
    parser.add_argument("--seconds", type=int, default=_SECONDS, help="of each load")
    given = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    try:
        stand_in = build()
    except UnavailableError as error:
        raise SystemExit(f"gpu-workers: {error}") from None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = SUBJECTS[0]
        subject = prepare(size, folder / "subject", folder / "repository", NAME)
        trees = {OURS: (ROOT, subject.repository)}
        for commit in given.before:
            tree = before.checkout(commit, ROOT / ".bench")
            trees[f"{OURS} {commit}"] = tree, before.prepare(tree, size)
        with start(stand_in, trees, _REPLAY_US, folder) as jsons:
            measure_json(jsons, subject, folder, given.seconds)
        with start(stand_in, trees, _BINARY_REPLAY_US, folder) as binaries:
            measure_binary(binaries, subject, folder, given.seconds)
    text = _TEXT.format(
        workers=_WORKERS,
        machine=machine("onnxruntime", "uvloop"),
        connections=_CONNECTIONS,
        replay=_REPLAY_US,
        binary=_BINARY_CONNECTIONS,
        binary_replay=_BINARY_REPLAY_US,
        rows=table(_HEAD, _rows(jsons, binaries)),
    )
    if given.before:
        print(text)
    else:
        write_part("workers", text, PAGE)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
