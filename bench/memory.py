"""Peak memory of one contender, in a process of its own.

Run as `python -m bench.memory <batch> <graph.onnx>` or `… <batch> <index of the size>`; prints MiB.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

_RUNS = 3


def peak_memory(batch: int, contender: Path | int) -> float:
    """MiB of resident memory that loading the contender and running it adds to its process.

    Args:
        batch: Windows of a call.
        contender: A graph, or the index of a size to be run in torch.
    """
    command = [sys.executable, "-m", "bench.memory", str(batch), str(contender)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    return float(done.stdout)


def _run_graph(path: Path, batch: int) -> float:
    from foretell.service.engine.runtime import Runtime

    runtime = Runtime("cpu")
    before = _reset_peak()
    session = runtime.open(path)
    random = np.random.default_rng(0)
    feeds = {
        name: random.normal(size=[size or batch for size in shape]).astype(np.float32)
        for name, shape in session.inputs.items()
    }
    for _ in range(_RUNS):
        session.run(feeds)
    return peak() - before


def _run_torch(index: int, batch: int) -> float:
    import torch

    from bench.sizes import SIZES

    torch.set_num_threads(1)
    before = _reset_peak()
    model = SIZES[index].model()
    inputs = SIZES[index].inputs(batch)
    with torch.inference_mode():
        for _ in range(_RUNS):
            model(*inputs)
    return peak() - before


def _reset_peak() -> float:
    """Forget the peak so far, that of the imports; returns what is resident now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def peak() -> float:
    """MiB that this process had resident at most."""
    # getrusage would tell the peak of the process that started this one.
    return _status("VmHWM")


def _status(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    (kibibytes,) = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kibibytes) / 1024


if __name__ == "__main__":
    size = int(sys.argv[1])
    if sys.argv[2].isdigit():
        print(_run_torch(int(sys.argv[2]), size))
    else:
        print(_run_graph(Path(sys.argv[2]), size))
