"""Our server against others, under load: `python -m bench.server`.

Writes its part of docs/benchmarks.md. `--only` names the servers to run, `--quick` loads them for a
moment; with either the part is printed instead.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np
import onnxruntime

from bench.page import PAGE, write_part
from bench.serving import raw, report
from bench.serving.contenders import CONTENDERS, OURS, Contender
from bench.serving.load import load
from bench.serving.ports import free_port
from bench.serving.process import memory, running
from bench.serving.result import CONNECTIONS, LARGE, Raw, Result, Served
from bench.serving.subjects import NAME, SUBJECTS, Subject, prepare
from service.runtime import Runtime

_ENVIRONMENTS = Path(__file__).parent.parent / ".bench"
_TOLERANCE = 1e-3
_SECONDS, _QUICK_SECONDS = 6, 2


def measure_raw(subject: Subject, runtime: Runtime, seconds: float) -> Raw:
    """onnxruntime without a server."""
    session = runtime.open(subject.bundle)
    one, many = ({"history": subject.windows[:count]} for count in (1, 32))
    session.run(one)
    return Raw(
        rate=raw.throughput(session.run, one, seconds),
        large_rate=raw.throughput(session.run, many, seconds),
        latency=raw.latency(session.run, one, seconds / 4),
    )


def measure(contender: Contender, subject: Subject, folder: Path, seconds: int) -> Served:
    """Start a server, check its answer, and load it.

    Raises:
        RuntimeError: it cannot be installed or started, or its forecast is wrong.
    """
    python = contender.install(_ENVIRONMENTS)
    folder.mkdir(parents=True)
    body = subject.write_body(contender.body, folder / "body.json", 1)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = contender.command(python, subject.served(contender.serves), port)
    with running(
        command,
        url + contender.ready,
        folder / "log",
        contender.environment(python),
        folder,
    ) as process:
        _check(contender, subject, url + contender.path, body)
        served = Served()
        load(url + contender.path, body, CONNECTIONS[-1], max(1, seconds // 4))
        for connections in CONNECTIONS:
            served.loads[connections] = load(url + contender.path, body, connections, seconds)
            print(f"  {contender.name}, {connections}: {served.loads[connections]}", flush=True)
        served.memory = memory(process)
        if contender.name == OURS:
            large = subject.write_body(contender.body, folder / "large.json", LARGE)
            served.large_rate = LARGE * load(url + contender.path, large, 1, seconds).rate
    return served


def _check(contender: Contender, subject: Subject, url: str, body: Path) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(url, content=body.read_bytes(), headers=headers, timeout=30)
    if answer.status_code != httpx.codes.OK:
        raise RuntimeError(f"it answers {answer.status_code}: {answer.text[:200]}")
    forecast = np.asarray(contender.answer(answer.json()), np.float32)
    error = float(np.abs(forecast - subject.forecast).max())
    if not error <= _TOLERANCE:
        raise RuntimeError(f"its forecast differs from torch's by {error:.2g}")


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.server", description=__doc__)
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    parser.add_argument("--quick", action="store_true", help="for a moment")
    arguments = parser.parse_args()
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    onnxruntime.set_default_logger_severity(3)
    seconds = _QUICK_SECONDS if arguments.quick else _SECONDS
    runtime = Runtime("cpu")
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        for number, size in enumerate(SUBJECTS):
            print(size.name, flush=True)
            folder = Path(name) / str(number)
            subject = prepare(size, folder, folder / "repository", NAME)
            result = Result(size.name, measure_raw(subject, runtime, seconds))
            print(f"  {result.raw}", flush=True)
            for contender in CONTENDERS:
                if contender.name not in arguments.only:
                    continue
                try:
                    own = folder / contender.name.replace(" ", "-")
                    result.served[contender.name] = measure(contender, subject, own, seconds)
                except (RuntimeError, OSError, httpx.HTTPError) as error:
                    result.skipped[contender.name] = str(error)
                    print(f"  {contender.name}: {error}", flush=True)
                # What the last one left running at its end should not slow down the next.
                time.sleep(1)
            results.append(result)
    text = report.page(results)
    if arguments.quick or arguments.only != names:
        print(text)
    else:
        write_part("servers", text)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
