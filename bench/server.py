"""Our server against others, under load: `python -m bench.server`.

Writes its part of docs/benchmarks.md. `--only` names the servers to run, `--quick` loads them for a
moment; with either the part is printed instead. `--before` takes our server at an earlier commit as
a contender.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from statistics import median

import httpx
import numpy as np
import onnxruntime

from bench.page import PAGE, write_part
from bench.serving import before, raw, report
from bench.serving.contenders import CONTENDERS, OURS, ROOT, Contender
from bench.serving.load import Load, load
from bench.serving.ports import free_port
from bench.serving.process import memory, running
from bench.serving.result import CONNECTIONS, LARGE, Raw, Result, Served
from bench.serving.subjects import NAME, SUBJECTS, Subject, prepare
from foretell.service.engine.runtime import Runtime

_ENVIRONMENTS = Path(__file__).parent.parent / ".bench"
_TOLERANCE = 1e-3
_SECONDS, _QUICK_SECONDS = 6, 3
_TURNS = 3


class Loop:
    """onnxruntime without a server.

    Args:
        subject: The model.
    """

    def __init__(self, subject: Subject) -> None:
        session = Runtime("cpu").open(subject.bundle)
        self._run = session.run
        self._one, self._many = ({"history": subject.windows[:count]} for count in (1, 32))
        session.run(self._one)

    def rate(self, seconds: float) -> float:
        """Windows a second, one a run."""
        return raw.throughput(self._run, self._one, seconds)

    def large_rate(self, seconds: float) -> float:
        """Windows a second in batches."""
        return raw.throughput(self._run, self._many, seconds)

    def measure(self, seconds: float) -> Raw:
        """By itself."""
        return Raw(self.rate(seconds), raw.latency(self._run, self._one, seconds / 4))


def in_turns(
    serve: Callable[[int], Load], loop: Callable[[float], float], seconds: int
) -> tuple[Load, float]:
    """A server and the loop in turns: whatever else the machine does hits both.

    Args:
        serve: Loads the server for so long.
        loop: Rate of the loop, run for so long.
        seconds: For each of the two in all.

    Returns:
        The turn with the median rate, with the failures of all, and the median part of the loop's
        rate.
    """
    turns, shares = [], []
    for _ in range(_TURNS):
        rate = loop(seconds / _TURNS)
        turns.append(serve(max(1, seconds // _TURNS)))
        shares.append(turns[-1].rate / rate)
    turns.sort(key=lambda turn: turn.rate)
    failed = sum(turn.failed for turn in turns)
    return replace(turns[_TURNS // 2], failed=failed), median(shares)


def measure(
    contender: Contender, subject: Subject, folder: Path, seconds: int, loop: Loop
) -> Served:
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
        most = CONNECTIONS[-1]
        for connections in CONNECTIONS[:-1]:
            served.loads[connections] = load(url + contender.path, body, connections, seconds)
        served.loads[most], served.share = in_turns(
            lambda span: load(url + contender.path, body, most, span), loop.rate, seconds
        )
        for connections in CONNECTIONS:
            print(f"  {contender.name}, {connections}: {served.loads[connections]}", flush=True)
        print(f"  {served.share:.2f} of the loop", flush=True)
        served.memory = memory(process)
        if contender.name == OURS:
            large = subject.write_body(contender.body, folder / "large.json", LARGE)
            found, share = in_turns(
                lambda span: load(url + contender.path, large, 1, span), loop.large_rate, seconds
            )
            served.large_rate, served.large_share = LARGE * found.rate, LARGE * share
            print(f"  large: {served.large_share:.2f} of the loop", flush=True)
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
    parser.add_argument("--before", metavar="COMMIT", help="our server at an earlier commit")
    arguments = parser.parse_args()
    contenders = [one for one in CONTENDERS if one.name in arguments.only]
    if arguments.before:
        tree = before.checkout(arguments.before, _ENVIRONMENTS)
        contenders[:0] = before.contenders(arguments.before, tree)
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    onnxruntime.set_default_logger_severity(3)
    seconds = _QUICK_SECONDS if arguments.quick else _SECONDS
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        for number, size in enumerate(SUBJECTS):
            print(size.name, flush=True)
            folder = Path(name) / str(number)
            subject = prepare(size, folder, folder / "repository", NAME)
            loop = Loop(subject)
            result = Result(size.name, loop.measure(seconds))
            print(f"  {result.raw}", flush=True)
            for contender in contenders:
                own = folder / contender.name.replace(" ", "-")
                try:
                    given = subject
                    if contender.tree != ROOT:
                        earlier = before.prepare(contender.tree, size, folder / "before")
                        given = replace(subject, repository=earlier)
                    result.served[contender.name] = measure(contender, given, own, seconds, loop)
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
