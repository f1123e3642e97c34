"""On a stand-in for CUDA's libraries: every graph, and two HTTP workers under load."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np
import psutil
import torch

from bench import versions
from bench.harness import ROOT, Result, Row, Run, in_turns
from bench.models import NAME, SERVED, SIZES, Subject, prepare
from bench.models import ours as body_of
from bench.servers import Load, load, metrics, middle, resident, roles
from bench.servers import ours as serve
from foretell.bundle.results import Precision
from foretell.export.rules import RULES
from tests.support.stand_in.look import check
from tests.support.stand_in.machine import Machine, UnavailableError, build
from tests.support.variants import VARIANTS

_REPLAY_US = 1000
_CONNECTIONS, _WORKERS, _SECONDS = 64, 2, 12
_BINARY_CONNECTIONS, _BINARY_REPLAY_US, _BINARY_WINDOWS = 32, 300, (8, 128)
_WINDOWS = ("foretell_batch_windows_sum", "foretell_batch_windows_count")


def _stand_in() -> Machine:
    try:
        return build()
    except UnavailableError as error:
        raise SystemExit(str(error)) from None


def measure(run: Run) -> Result:
    """The largest relative error of a forecast of every graph that onnxruntime makes for CUDA."""
    torch.set_num_threads(1)
    stand_in = _stand_in()
    precisions: tuple[Precision, ...] = get_args(Precision)
    rows: list[Row] = []
    failures = []
    for size in run.pick((*SIZES, *VARIANTS), VARIANTS[:1]):
        if not run.wants(size.name):
            continue
        row: dict[str, Any] = {"model": size.name}
        for found in check(stand_in, size, run.pick(precisions, precisions[:1])):
            row[found.precision] = "" if found.left_out else found.error
            failures += [f"{size.name}, {found.precision}: {fault}" for fault in found.faults]
        rows.append(row)
        print(row, flush=True)
    rows.append({"model": "*allowed*", **{one: RULES[one].forecast for one in precisions}})
    return Result({"graphs": rows}, failures)


class _Server(NamedTuple):
    process: psutil.Process
    port: int

    def load(self, path: str, body: Path, headers: Mapping[str, str], connections: int) -> Any:  # noqa: ANN401
        url = f"http://127.0.0.1:{self.port}{path}"
        return partial(load, url, body, connections, headers=headers)

    def observed(self, body: Path, seconds: int) -> tuple[Load, tuple[float, ...]]:
        """Results of a load by wrk: windows, batches, and CPU seconds of the engine."""
        engine = roles(self.process)[1]
        before = (*metrics(self.port, *_WINDOWS), _busy(engine))
        headers = {"Content-Type": "application/json"}
        found = self.load("/forecast", body, headers, _CONNECTIONS)(seconds)
        after = (*metrics(self.port, *_WINDOWS), _busy(engine))
        return found, tuple(b - a for a, b in zip(before, after, strict=True))


def _busy(process: psutil.Process | None) -> float:
    return 0.0 if process is None else sum(process.cpu_times()[:2])


def workers(run: Run) -> Result:
    """One window of JSON a request, and several windows of tensors in binary.

    Baselines run with the libraries of the stand-in, not of their own pins.
    """
    stand_in, seconds = _stand_in(), run.duration(_SECONDS, 1)
    subject = prepare(run.pick(SERVED[0], SERVED[-1]), run.folder / "subject")
    trees = {"foretell": (ROOT, subject.repository)}
    for commit in run.baselines:
        tree = versions.checkout(commit)
        trees[f"foretell {commit}"] = tree, versions.export(tree, subject.checkpoint, NAME)
    rows: list[dict[str, Any]] = [{"server": name} for name in trees]
    with ExitStack() as stack:
        servers = _start(stack, stand_in, trees, _REPLAY_US, run.folder / "json")
        body = subject.write_body(body_of, run.folder / "one.json", 1)
        turns = in_turns([partial(one.observed, body) for one in servers], seconds)
        for server, row, each in zip(servers, rows, turns, strict=True):
            loads = [turn for turn, _ in each]
            typical = middle(loads)
            windows, batches, busy = (sum(counts[at] for _, counts in each) for at in range(3))
            row |= {"requests/s": round(typical.rate), "p50, ms": 1e3 * typical.p50}
            row["windows a batch"] = windows / max(1.0, batches)
            alive, engine = roles(server.process)
            if engine is not None:
                row["engine, µs a request"] = round(1e6 * busy / max(1.0, windows))
                row["the engine, MiB"] = resident(engine)
            row["an HTTP worker, MiB"] = max(map(resident, alive), default=0)
            row["failed"] = sum(turn.failed for turn in loads)
    with ExitStack() as stack:
        servers = _start(stack, stand_in, trees, _BINARY_REPLAY_US, run.folder / "binary")
        path = f"/v2/models/{NAME}/infer"
        for windows in _BINARY_WINDOWS:
            body, headers = binary_request(subject, windows, run.folder)
            parts = [one.load(path, body, headers, _BINARY_CONNECTIONS) for one in servers]
            for row, each in zip(rows, in_turns(parts, seconds), strict=True):
                row[f"{windows} windows: windows/s"] = round(windows * middle(each).rate)
                row["failed"] += sum(turn.failed for turn in each)
    return Result(
        {"workers": rows},
        [f"{row['server']}: {row['failed']} failed" for row in rows if row["failed"]],
    )


def _start(
    stack: ExitStack,
    stand_in: Machine,
    trees: Mapping[str, tuple[Path, Path]],
    replay_us: int,
    folder: Path,
) -> list[_Server]:
    """Servers, each with a GPU that takes this time for a batch of any size."""
    settings: dict[str, object] = {
        "python": stand_in.python,
        "environment": stand_in.environment(graph_us=replay_us),
        "device": "cuda",
        "workers": _WORKERS,
        # All that the connections send at a time.
        "max_queue": _BINARY_CONNECTIONS * max(_BINARY_WINDOWS),
    }
    servers = []
    for tree, models in trees.values():
        own = (tree / "tests" / "support" / "stand_in").exists()
        module = "tests.support.stand_in.foretell" if own else "bench.stand_in.serve"
        started = serve(models, folder / tree.name, tree=tree, module=module, **settings)  # type: ignore[arg-type]
        servers.append(_Server(*stack.enter_context(started)))
    return servers


def binary_request(subject: Subject, windows: int, folder: Path) -> tuple[Path, dict[str, str]]:
    """The body of a request for a number of windows, and its headers."""
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
