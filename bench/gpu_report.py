"""What was found on a GPU, as the part of docs/gpu.md."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass, field

from bench.page import machine, table

GRAPH, BUFFERS, PLAIN, CPU = "CUDA graph", "CUDA, fixed buffers", "CUDA, plain", "CPU"
_TEXT = """\
## Checked and measured

`make gpu-check` wrote this part. {machine} GPU: {gpu}.

Every bundle that passed ran wholly on CUDA, replayed its probes within its tolerance, captured a
CUDA graph of every size of batch, and came to the same forecasts by it as by a plain run. Besides,
random histories were run on the GPU and on the CPU: those whose lags are well-conditioned must keep
the same lags on both.

{checks}
Medians of one run in milliseconds, copies to the GPU and back included; the contenders take turns.
The CPU runs with one thread.

{times}"""


@dataclass
class Finding:
    """One bundle, checked and measured.

    Attributes:
        name: `name@version`, and its precision.
        cuda_graphs: Whether runs replay CUDA graphs.
        replay_error: Largest of a replay against a plain run of the same batch, relative.
        cpu_error: Largest of the GPU against the CPU, relative; None where the CPU cannot run it.
        ill_conditioned: Random histories that were left out of it.
        seconds: By batch, then by contender.
        failure: What is wrong with it.
    """

    name: str
    cuda_graphs: bool = False
    replay_error: float = 0.0
    cpu_error: float | None = None
    ill_conditioned: int = 0
    seconds: dict[int, dict[str, float]] = field(default_factory=dict)
    failure: str = ""


def report(findings: Iterable[Finding]) -> str:
    """The part of docs/gpu.md."""
    findings = list(findings)
    head = ("bundle", "result", "CUDA graphs", "replay against plain run", "GPU against CPU")
    checks = table((*head, "ill-conditioned"), [_checks(found) for found in findings])
    names = [
        name
        for name in (PLAIN, BUFFERS, GRAPH, CPU)
        if any(name in by for found in findings for by in found.seconds.values())
    ]
    ratios = [name for name in names if name != GRAPH]
    times = table(
        ("bundle", "batch", *names, *(f"{GRAPH}: times faster than {name}" for name in ratios)),
        [
            (found.name, str(batch), *_times(seconds, names, ratios))
            for found in findings
            for batch, seconds in found.seconds.items()
        ],
    )
    return _TEXT.format(
        machine=machine("onnxruntime-gpu", "numpy"), gpu=_gpu(), checks=checks, times=times
    )


def _checks(found: Finding) -> tuple[str, ...]:
    return (
        found.name,
        found.failure or "passed",
        "yes" if found.cuda_graphs else "no",
        f"{found.replay_error:.1g}",
        "" if found.cpu_error is None else f"{found.cpu_error:.1g}",
        str(found.ill_conditioned),
    )


def _times(seconds: dict[str, float], names: list[str], ratios: list[str]) -> list[str]:
    values = [f"{seconds[name] * 1e3:.3f}" if name in seconds else "" for name in names]
    return values + [
        f"{seconds[name] / seconds[GRAPH]:.2f}" if {name, GRAPH} <= seconds.keys() else ""
        for name in ratios
    ]


def _gpu() -> str:
    """Its name and driver, as NVIDIA's own tool says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown (nvidia-smi is missing)"
    return "; ".join(f"{line.strip()}" for line in done.stdout.splitlines())
