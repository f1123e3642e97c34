"""foretell next to other servers and other commits, under load from wrk on the same CPUs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import httpx
import numpy as np
import psutil

from bench import versions
from bench.harness import ROOT, Result, Row, Run, Tables, in_turns, ratio
from bench.models import SERVED, Body, Floats, Subject, ours, prepare
from bench.servers import Load, load, memory, middle, running
from tests.support.process import free_port

CONNECTIONS = (1, 16, 64)
# Series in the one large request.
_LARGE = 256
_TOLERANCE = 1e-3
_SECONDS = 6
_ONNXRUNTIME = ("onnxruntime==1.31.1", "numpy<3")
# The least part of a baseline's requests a second, by model, and of its rate of the large request.
_LEAST_RATES = dict(zip((one.name for one in SERVED), (0.97, 0.97, 0.92), strict=True))
_LEAST_LARGE, _MOST_P99, _MOST_MEMORY = 0.97, 1.05, 1.0


def _tensors(windows: Floats) -> dict[str, Any]:
    data = windows.ravel().tolist()
    shape = list(windows.shape)
    return {"inputs": [{"name": "history", "shape": shape, "datatype": "FP32", "data": data}]}


def _of_tensors(answer: Any) -> Any:  # noqa: ANN401
    return np.reshape(answer["outputs"][0]["data"], answer["outputs"][0]["shape"])[0]


@dataclass(frozen=True)
class Contender:
    """A server.

    Attributes:
        name: Its name in tables.
        script: Script in bench/peers/; empty for foretell.
        path: Path of its requests.
        ready: A path that answers 200 once it serves.
        body: Makes its request.
        answer: Finds the forecast in its answer.
        requirements: Requirements of its own environment; none to run in this one.
        python: Makes that environment.
        options: Options of `foretell serve`.
        commit: Commit of foretell; None for the tree of this file, in this environment.
    """

    name: str
    script: str = ""
    path: str = "/forecast"
    ready: str = "/ready"
    body: Body = lambda windows: {"series": windows[0].tolist()}
    answer: Callable[[Any], Any] = lambda answer: answer["forecast"]
    requirements: tuple[str, ...] = ()
    python: str = sys.executable
    options: tuple[str, ...] = ()
    commit: str | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is foretell."""
        return not self.script

    def start(self, subject: Subject, port: int) -> tuple[list[object], dict[str, str]]:
        """Its command and variables; installs what it needs."""
        if self.is_ours:
            tree, python, repository = ROOT, Path(sys.executable), subject.repository
            if self.commit is not None:
                tree = versions.checkout(self.commit) if self.commit else ROOT
                python = versions.environment(tree)
            if self.commit:
                repository = versions.export(tree, subject.checkpoint, subject.name)
            command = [python, "-m", "foretell", "serve", "--models", repository, "--port", port]
            variables = {"FORETELL_DEVICE": "cpu", "ORT_DISABLE_TELEMETRY": "1"}
            return [*command, *self.options], {"PYTHONPATH": str(tree), **variables}
        served = subject.checkpoint if "torch" in self.script else subject.graph
        script = ROOT / "bench" / "peers" / self.script
        if not self.requirements:
            return [sys.executable, script, served, port], {"PYTHONPATH": str(ROOT)}
        home = self.name.replace(" ", "-").lower()
        python = versions.install(home, self.requirements, python=self.python)
        return [python, script, served, port], {"PATH": f"{python.parent}:{os.environ['PATH']}"}


OURS = Contender(
    "foretell",
    ready="/readyz",
    body=ours,
    answer=lambda answer: answer["outputs"][0]["content"][0]["mean_forecast"],
)
CONTENDERS = (
    OURS,
    replace(OURS, name="foretell --workers 2", options=("--workers", "2")),
    Contender("FastAPI + onnxruntime", "fastapi_onnxruntime.py"),
    Contender("FastAPI + torch", "fastapi_torch.py"),
    Contender("LitServe", "litserve_peer.py", requirements=("litserve==0.2.19", *_ONNXRUNTIME)),
    Contender(
        "MLServer",
        "mlserver_peer.py",
        path="/v2/models/patchtst/infer",
        ready="/v2/models/patchtst/ready",
        body=_tensors,
        answer=_of_tensors,
        # With newer versions of uvloop its worker processes have no event loop.
        requirements=("mlserver==1.7.1", "uvloop==0.21.0", *_ONNXRUNTIME),
    ),
    Contender(
        "BentoML",
        "bentoml_peer.py",
        ready="/readyz",
        body=lambda windows: {"series": windows.tolist()},
        answer=lambda answer: answer[0],
        requirements=("bentoml==1.4.39", *_ONNXRUNTIME),
    ),
    Contender(
        "Ray Serve",
        "ray_peer.py",
        ready="/-/healthz",
        requirements=("ray[serve]==2.60.0", *_ONNXRUNTIME),
    ),
    Contender(
        "Triton",
        "triton_peer.py",
        path="/v2/models/patchtst/infer",
        ready="/v2/models/patchtst/ready",
        body=_tensors,
        answer=_of_tensors,
        requirements=("nvidia-pytriton==0.7.0", *_ONNXRUNTIME),
        # Triton's Python backend is linked with this one's library.
        python="/usr/bin/python3.11",
    ),
)


@dataclass(frozen=True)
class Server:
    """A server that runs."""

    contender: Contender
    url: str
    folder: Path
    process: psutil.Process

    def loader(self, subject: Subject, connections: int, windows: int = 1) -> Callable[[int], Load]:
        """A function that puts load on it for a number of seconds."""
        body = subject.write_body(self.contender.body, self.folder / f"{windows}.json", windows)
        return partial(load, self.url, body, connections)


@contextmanager
def started(contender: Contender, subject: Subject, folder: Path) -> Iterator[Server]:
    """Start a server, check its answer, and load it for a moment.

    Raises:
        RuntimeError: it cannot be installed or started, or its forecast is wrong.
    """
    port = free_port()
    command, variables = contender.start(subject, port)
    url = f"http://127.0.0.1:{port}"
    with running(command, url + contender.ready, folder, variables) as process:
        server = Server(contender, url + contender.path, folder, process)
        answer = httpx.post(server.url, json=contender.body(subject.windows[:1]), timeout=30)
        if answer.status_code != httpx.codes.OK:
            raise RuntimeError(f"it answers {answer.status_code}: {answer.text[:200]}")
        forecast = np.asarray(contender.answer(answer.json()), np.float32)
        error = float(np.abs(forecast - subject.forecast).max())
        if not error <= _TOLERANCE:
            raise RuntimeError(f"its forecast differs from torch's by {error:.2g}")
        server.loader(subject, CONNECTIONS[-1])(1)
        yield server


def measure(run: Run) -> Result:
    """Load servers, ours in turns with those of the baselines."""
    own = [one for one in CONTENDERS if one.is_ours and run.wants(one.name)]
    others = [one for one in CONTENDERS if not one.is_ours and run.wants(one.name)]
    if run.quick:
        own, others = own[:1], [one for one in others if not one.requirements][:1]
    if run.baselines:
        # Each in an environment that is built in the same way, ours too.
        others = others if run.only else []
        own = [
            replace(
                one,
                name=one.name.replace(OURS.name, f"{OURS.name} {commit}".strip()),
                commit=commit,
            )
            for commit in ("", *run.baselines)
            for one in own
        ]
    tables: Tables = {}
    failures: list[str] = []
    for size in run.pick(SERVED, SERVED[-1:]):
        print(size.name, flush=True)
        subject = prepare(size, run.folder / size.name.replace(" ", "-"), plain=True)
        rows, turns = [], {}
        for group in (own, *([one] for one in others)):
            with ExitStack() as stack:
                servers = []
                for contender in group:
                    folder = subject.checkpoint.parent / contender.name.replace(" ", "-")
                    try:
                        servers.append(stack.enter_context(started(contender, subject, folder)))
                    except (RuntimeError, OSError, httpx.HTTPError) as error:
                        failures.append(f"{contender.name}: {error}")
                if servers:
                    rows += _measured(servers, subject, run.duration(_SECONDS, 1), turns)
            # Processes of the last server that are still ending would slow the next one down.
            time.sleep(1)
        tables[size.name] = rows
        for commit in run.baselines:
            ratios, missed = compared(size.name, rows, turns, commit)
            tables.setdefault(f"times what {commit} has", []).extend(ratios)
            failures += missed
    return Result(tables, failures)


def _measured(
    servers: Sequence[Server],
    subject: Subject,
    seconds: float,
    turns: dict[tuple[str, object], Sequence[Any]],
) -> list[Row]:
    """A row for each server; `turns` gets their results, turn by turn."""
    rows: list[dict[str, Any]] = [{"server": one.contender.name} for one in servers]
    for connections in CONNECTIONS:
        found = in_turns([one.loader(subject, connections) for one in servers], seconds)
        for server, row, each in zip(servers, rows, found, strict=True):
            turns[row["server"], connections] = each
            typical = middle(each)
            row[f"{connections}: req/s"] = round(typical.rate)
            row[f"{connections}: p50, ms"] = 1e3 * typical.p50
            row[f"{connections}: p99, ms"] = 1e3 * typical.p99
            row["failed"] = row.pop("failed", 0) + sum(turn.failed for turn in each)
            if connections == CONNECTIONS[-1]:
                row["memory, MiB"] = turns[row["server"], "memory"] = memory(server.process)
    own = [(one, row) for one, row in zip(servers, rows, strict=True) if one.contender.is_ours]
    if own:
        loaders = [one.loader(subject, 1, _LARGE) for one, _ in own]
        for (_, row), each in zip(own, in_turns(loaders, seconds), strict=True):
            large = turns[row["server"], "large"] = [_LARGE * turn.rate for turn in each]
            row[f"{_LARGE} series: windows/s"] = round(median(large))
    for row in rows:
        print("  ", row, flush=True)
    return rows


def compared(
    model: str, rows: Sequence[Row], turns: dict[tuple[str, object], Sequence[Any]], commit: str
) -> tuple[list[Row], list[str]]:
    """Each server of ours as multiples of a baseline, and which of them miss a limit."""
    found, missed = [], []
    names = {str(row["server"]) for row in rows}
    for name in sorted(names):
        before = name.replace(OURS.name, f"{OURS.name} {commit}")
        if before == name or before not in names:
            continue
        rates = {
            count: ratio(*([turn.rate for turn in turns[one, count]] for one in (name, before)))
            for count in CONNECTIONS
        }
        p99 = ratio(*([turn.p99 for turn in turns[one, CONNECTIONS[-1]]] for one in (name, before)))
        large = ratio(turns[name, "large"], turns[before, "large"])
        size = turns[name, "memory"] / turns[before, "memory"]  # type: ignore[operator]
        ratios = {f"{count}: req/s": rate for count, rate in rates.items()}
        ratios |= {f"{_LARGE} series": large, f"{CONNECTIONS[-1]}: p99": p99, "memory": size}
        found.append({"model": model, "server": name, **ratios})
        least = {f"{CONNECTIONS[-1]}: req/s": _LEAST_RATES[model], f"{_LARGE} series": _LEAST_LARGE}
        most = {f"{CONNECTIONS[-1]}: p99": _MOST_P99, "memory": _MOST_MEMORY}
        for what, limit in (least | most).items():
            if ratios[what] < limit if what in least else ratios[what] > limit:
                missed.append(
                    f"{model}, {name}, {what}: {ratios[what]:.3f} of {commit}'s, not {limit}"
                )
    return found, missed
