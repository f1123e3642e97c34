"""The first hour on a GPU: `python -m bench.gpu`, of what `bench.gpu.prepare` has made.

Checks every bundle on every GPU, then a server whose models come and go under traffic; then
measures sessions and servers. Writes its part of docs/gpu.md after each of these, and goes on
whatever fails, without the bundles that did. Needs no torch. Exit status 1 if anything is wrong, 2
without a GPU.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

from bench.gpu.check import check, feeds, graph_of, windows_for
from bench.gpu.faults import FaultError, noting
from bench.gpu.report import CPU, PAGE, PLAIN, REPLAY, Report, render
from bench.gpu.subjects import Subject, subjects
from bench.gpu.traffic import come_and_go, rate
from bench.page import write_part
from bench.timing import Call, interleaved_medians
from foretell.bundle.errors import BundleError
from foretell.service.engine.runtime import Runtime
from foretell.service.errors import StartError
from foretell.service.session import Session

_BATCHES = tuple(2**power for power in range(11))
# With more windows it takes long, and says nothing new.
_CPU_BATCHES = _BATCHES[:6]
_WORKERS = (1, 2, 4)


def measure(
    subject: Subject, gpu: Runtime, cpu: Runtime, batches: Sequence[int], seconds: float
) -> dict[int, dict[str, float]]:
    """Median seconds of a run, by batch and contender.

    Raises:
        FaultError: not every size of batch can be captured.
    """
    graph = graph_of(subject)
    with ExitStack() as stack:
        sessions: dict[str, Session] = {}

        def open_session(name: str, runtime: Runtime, max_batch: int | None = None) -> None:
            sessions[name] = runtime.open(graph, max_batch=max_batch)
            stack.callback(sessions[name].close)

        open_session(REPLAY, gpu, max(batches))
        sessions[REPLAY].warm(0)
        if not getattr(sessions[REPLAY], "captures", False):
            raise FaultError(f"not every batch up to {max(batches)} can be captured")
        open_session(PLAIN, gpu)
        if subject.manifest.precision == "float32":
            open_session(CPU, cpu)
        return {
            batch: interleaved_medians(_calls(sessions, subject, batch), seconds)
            for batch in batches
        }


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
            with noting(report.faults, f"{subject.name}, {_form(count)}"):
                forms[_form(count)] = rate(subject, folder, seconds, workers=count)


def _form(workers: int) -> str:
    return "one process" if workers == 1 else f"{workers} HTTP workers"


def examine(
    report: Report, found: Sequence[Subject], gpu: Runtime, *, quick: bool, seconds: float
) -> Iterator[str]:
    """Check and measure everything; says what it has come to, at each of which the report grows.

    Args:
        report: Takes what is found.
        found: The bundles.
        gpu: Where they run.
        quick: Whether to leave most sizes of batch out.
        seconds: To measure a batch for; a server, twice as long.
    """
    sound = []
    for subject in found:
        report.findings.append(check(subject, gpu))
        faults = report.findings[-1].faults
        sound += [] if faults else [subject]
        yield f"{subject.name}: {'; '.join(faults) or 'passed'}"
    with noting(report.faults, "models come and go"), tempfile.TemporaryDirectory() as name:
        if not sound:
            raise FaultError("no bundle is left to serve")
        report.answers = come_and_go(sound, Path(name))
    yield f"models come and go: {report.answers}"
    cpu = Runtime("cpu")
    batches = _BATCHES[:2] if quick else _BATCHES
    for subject in sound:
        with noting(report.faults, f"{subject.name}, timed"):
            report.seconds[subject.name] = measure(subject, gpu, cpu, batches, seconds)
        yield f"{subject.name}: timed"
    for subject in sound:
        if subject.manifest.precision == "float32":
            with noting(report.faults, f"{subject.name}, served"):
                _serve(report, subject, _WORKERS[:2] if quick else _WORKERS, 2 * seconds)
            yield f"{subject.name}: served"


def main() -> None:
    """Look at the GPUs of this machine."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, default=Path(".demo/gpu"))
    parser.add_argument("--page", type=Path, default=PAGE, help="gets the part")
    parser.add_argument("--seconds", type=float, default=3.0, help="to measure a batch for")
    parser.add_argument("--quick", action="store_true", help="measure two sizes of batch only")
    given = parser.parse_args()
    try:
        gpu = Runtime("cuda")
        found = subjects(given.folder)
    except (StartError, BundleError) as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    report = Report(gpus=gpu.inference_threads(1))
    for said in examine(report, found, gpu, quick=given.quick, seconds=given.seconds):
        print(said, flush=True)
        write_part("checked", render(report), given.page)
    print(render(report))
    raise SystemExit(not report.passed)


if __name__ == "__main__":
    main()
