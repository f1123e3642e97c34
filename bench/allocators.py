"""Where runs get their memory from, and what it costs: `python -m bench.allocators`.

Runs several models in turn, with batches of all sizes, in as many threads as the service would;
each way to allocate has processes of its own. Writes its part of docs/benchmarks.md; `--print` only
prints it.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import numpy as np
import onnxruntime

from bench.memory import peak
from bench.page import PAGE, machine, table, write_part
from foretell.service.engine.limits import resident_bytes, return_free_memory
from foretell.service.engine.runtime import Runtime
from foretell.service.session import CpuSession, Session

SYSTEM, KEPT, OWN, SHARED = "malloc", "malloc, thresholds of 1 GiB", "an arena a model", "one arena"
WAYS = (SYSTEM, KEPT, OWN, SHARED)
_ROUNDS = 3
_RUNS = 200
_THREADS = 2
_LARGEST = 32
_MIB = 1024 * 1024
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
_GIB = 1024 * _MIB
_TEXT = """\
## Memory of runs

`python -m bench.allocators` runs {models} models in turn with batches of 1 to {largest} windows, in
{threads} threads of one process, {runs} times each, and wrote this part. It compares ways to
allocate what runs need besides the weights: the C library's malloc as it is, and told to keep what
was freed; onnxruntime's arena for each session, and one arena for all of them, as the service has
it. The ways take turns; medians of {rounds} processes each.

{machine}

"""


@dataclass(frozen=True)
class Outcome:
    """What one process found.

    Attributes:
        milliseconds: CPU time of a run, the system's included.
        faults: Pages of memory that a run touches for the first time.
        half: MiB that are resident after half of the runs.
        end: The same after all of them.
        most: The largest it ever was.
        closed: What is left when all models are closed.
    """

    milliseconds: float
    faults: float
    half: float
    end: float
    most: float
    closed: float


def measure(way: str, graphs: list[Path], runs: int = _RUNS) -> Outcome:
    """Run graphs in a process that allocates in one way; to be called once in a process."""
    open_session = _opener(way)
    sessions = [open_session(graph) for graph in graphs]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    seconds: list[float] = []
    resident = []
    for part in range(2):
        threads = [
            threading.Thread(target=_run, args=(sessions, runs // 2, 2 * number + part, seconds))
            for number in range(_THREADS)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        resident.append(resident_bytes() / _MIB)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    most = peak()
    sessions.clear()
    return_free_memory()
    return Outcome(
        milliseconds=sum(seconds) / len(seconds) * 1e3,
        faults=faults / len(seconds),
        half=resident[0],
        end=resident[1],
        most=most,
        closed=resident_bytes() / _MIB,
    )


def _opener(way: str) -> Callable[[Path], Session]:
    if way == SHARED:
        # The service's own way.
        return Runtime("cpu").open
    if way == KEPT:
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, _GIB)
        library.mallopt(_M_TRIM_THRESHOLD, _GIB)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.enable_cpu_mem_arena = way == OWN
    return lambda graph: CpuSession(
        onnxruntime.InferenceSession(
            graph,
            options,
            providers=["CPUExecutionProvider"],
            disabled_optimizers=["SkipLayerNormFusion"],
        ),
        onnxruntime.RunOptions(),
        graph,
    )


def _run(sessions: list[Session], runs: int, seed: int, seconds: list[float]) -> None:
    random = np.random.default_rng(seed)
    for _ in range(runs):
        session = sessions[random.integers(len(sessions))]
        batch = int(random.integers(1, _LARGEST + 1))
        feeds = {
            name: random.standard_normal([size or batch for size in shape], np.float32)
            for name, shape in session.inputs.items()
        }
        start = time.thread_time()
        session.run(feeds)
        seconds.append(time.thread_time() - start)


def report(outcomes: dict[str, list[Outcome]], models: int) -> str:
    """The part of docs/benchmarks.md."""
    head = ("memory from", "CPU ms a run", "page faults a run", "MiB half-way", "MiB at the end")
    rows = []
    for way, found in outcomes.items():
        values = [median(column) for column in zip(*map(_values, found), strict=True)]
        rows.append((way, f"{values[0]:.2f}", *(f"{value:.0f}" for value in values[1:])))
    return _TEXT.format(
        models=models,
        largest=_LARGEST,
        threads=_THREADS,
        runs=_RUNS,
        rounds=_ROUNDS,
        machine=machine("onnxruntime", "numpy"),
    ) + table((*head, "MiB at most", "MiB with all closed"), rows)


def _values(outcome: Outcome) -> tuple[float, ...]:
    return tuple(asdict(outcome).values())


def _in_process(way: str, folder: Path) -> Outcome:
    command = [sys.executable, "-m", "bench.allocators", "--way", way, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    return Outcome(**json.loads(done.stdout))


def main() -> None:
    """Measure every way, and write or print the part."""
    parser = argparse.ArgumentParser(prog="python -m bench.allocators", description=__doc__)
    parser.add_argument("--print", action="store_true", help="write nothing")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way is not None:
        graphs = sorted(arguments.folder.glob("*.onnx"))
        print(json.dumps(asdict(measure(arguments.way, graphs))))
        return
    outcomes: dict[str, list[Outcome]] = {way: [] for way in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        models = _export(Path(folder))
        for number in range(_ROUNDS):
            for way in WAYS:
                outcomes[way].append(_in_process(way, Path(folder)))
                print(f"round {number + 1}: {way}: {outcomes[way][-1]}", flush=True)
    text = report(outcomes, models)
    if arguments.print:
        print(text)
    else:
        write_part("allocators", text)
        print(f"wrote {PAGE}")


def _export(folder: Path) -> int:
    """Write the graphs of the models that do not take a second a run; returns how many."""
    import onnx

    from bench.sizes import SCALER, SIZES
    from foretell.export.graphs import trace
    from foretell.export.rewrites import inference_form
    from foretell.export.serving_form import ServingForm

    sizes = [size for size in SIZES if size.config.d_model < 512]
    for index, size in enumerate(sizes):
        form = ServingForm(inference_form(size.model()), SCALER, "forecast")
        onnx.save(trace(form), folder / f"{index}.onnx")
    return len(sizes)


if __name__ == "__main__":
    main()
