"""What was found on a GPU, as the part of docs/gpu.md."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.gpu.check import Finding
from bench.gpu.subjects import NATURAL
from bench.gpu.traffic import CLIENTS, CONNECTIONS
from bench.page import machine, table
from foretell.bundle.layout import EXPLAIN_GRAPH, FORECAST_GRAPH

_EXPLAINED = f"{EXPLAIN_GRAPH}, forecast"
PAGE = Path(__file__).parent.parent.parent / "docs" / "gpu.md"
REPLAY, PLAIN, CPU = "CUDA graph", "CUDA, plain", "CPU, one thread"
_TEXT = """\
## Checked and measured

`make gpu-check` wrote this part. {machine} {gpus} GPU: {gpu}.

Every bundle that passed ran wholly on CUDA; replayed its probes; captured a CUDA graph of every
size of batch, on all GPUs at once; came to the same forecasts by it as by a plain run; and kept, on
windows of the data and on adversarial ones, the rules by which the export is verified
(`export/rules.py`) against torch in float64: forecasts, attention and lags. *Error* is the largest
of a forecast on windows of the data.

{checks}
{traffic}
Medians of one run in milliseconds, copies to the GPU and back included; the contenders take turns.

{times}
The server under load from {connections} connections, a window a request: requests a second; median
and 99th percentile of the latency in milliseconds, of the slowest of the {processes} processes that
send; windows a batch. HTTP workers read requests and write answers; one more process runs the
models.

{rates}"""


@dataclass
class Report:
    """All that was found.

    Attributes:
        gpus: How many GPUs there are.
        findings: Of each bundle.
        answers: Of a model while others came and went: count by status.
        seconds: By bundle, batch and contender.
        rates: Of the server: by bundle, by its form.
        faults: What is wrong besides.
    """

    gpus: int
    findings: list[Finding] = field(default_factory=list)
    answers: dict[str, int] = field(default_factory=dict)
    seconds: dict[str, dict[int, dict[str, float]]] = field(default_factory=dict)
    rates: dict[str, dict[str, Mapping[str, Any]]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        """Whether all was looked at, and nothing is wrong."""
        rates = [rate for forms in self.rates.values() for rate in forms.values()]
        return (
            bool(self.findings)
            and not any(one.faults for one in self.findings)
            and set(self.answers) == {"200"}
            and not any(one["failed"] for one in rates)
            and not self.faults
        )


def render(report: Report) -> str:
    """The part of docs/gpu.md, or as much of it as there is."""
    head = ("bundle", "result", "replay against plain run", "error", "allowed", "other choices")
    lines = [f"**Wrong**: {fault}" for fault in report.faults]
    return _TEXT.format(
        machine=machine("onnxruntime-gpu", "numpy"),
        gpus=report.gpus,
        gpu=_gpu(),
        checks=table(head, [_checks(found) for found in report.findings]),
        traffic=_traffic(report.answers),
        times=_times(report.seconds),
        connections=CLIENTS * CONNECTIONS,
        processes=CLIENTS,
        rates=_rates(report.rates) + "".join(f"\n{line}\n" for line in lines),
    )


def _checks(found: Finding) -> tuple[str, ...]:
    """A row; empty is what was not looked at."""
    forecasts = [
        one
        for one in found.checks
        if NATURAL in one.name and one.name.startswith((f"{FORECAST_GRAPH}, batch", _EXPLAINED))
    ]
    others = [one.max_error for one in found.checks if one.name.startswith("share with other")]
    replays = found.replay_error
    return (
        found.name,
        "; ".join(found.faults) or "passed",
        "" if replays is None else f"{replays:.1g}",
        f"{max(one.max_error for one in forecasts):.1e}" if forecasts else "",
        f"{max(one.tolerance for one in forecasts):.1e}" if forecasts else "",
        f"{max(others):.0%}" if others else "",
    )


def _traffic(answers: Mapping[str, int]) -> str:
    if not answers:
        return ""
    good = answers.get("200", 0)
    failed = {status: count for status, count in answers.items() if status != "200"}
    failures = f"and of these failed: {failed}" if failed else "and none failed"
    return (
        "While the other models were loaded, loaded again and unloaded, the first one answered "
        f"{good:,} requests, {failures}.\n"
    )


def _times(seconds: Mapping[str, Mapping[int, Mapping[str, float]]]) -> str:
    names = [REPLAY, PLAIN, CPU]
    rows = [
        (
            bundle,
            str(batch),
            *(f"{by[name] * 1e3:.3f}" if name in by else "" for name in names),
            f"{batch / by[REPLAY]:,.0f}",
        )
        for bundle, batches in seconds.items()
        for batch, by in batches.items()
    ]
    return table(("bundle", "batch", *names, "windows a second"), rows)


def _rates(rates: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    rows = [
        (
            bundle,
            form,
            f"{found['rate']:,.0f}",
            f"{found['p50']:.1f}",
            f"{found['p99']:.1f}",
            f"{found['windows']:.1f}",
            str(found["failed"]),
        )
        for bundle, forms in rates.items()
        for form, found in forms.items()
    ]
    head = ("bundle", "server", "requests a second", "p50", "p99", "windows a batch", "failed")
    return table(head, rows)


def _gpu() -> str:
    """Its name and driver, as NVIDIA's own tool says."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown (nvidia-smi is missing)"
    lines: Sequence[str] = done.stdout.splitlines()
    return "; ".join(line.strip() for line in lines)
