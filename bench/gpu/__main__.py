"""The first hour on a GPU: `python -m bench.gpu`, of what `bench.gpu.prepare` has made.

Checks every bundle on every GPU, then a server whose models come and go under traffic; then
measures sessions and servers, and writes its part of docs/gpu.md. Needs no torch. Exit status 1 if
anything is wrong, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from bench.gpu.check import check, feeds, graph_of, windows_for
from bench.gpu.report import CPU, PAGE, PLAIN, REPLAY, Report, render
from bench.gpu.subjects import Subject, subjects
from bench.gpu.traffic import come_and_go, mps, rate
from bench.page import write_part
from bench.timing import Call, interleaved_medians
from bundle.errors import BundleError
from service.engine.runtime import Runtime
from service.errors import StartError
from service.session import Session

_BATCHES = tuple(2**power for power in range(11))
# With more windows it takes long, and says nothing new.
_CPU_BATCHES = _BATCHES[:6]
_WORKERS = (1, 2, 4)
_CONNECTIONS = 64


def measure(
    subject: Subject, gpu: Runtime, cpu: Runtime, batches: Sequence[int], seconds: float
) -> dict[int, dict[str, float]]:
    """Median seconds of a run, by batch and contender."""
    graph = graph_of(subject)
    sessions: dict[str, Session] = {
        REPLAY: gpu.open(graph, max_batch=max(batches)),
        PLAIN: gpu.open(graph),
    }
    if subject.manifest.precision == "float32":
        sessions[CPU] = cpu.open(graph)
    try:
        sessions[REPLAY].warm(0)
        return {
            batch: interleaved_medians(_calls(sessions, subject, batch), seconds)
            for batch in batches
        }
    finally:
        for session in sessions.values():
            session.close()


def _calls(sessions: dict[str, Session], subject: Subject, batch: int) -> dict[str, Call]:
    rows = feeds(windows_for(subject, batch).inputs)
    return {
        name: lambda session=session: session.run(rows)  # type: ignore[misc]
        for name, session in sessions.items()
        if name != CPU or batch in _CPU_BATCHES
    }


def _serve(report: Report, subject: Subject, workers: Sequence[int], seconds: float) -> None:
    forms = report.rates[subject.name] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for count in workers:
            forms[_form(count)] = rate(subject, folder, seconds, workers=count)
        with mps(folder) as shared:
            if shared is None:
                report.skipped = ["MPS, which does not start here"]
                return
            for count in workers[1:]:
                form = f"{_form(count)}, MPS"
                forms[form] = rate(subject, folder, seconds, environment=shared, workers=count)


def _form(workers: int) -> str:
    return "one process" if workers == 1 else f"{workers} processes"


def examine(given: argparse.Namespace) -> Report:
    """Check and measure everything.

    Raises:
        StartError: CUDA does not work here.
        BundleError: there is nothing to check it with.
    """
    gpu, cpu = Runtime("cuda"), Runtime("cpu")
    report = Report(gpus=gpu.workers(1))
    found = subjects(given.folder)
    for subject in found:
        report.findings.append(check(subject, gpu))
        faults = "; ".join(report.findings[-1].faults)
        print(f"{subject.name}: {faults or 'passed'}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        report.answers = come_and_go(found, Path(name))
        print(f"models come and go: {report.answers}", flush=True)
    batches = _BATCHES[:2] if given.quick else _BATCHES
    seconds = 0.1 if given.quick else 3.0
    for subject in found:
        report.seconds[subject.name] = measure(subject, gpu, cpu, batches, seconds)
        print(f"{subject.name}: measured", flush=True)
    for subject in found:
        if subject.manifest.precision == "float32":
            _serve(report, subject, _WORKERS[:2] if given.quick else _WORKERS, 2 * seconds)
            print(f"{subject.name}: served", flush=True)
    return report


def main() -> None:
    """Look at the GPUs of this machine."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".demo/gpu"))
    parser.add_argument("--page", type=Path, default=PAGE, help="gets the part")
    parser.add_argument("--quick", action="store_true", help="measure for a moment only")
    given = parser.parse_args()
    try:
        report = examine(given)
    except (StartError, BundleError) as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    text = render(report, _CONNECTIONS)
    print(text)
    write_part("checked", text, given.page)
    raise SystemExit(not report.passed)


if __name__ == "__main__":
    main()
