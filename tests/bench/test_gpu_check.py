from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bench import gpu_check
from bench.gpu_check import Check, main
from bench.gpu_report import Finding
from bundle.errors import BundleError
from service.arrays import Arrays
from service.engine.runtime import Runtime
from service.errors import StartError
from service.session import Session
from tests.service.bundles import Spec, lag_stage, softmax_stage, write_bundle
from tests.service.process import ROOT

Change = Callable[[Arrays], None]


class Wrong:
    """A runtime whose sessions change what comes out.

    Args:
        runtime: Opens the real ones.
        changes: By number of the session.
    """

    on_gpu = False

    def __init__(self, runtime: Runtime, changes: dict[int, Change]) -> None:
        self._runtime = runtime
        self._changes = changes
        self._opened = 0

    def workers(self, threads: int) -> int:
        return threads

    def open(self, graph: Path, **options: int | None) -> Session:
        session = self._runtime.open(graph, **options)  # type: ignore[arg-type]
        change = self._changes.get(self._opened)
        self._opened += 1
        run = session.run

        def changed(feeds: Arrays, worker: int = 0) -> Arrays:
            outputs = run(feeds, worker)
            if change is not None:
                change(outputs)
            return outputs

        session.run = changed  # type: ignore[method-assign]
        return session


@pytest.fixture
def runtime() -> Runtime:
    return Runtime("cpu")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_check, "_SECONDS", 0.0)
    monkeypatch.setattr(gpu_check, "_BATCHES", (1, 5))
    monkeypatch.setattr("bench.timing._TURN", 1e-9)


def test_a_sound_bundle_is_measured(tmp_path: Path, runtime: Runtime) -> None:
    # The CPU stands in for the GPU.
    folder = write_bundle(tmp_path, Spec(with_calendar=True, stages=(lag_stage(), softmax_stage())))
    found = Check(folder, runtime, runtime).run()
    assert (found.name, found.failure) == ("repeat@1, float32", "")
    assert (found.replay_error, found.cpu_error, found.cuda_graphs) == (0.0, 0.0, False)
    assert {batch: set(seconds) for batch, seconds in found.seconds.items()} == {
        batch: {"CUDA graph", "CUDA, fixed buffers", "CUDA, plain", "CPU"} for batch in (1, 5)
    }


def add_one_to_large_batches(outputs: Arrays) -> None:
    if len(outputs["forecast"]) == 5:
        outputs["forecast"] = outputs["forecast"] + 1


@pytest.mark.parametrize("session", [1, 2])
def test_replays_that_differ_are_refused(tmp_path: Path, runtime: Runtime, session: int) -> None:
    folder = write_bundle(tmp_path, Spec())
    wrong = Wrong(runtime, {session: add_one_to_large_batches})
    with pytest.raises(BundleError, match="replays differ from plain runs"):
        Check(folder, wrong, runtime).run()  # type: ignore[arg-type]


def shift_lags(outputs: Arrays) -> None:
    outputs["encoder.1.self.lags"] = outputs["encoder.1.self.lags"] + 1


def reorder_lags(outputs: Arrays) -> None:
    outputs["encoder.1.self.lags"] = outputs["encoder.1.self.lags"][:, ::-1]


def explained_by(change: Change, runtime: Runtime) -> Wrong:
    """Three sessions forecast, the fourth is tested, the fifth is compared with the CPU."""
    return Wrong(runtime, {4: change})


def test_other_lags_than_the_cpus_are_refused(tmp_path: Path, runtime: Runtime) -> None:
    folder = write_bundle(tmp_path, Spec(stages=(lag_stage(),)))
    wrong = explained_by(shift_lags, runtime)
    with pytest.raises(BundleError, match=r"encoder\.1\.self\.lags: the GPU keeps other lags"):
        Check(folder, wrong, runtime).run()  # type: ignore[arg-type]


def test_the_order_of_the_lags_does_not_matter(tmp_path: Path, runtime: Runtime) -> None:
    folder = write_bundle(tmp_path, Spec(stages=(lag_stage(),)))
    assert not Check(folder, explained_by(reorder_lags, runtime), runtime).run().failure  # type: ignore[arg-type]


def test_ill_conditioned_histories_may_keep_others(tmp_path: Path, runtime: Runtime) -> None:
    folder = write_bundle(tmp_path, Spec(stages=(lag_stage(),), margin_bound=1e9))
    found = Check(folder, explained_by(shift_lags, runtime), runtime).run()  # type: ignore[arg-type]
    assert (found.ill_conditioned, found.cpu_error, found.failure) == (32, 0.0, "")


def test_a_gpu_that_captures_nothing_fails(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_bundle(tmp_path, Spec())
    wrong = Wrong(runtime, {})
    wrong.on_gpu = True
    found = Check(folder, wrong, runtime).run()  # type: ignore[arg-type]
    assert "no CUDA graph could be captured" in found.failure
    assert found.seconds


def test_every_bundle_is_reported_and_a_wrong_one_fails(
    tmp_path: Path, runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    for version in ("1", "2"):
        write_bundle(tmp_path / "models", Spec(version=version))
    probes = dict(np.load(tmp_path / "models" / "repeat" / "2" / "probes.npz"))
    probes["forecast"] += 1
    np.savez(tmp_path / "models" / "repeat" / "2" / "probes.npz", **probes)
    reported: list[Finding] = []
    monkeypatch.setattr(gpu_check, "Runtime", lambda device: runtime)
    monkeypatch.setattr(gpu_check, "_PAGE", tmp_path / "gpu.md")
    monkeypatch.setattr(gpu_check, "report", lambda findings: reported.extend(findings) or "found")
    monkeypatch.setattr(sys, "argv", ["gpu_check", str(tmp_path / "models")])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 1
    assert [bool(found.failure) for found in reported] == [False, True]
    assert "differ from the expected ones" in reported[1].failure
    assert "found" in (tmp_path / "gpu.md").read_text()


def test_without_a_gpu_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(device: str) -> Runtime:
        raise StartError("device cuda: no GPU")

    monkeypatch.setattr(gpu_check, "Runtime", refuse)
    monkeypatch.setattr(sys, "argv", ["gpu_check"])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    assert capsys.readouterr().err == "gpu-check: device cuda: no GPU\n"


def test_it_needs_no_torch() -> None:
    code = "import sys, bench.gpu_check; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "False\n"
