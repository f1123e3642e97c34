"""Our graphs next to torch, a plain export, and the graphs of other commits."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter, defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from onnx import numpy_helper

from bench import versions
from bench.harness import ROOT, Call, Result, Row, Run, Tables, interleaved_medians, status_mib
from bench.models import NAME, QUICK, SIZES, export_plain, feeds, save_checkpoint, trace_forecast
from foretell.bundle.layout import FORECAST_GRAPH
from foretell.service.engine.runtime import Runtime
from tests.support.variants import VARIANTS, Size

_BATCHES = (1, 8, 32)
_MEMORY_BATCH, _RUNS, _SHARES_BATCH = 32, 10, 8
_GROUPS = {
    "matrix products": {"MatMul", "FusedMatMul", "Gemm", "Attention"},
    "softmax": {"Softmax", "Exp", "ReduceSum", "Reciprocal"},
    "activation": {"Gelu", "BiasGelu", "Relu"},
    "norms": {"LayerNormalization", "ReduceMean"},
    "copies": {"Transpose", "Reshape", "Gather", "Slice", "Concat", "Pad", "Expand", "Split"},
}
# Limit of the time of a graph, as a multiple of the baseline's.
_MOST_TIMES = 1.03


def measure(run: Run) -> Result:
    """Time models in every form; with baselines, our graphs next to theirs."""
    torch.set_num_threads(1)
    if run.baselines:
        return _compare(run)
    sizes = [size for size in run.pick(SIZES, QUICK[:1]) if run.wants(size.name)]
    tables: Tables = {}
    shares: list[Row] = []
    memory: list[Row] = []
    for size in sizes:
        print(size.name, flush=True)
        graphs = {"plain export": run.folder / "plain.onnx", "foretell": run.folder / "ours.onnx"}
        export_plain(size, graphs["plain export"])
        trace_forecast(size, graphs["foretell"])
        sessions = {name: Runtime("cpu").open(path) for name, path in graphs.items()}
        model, rows = size.model(), []
        for batch in run.pick(_BATCHES, (_SHARES_BATCH,)):
            inputs, given = size.inputs(batch), feeds(size, batch)
            calls: dict[str, Call] = {"torch": partial(_inference, model, inputs)}
            calls |= {name: partial(one.run, given) for name, one in sessions.items()}
            seconds = interleaved_medians(calls, run.duration(4, 0.2))
            times = {f"{name}, ms": 1e3 * value for name, value in seconds.items()}
            for name in ("torch", "plain export"):
                times[f"times faster than {name}"] = seconds[name] / seconds["foretell"]
            rows.append({"batch": batch, **times})
        tables[size.name] = rows
        shares.append({"model": size.name, **_shares(graphs["foretell"], size)})
        if not run.quick:
            places: dict[str, Path | int] = {"torch": SIZES.index(size), **graphs}
            peaks = {
                f"{name}, MiB": round(peak_memory(place, _MEMORY_BATCH))
                for name, place in places.items()
            }
            memory.append({"model": size.name, **peaks})
    return Result(tables | {"operators": shares} | ({"memory": memory} if memory else {}))


def _compare(run: Run) -> Result:
    """Every model, in each commit: whether the graph is the same, or how long it takes."""
    runtime, tables, failures = Runtime("cpu"), {}, []
    sizes = [size for size in (*SIZES, *run.pick(VARIANTS, ())) if run.wants(size.name)]
    for number, size in enumerate(run.pick(sizes, sizes[:1])):
        print(size.name, flush=True)
        checkpoint = run.folder / f"{number}" / "checkpoint"
        save_checkpoint(size, checkpoint)
        for commit in run.baselines:
            row: dict[str, Any] = {"model": size.name, "graph": "the same"}
            tables.setdefault(f"times as long as {commit}", []).append(row)
            try:
                earlier, ours = (
                    versions.export(tree, checkpoint, NAME) / NAME / "1" / FORECAST_GRAPH
                    for tree in (versions.checkout(commit), ROOT)
                )
            except RuntimeError as error:
                row["graph"] = str(error)
                failures.append(f"{size.name}: {error}")
                continue
            if _content(earlier) != _content(ours):
                row["graph"] = "another"
                sessions = {"earlier": runtime.open(earlier), "ours": runtime.open(ours)}
                for batch in _BATCHES:
                    calls = {
                        name: partial(one.run, feeds(size, batch)) for name, one in sessions.items()
                    }
                    taken = interleaved_medians(calls, run.duration(6, 0.2))
                    times = row[f"batch {batch}"] = taken["ours"] / taken["earlier"]
                    if times > _MOST_TIMES:
                        failures.append(f"{size.name}, batch {batch}: {times:.3f} of {commit}")
    return Result(tables, failures)


def _content(path: Path) -> tuple[Counter[str], Counter[bytes]]:
    """Operators and weights of a graph."""
    graph = onnx.load(path).graph
    weights = (numpy_helper.to_array(each).tobytes() for each in graph.initializer)
    return Counter(node.op_type for node in graph.node), Counter(weights)


def _inference(model: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> object:
    with torch.inference_mode():
        return model(*inputs)


def _shares(graph: Path, size: Size) -> dict[str, str]:
    """The share of the time by group of operators, by onnxruntime's profiler."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    options.enable_profiling = True
    options.profile_file_prefix = str(graph.with_suffix(""))
    session = onnxruntime.InferenceSession(
        graph,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["SkipLayerNormFusion"],
    )
    for _ in range(_RUNS):
        session.run(None, feeds(size, _SHARES_BATCH))
    spent: dict[str, float] = defaultdict(float)
    for event in json.loads(Path(session.end_profiling()).read_text()):
        if event.get("cat") == "Node" and event["name"].endswith("_kernel_time"):
            operator = event["args"]["op_name"]
            group = next((name for name, known in _GROUPS.items() if operator in known), "other")
            spent[group] += event["dur"]
    return {name: f"{spent[name] / sum(spent.values()):.0%}" for name in (*_GROUPS, "other")}


def peak_memory(contender: Path | int, batch: int) -> float:
    """Peak MiB that a process needs to load and run a graph, or the module of a size."""
    command = [sys.executable, "-m", __name__, str(contender), str(batch)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    return float(done.stdout)


def _print_peak(contender: str, batch: int) -> None:
    torch.set_num_threads(1)
    random = np.random.default_rng(0)
    # Forget the peak so far, that of the imports.
    Path("/proc/self/clear_refs").write_text("5")
    before = status_mib("VmRSS")
    if contender.isdigit():
        size = SIZES[int(contender)]
        call = partial(_inference, size.model(), size.inputs(batch))
    else:
        session = Runtime("cpu").open(Path(contender))
        shapes = {name: [axis or batch for axis in each] for name, each in session.inputs.items()}
        given = {n: random.normal(size=shape).astype(np.float32) for n, shape in shapes.items()}
        call = partial(session.run, given)
    for _ in range(3):
        call()
    print(status_mib("VmHWM") - before)


if __name__ == "__main__":
    _print_peak(sys.argv[1], int(sys.argv[2]))
