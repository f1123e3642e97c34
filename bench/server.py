"""Our server against others, under load: `python -m bench.server`.

Writes its part of docs/benchmarks.md. `--only` names the servers to run, `--seconds` says for how
long each is loaded; with either the part is printed instead.

`--before` compares our server with itself at earlier commits, and runs no others unless `--only`
names them. Each version has an environment of its own, with the versions of its own pins, and a
bundle that it exported; both are kept in .bench/. All take turns. The part ends with tables of how
many times as much as before each measure is, medians of the turns, and which limits are missed.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeVar

import httpx
import numpy as np
import onnxruntime
import psutil

from bench.page import PAGE, write_part
from bench.serving import before, raw, report
from bench.serving.contenders import CONTENDERS, OURS, ROOT, Contender
from bench.serving.load import Load, load
from bench.serving.ports import free_port
from bench.serving.process import memory, running
from bench.serving.result import CONNECTIONS, LARGE, Raw, Result, Served
from bench.serving.subjects import NAME, SUBJECTS, Subject, prepare
from bench.sizes import Size
from foretell.service.engine.runtime import Runtime

_ENVIRONMENTS = Path(__file__).parent.parent / ".bench"
_TOLERANCE = 1e-3
_SECONDS = 6
# A turn is long enough for hundreds of requests, and short next to the moods of a shared machine.
_TURN_SECONDS, _FEWEST_TURNS = 2, 3
T = TypeVar("T")


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


def in_turns(parts: Sequence[Callable[[int], T]], seconds: int) -> list[list[T]]:
    """Do several things in turns: whatever else the machine does hits all of them.

    Args:
        parts: Each is done for so many seconds, and gives what came of it.
        seconds: For each of them in all.

    Returns:
        What came of each, turn by turn.
    """
    count = max(_FEWEST_TURNS, seconds // _TURN_SECONDS)
    span = max(1, seconds // count)
    turns = [[part(span) for part in parts] for _ in range(count)]
    return [list(each) for each in zip(*turns, strict=True)]


def middle(turns: Sequence[Load]) -> Load:
    """The turn with the median rate, with the failures of all."""
    found = sorted(turns, key=lambda turn: turn.rate)[len(turns) // 2]
    return replace(found, failed=sum(turn.failed for turn in turns))


def part_of(rates: Sequence[float], turns: Sequence[Load]) -> float:
    """The median part that turns are of those rates that were measured beside them."""
    return median(turn.rate / rate for turn, rate in zip(turns, rates, strict=True))


@dataclass
class Server:
    """One that runs.

    Attributes:
        contender: What it is.
        url: Where it answers.
        body: A request.
        process: It.
        served: What was measured of it.
    """

    contender: Contender
    url: str
    body: Path
    process: psutil.Process
    served: Served = field(default_factory=Served)

    @property
    def is_ours(self) -> bool:
        """Whether it is a version of ours."""
        return self.contender.name.startswith(OURS)

    def loaded(self, connections: int) -> Callable[[int], Load]:
        """What loads it for so many seconds."""
        return partial(load, self.url, self.body, connections)


@contextmanager
def start(contender: Contender, subject: Subject, folder: Path) -> Iterator[Server]:
    """Start a server, check its answer, and load it for a moment.

    Raises:
        RuntimeError: it cannot be installed or started, or its forecast is wrong.
    """
    python = contender.install(_ENVIRONMENTS)
    folder.mkdir(parents=True)
    body = subject.write_body(contender.body, folder / "body.json", 1)
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = contender.command(python, subject.served(contender.serves), port)
    environment = contender.environment(python)
    with running(command, url + contender.ready, folder / "log", environment, folder) as process:
        server = Server(contender, url + contender.path, body, process)
        _check(contender, subject, server.url, body)
        server.loaded(CONNECTIONS[-1])(1)
        yield server


def measure(servers: Sequence[Server], subject: Subject, seconds: int, loop: Loop) -> None:
    """Load servers, in turns where there are several."""
    *fewer, most = CONNECTIONS
    for connections in fewer:
        found = in_turns([server.loaded(connections) for server in servers], seconds)
        for server, turns in zip(servers, found, strict=True):
            server.served.loads[connections] = middle(turns)
            server.served.turns[connections] = turns
    rates, *found = in_turns([loop.rate, *(server.loaded(most) for server in servers)], seconds)
    for server, turns in zip(servers, found, strict=True):
        served, name = server.served, server.contender.name
        served.loads[most] = middle(turns)
        served.turns[most] = turns
        served.share = part_of(rates, turns)
        served.memory = memory(server.process)
        for connections in CONNECTIONS:
            print(f"  {name}, {connections}: {served.loads[connections]}", flush=True)
        print(f"  {served.share:.2f} of the loop", flush=True)
    _measure_large([one for one in servers if one.is_ours], subject, seconds, loop)


def _measure_large(servers: Sequence[Server], subject: Subject, seconds: int, loop: Loop) -> None:
    """One request with many series."""
    parts = []
    for server in servers:
        path = server.body.with_name("large.json")
        body = subject.write_body(server.contender.body, path, LARGE)
        parts.append(replace(server, body=body).loaded(1))
    if not parts:
        return
    rates, *found = in_turns([loop.large_rate, *parts], seconds)
    for server, turns in zip(servers, found, strict=True):
        served = server.served
        served.large_turns = [LARGE * turn.rate for turn in turns]
        served.large_rate = LARGE * middle(turns).rate
        served.large_share = LARGE * part_of(rates, turns)
        print(f"  {server.contender.name}, large: {served.large_share:.2f} of the loop", flush=True)


def _check(contender: Contender, subject: Subject, url: str, body: Path) -> None:
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(url, content=body.read_bytes(), headers=headers, timeout=30)
    if answer.status_code != httpx.codes.OK:
        raise RuntimeError(f"it answers {answer.status_code}: {answer.text[:200]}")
    forecast = np.asarray(contender.answer(answer.json()), np.float32)
    error = float(np.abs(forecast - subject.forecast).max())
    if not error <= _TOLERANCE:
        raise RuntimeError(f"its forecast differs from torch's by {error:.2g}")


def _given(contender: Contender, subject: Subject, size: Size) -> Subject:
    """The path that a contender serves. An earlier version serves a bundle of its own."""
    if contender.tree == ROOT:
        return subject
    return replace(subject, repository=before.prepare(contender.tree, size))


def main() -> None:
    """Measure, and write or print the part."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.server",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", nargs="+", choices=names)
    parser.add_argument("--seconds", type=int, help=f"of each load ({_SECONDS})")
    parser.add_argument("--before", metavar="COMMIT", nargs="+", default=[])
    arguments = parser.parse_args()
    commits: list[str] = arguments.before
    ours_alone = [name for name in names if name.startswith(OURS)]
    only = arguments.only or (ours_alone if commits else names)
    contenders = [one for one in CONTENDERS if one.name in only]
    # Ours and those before take turns: they differ by less than a machine does in minutes.
    ours = [one for one in contenders if one.name.startswith(OURS)]
    others = [one for one in contenders if one not in ours]
    if commits:
        trees = {"": ROOT, **{one: before.checkout(one, _ENVIRONMENTS) for one in commits}}
        versions = [one for item in trees.items() for one in before.contenders(*item)]
        # Keep the requested servers. Our own runs in an environment that is built the same way.
        wanted = {one.arguments for one in ours}
        ours = [one for one in versions if one.arguments in wanted]
    groups = [ours, *([one] for one in others)]
    if shutil.which("wrk") is None:
        parser.error("wrk is not installed (Debian: apt-get install wrk)")
    onnxruntime.set_default_logger_severity(3)
    seconds = arguments.seconds or _SECONDS
    results: list[Result] = []
    with tempfile.TemporaryDirectory() as name:
        for number, size in enumerate(SUBJECTS):
            print(size.name, flush=True)
            folder = Path(name) / str(number)
            subject = prepare(size, folder, folder / "repository", NAME)
            loop = Loop(subject)
            result = Result(size.name, loop.measure(seconds))
            print(f"  {result.raw}", flush=True)
            for group in groups:
                with ExitStack() as stack:
                    servers = []
                    for contender in group:
                        own = folder / contender.name.replace(" ", "-")
                        try:
                            given = _given(contender, subject, size)
                            servers.append(stack.enter_context(start(contender, given, own)))
                        except (RuntimeError, OSError, httpx.HTTPError) as error:
                            result.skipped[contender.name] = str(error)
                            print(f"  {contender.name}: {error}", flush=True)
                    if servers:
                        measure(servers, subject, seconds, loop)
                    result.served |= {one.contender.name: one.served for one in servers}
                # What the last one left running at its end should not slow down the next.
                time.sleep(1)
            results.append(result)
    text = report.page(results)
    if commits:
        print(text, *(report.compared(results, commit) for commit in commits), sep="\n")
    elif arguments.seconds or only != names:
        print(text)
    else:
        write_part("servers", text)
        print(f"wrote {PAGE}")


if __name__ == "__main__":
    main()
