"""Our bundles on this machine's GPUs, checked and measured: `python -m bench.gpu_check`.

Checks first: CUDA really runs every graph, on all batch sizes, within the tolerance of the probes;
replays of CUDA graphs equal plain runs; the GPU keeps the lags that the CPU keeps. Then measures,
prints a table, and writes its part of docs/gpu.md. Needs no torch.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench.gpu_report import BUFFERS, CPU, GRAPH, PLAIN, Finding, report
from bench.page import write_part
from bench.timing import Call, interleaved_medians
from bundle import layout, manifest
from bundle.comparison import relative_error
from bundle.errors import BundleError
from service.arrays import Arrays
from service.cuda.buckets import bucket_sizes, fill
from service.cuda.session import CudaSession
from service.engine.runtime import Runtime
from service.engine.selftest import SelfTest
from service.errors import ModelFailedError, StartError
from service.session import Session
from service.tensors import FORECAST, MARGIN

Floats = NDArray[np.float32]

_REPOSITORY = Path(".demo/repository")
_PAGE = Path(__file__).parent.parent / "docs" / "gpu.md"
_BATCHES = (1, 8, 32, 128)
_SECONDS = 4.0
# A replay runs the very kernels that were captured.
_REPLAY_TOLERANCE = 1e-6
# Windows that are run on both devices.
_COMPARED = 32


class Check:
    """One bundle on the GPUs.

    Args:
        folder: The bundle.
        gpu: Opens its sessions.
        cpu: Opens those it is compared with.

    Raises:
        BundleError: the GPU refuses it.
    """

    def __init__(self, folder: Path, gpu: Runtime, cpu: Runtime) -> None:
        self._folder = folder
        self._gpu = gpu
        self._cpu = cpu
        self._manifest = manifest.read(folder)
        self._test = SelfTest(folder, self._manifest, max(_BATCHES))
        graph = folder / layout.FORECAST_GRAPH
        largest = max(_BATCHES)
        self._sessions = {
            PLAIN: gpu.open(graph),
            BUFFERS: gpu.open(graph, max_batch=largest, cuda_graphs=False),
            GRAPH: gpu.open(graph, max_batch=largest),
        }

    def run(self) -> Finding:
        """Check and measure.

        Raises:
            BundleError: the GPU comes to other forecasts, or needs other runs than it should.
            ModelFailedError: a run failed.
        """
        described = self._manifest
        found = Finding(f"{described.name}@{described.version}, {described.precision}")
        for worker in range(self._gpu.workers(1)):
            self._replay_probes(worker)
            found.replay_error = max(found.replay_error, self._compare_sizes(worker))
        if not found.replay_error <= _REPLAY_TOLERANCE:
            raise BundleError(
                f"{self._folder}: replays differ from plain runs by {found.replay_error:.2g} "
                "(relative)"
            )
        graph = self._sessions[GRAPH]
        found.cuda_graphs = isinstance(graph, CudaSession) and graph.captures
        if self._gpu.on_gpu and not found.cuda_graphs:
            found.failure = "no CUDA graph could be captured; the log above says why"
        self._compare_with_cpu(found)
        for batch in _BATCHES:
            found.seconds[batch] = interleaved_medians(self._calls(batch), _SECONDS)
        return found

    def _replay_probes(self, worker: int) -> None:
        for session in self._sessions.values():
            session.warm(worker)
            self._test.check_interface(session, layout.FORECAST_GRAPH)
            self._test.replay(session, worker)
        if self._manifest.attention:
            explain = self._gpu.open(self._folder / layout.EXPLAIN_GRAPH)
            self._test.check_interface(explain, layout.EXPLAIN_GRAPH)
            self._test.replay(explain, worker)

    def _compare_sizes(self, worker: int) -> float:
        """Largest error of a run with buffers against the plain run of what is in them."""
        largest = 0.0
        for size in bucket_sizes(max(_BATCHES)):
            for windows in {size, max(1, size // 2 + 1)}:
                feeds = self._feeds(windows)
                filled = {name: fill(rows, size) for name, rows in feeds.items()}
                expected = self._sessions[PLAIN].run(filled, worker)[FORECAST][:windows]
                for name in (BUFFERS, GRAPH):
                    forecast = self._sessions[name].run(feeds, worker)[FORECAST]
                    largest = max(largest, float(self._difference(forecast, expected).max()))
        return largest

    def _compare_with_cpu(self, found: Finding) -> None:
        """Run random histories on both devices, with attention where there is any.

        Raises:
            BundleError: the GPU keeps other lags than the CPU.
        """
        file = layout.EXPLAIN_GRAPH if self._manifest.attention else layout.FORECAST_GRAPH
        reference = self._open_on_cpu(file)
        if reference is None:
            return
        feeds = self._feeds(_COMPARED)
        expected = reference.run(feeds)
        outputs = self._gpu.open(self._folder / file).run(feeds)
        sound = np.ones(_COMPARED, bool)
        if self._manifest.margin_bound is not None:
            sound = expected[MARGIN] >= self._manifest.margin_bound
        found.ill_conditioned = int((~sound).sum())
        errors = self._difference(outputs[FORECAST], expected[FORECAST])[sound]
        found.cpu_error = float(errors.max(initial=0.0))
        # The CPU's kernels of half precision round less than a GPU's.
        if self._manifest.precision == "float32":
            for stage in self._manifest.attention:
                if stage.kind == "autocorrelation":
                    self._compare_lags(f"{stage.name}.lags", outputs, expected, sound)

    def _compare_lags(
        self, name: str, outputs: Arrays, expected: Arrays, sound: NDArray[np.bool_]
    ) -> None:
        own, others = (np.sort(arrays[name], axis=1)[sound] for arrays in (outputs, expected))
        if differing := int((own != others).any(axis=1).sum()):
            raise BundleError(
                f"{self._folder}: {name}: the GPU keeps other lags than the CPU of {differing} of "
                f"{len(own)} well-conditioned histories"
            )

    def _calls(self, batch: int) -> dict[str, Call]:
        feeds = self._feeds(batch)
        sessions = dict(self._sessions)
        if (reference := self._open_on_cpu(layout.FORECAST_GRAPH)) is not None:
            sessions[CPU] = reference
        return {
            name: lambda session=session: session.run(feeds)  # type: ignore[misc]
            for name, session in sessions.items()
        }

    def _open_on_cpu(self, file: str) -> Session | None:
        try:
            return self._cpu.open(self._folder / file)
        except BundleError:
            # Of a precision that it has no kernels for.
            return None

    def _feeds(self, windows: int) -> Arrays:
        """Random inputs of windows, in the units that the model was trained on."""
        generator = np.random.default_rng(windows)
        feeds = {
            name: generator.uniform(-0.5, 0.5, (windows, *(axis or 1 for axis in shape[1:])))
            for name, shape in self._sessions[PLAIN].inputs.items()
        }
        scaler = self._manifest.scaler
        feeds["history"] = feeds["history"] * np.array(scaler.std) * 3 + np.array(scaler.mean)
        return {name: rows.astype(np.float32) for name, rows in feeds.items()}

    def _difference(self, one: Floats, other: Floats) -> NDArray[np.float64]:
        return relative_error(one, other, np.array(self._manifest.scaler.std))


def main() -> None:
    """Check every bundle of a repository; exit status 1 if one fails, 2 without a GPU."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu_check", description=__doc__)
    parser.add_argument("repository", nargs="?", type=Path, default=_REPOSITORY)
    folder: Path = parser.parse_args().repository
    try:
        gpu, cpu = Runtime("cuda"), Runtime("cpu")
        bundles = [
            folder / name / version
            for name in layout.model_names(folder)
            for version in layout.versions(folder, name)
        ]
        if not bundles:
            raise BundleError(f"{folder}: there is no bundle")
    except (StartError, BundleError) as error:
        print(f"gpu-check: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    findings = []
    for bundle in bundles:
        print(f"{bundle.parent.name}@{bundle.name}", flush=True)
        try:
            findings.append(Check(bundle, gpu, cpu).run())
        except (BundleError, ModelFailedError) as error:
            reason = f"{error} {error.__cause__ or ''}".strip()
            findings.append(Finding(f"{bundle.parent.name}@{bundle.name}", failure=reason))
    text = report(findings)
    print(text)
    write_part("checked", text, _PAGE)
    raise SystemExit(any(found.failure for found in findings))


if __name__ == "__main__":
    main()
