"""The CPU stands in for the GPU."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import get_ident

import numpy as np
import pytest

from bench.gpu import check as module
from bench.gpu.check import check
from bench.gpu.subjects import Subject, subjects
from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session
from tests.support.process import ROOT

Change = Callable[[Arrays], None]
REPLAYS, PLAIN, EXPLAIN = range(3)


class Wrong:
    """A runtime whose sessions change what comes out.

    Args:
        runtime: Opens the real ones.
        changes: By number of the session.
        workers: How many GPUs it says it has.
    """

    on_gpu = False

    def __init__(self, runtime: Runtime, changes: dict[int, Change], workers: int = 1) -> None:
        self._runtime = runtime
        self._changes = changes
        self._workers = workers
        self._opened = 0
        self.sessions: list[Session] = []

    def workers(self, threads: int) -> int:
        return self._workers

    def open(self, graph: Path, **options: int | None) -> Session:
        session = self._runtime.open(graph, **options)
        change = self._changes.get(self._opened)
        self._opened += 1
        run, warm = session.run, session.warm
        threads: dict[int, int] = {}

        def warmed(worker: int) -> None:
            threads[worker] = get_ident()
            warm(worker)

        def changed(feeds: Arrays, worker: int = 0) -> Arrays:
            # As CUDA graphs are of the thread that captured them.
            assert threads.get(worker) in (None, get_ident())
            outputs = run(feeds, worker)
            # The last of several.
            if change is not None and worker == self._workers - 1:
                change(outputs)
            return outputs

        session.run, session.warm = changed, warmed  # type: ignore[method-assign]
        self.sessions.append(session)
        return session


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return Runtime("cpu")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LARGEST", 5)


@pytest.fixture(scope="module")
def models(gpu_folder: Path) -> dict[str, Subject]:
    return {subject.name: subject for subject in subjects(gpu_folder)}


@pytest.mark.parametrize("name", ["autoformer", "patchtst", "transformer"])
def test_a_sound_bundle_passes(models: dict[str, Subject], runtime: Runtime, name: str) -> None:
    found = check(models[name], runtime)
    assert (found.name, found.faults) == (name, [])
    assert found.replay_error is not None
    assert 0 <= found.replay_error < 1e-6
    said = [one.name for one in found.checks]
    assert "forecast.onnx, batch 3, natural windows" in said
    assert "forecast.onnx, offset 30 windows" in said
    assert any(one.startswith("explain.onnx, encoder.0.self") for one in said)
    assert ("choices, periodic windows" in said) == (name == "autoformer")


def off_in_large_batches(outputs: Arrays) -> None:
    if len(outputs["forecast"]) == 5:
        outputs["forecast"] = outputs["forecast"] * np.float32(1 + 1e-4)


def far_off(outputs: Arrays) -> None:
    outputs["forecast"] = outputs["forecast"] + np.float32(1)


def not_finite(outputs: Arrays) -> None:
    outputs["forecast"] = outputs["forecast"] * np.float32(np.nan)


def other_lags(outputs: Arrays) -> None:
    name = "encoder.0.self.lags"
    outputs[name] = (outputs[name] + 1) % 48


def other_weights(outputs: Arrays) -> None:
    name = "encoder.0.self.weights"
    outputs[name] = outputs[name] + np.float32(1e-3)


@pytest.mark.parametrize(
    ("name", "session", "change", "said"),
    [
        ("patchtst", REPLAYS, off_in_large_batches, "replays differ from plain runs by"),
        ("patchtst", PLAIN, off_in_large_batches, "replays differ from plain runs by"),
        ("patchtst", REPLAYS, far_off, "the probes' forecasts on CPUExecutionProvider differ"),
        ("patchtst", EXPLAIN, other_weights, "encoder.0.self, natural windows: error 1.0e-03"),
        ("autoformer", EXPLAIN, other_lags, "encoder.0.self, natural windows: error inf"),
        ("patchtst", EXPLAIN, not_finite, "differ from the expected ones by inf"),
    ],
)
def test_what_is_wrong_is_told(
    models: dict[str, Subject],
    runtime: Runtime,
    name: str,
    session: int,
    change: Change,
    said: str,
) -> None:
    wrong = Wrong(runtime, {session: change})
    found = check(models[name], wrong)  # type: ignore[arg-type]
    assert any(said in fault for fault in found.faults), found.faults


def test_the_rules_of_the_export_decide(
    models: dict[str, Subject], runtime: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slightly_off(outputs: Arrays) -> None:
        outputs["forecast"] = outputs["forecast"] * np.float32(1 + 5e-5)

    # The tolerance of probes is larger, for they are replayed on any device.
    wrong = Wrong(runtime, dict.fromkeys((REPLAYS, PLAIN, EXPLAIN), slightly_off))
    found = check(models["transformer"], wrong)  # type: ignore[arg-type]
    assert [fault.partition(",")[0] for fault in found.faults[:1]] == ["GPU 0: forecast.onnx"]
    assert any("natural windows: error 5.0e-05, at most 1e-05" in fault for fault in found.faults)


@pytest.mark.parametrize("turn", [0, 7])
def test_gpus_that_differ(models: dict[str, Subject], runtime: Runtime, turn: int) -> None:
    turns = count()

    def far_off_once(outputs: Arrays) -> None:
        if next(turns) == turn:
            far_off(outputs)

    wrong = Wrong(runtime, {REPLAYS: far_off_once}, workers=2)
    found = check(models["patchtst"], wrong)  # type: ignore[arg-type]
    assert len(found.faults) == 1
    assert "GPU 1 differs from the first of GPU 0 by" in found.faults[0]
    # Nothing was compared after that.
    assert (found.replay_error, found.checks) == (None, [])


def test_every_step_tells_its_faults(models: dict[str, Subject], runtime: Runtime) -> None:
    wrong = Wrong(runtime, {PLAIN: far_off, EXPLAIN: other_weights}, workers=2)
    found = check(models["patchtst"], wrong)  # type: ignore[arg-type]
    told = " ".join(found.faults)
    assert all(fault.startswith("GPU 1: ") for fault in found.faults)
    assert "the probes' forecasts on CPUExecutionProvider differ" in told
    assert "replays differ from plain runs by" in told
    assert "encoder.0.self, natural windows: error 1.0e-03" in told


def test_half_precision_rounds_the_last_digit(models: dict[str, Subject], runtime: Runtime) -> None:
    def rounded(outputs: Arrays) -> None:
        outputs["forecast"] = outputs["forecast"] * np.float32(1 + 2**-11)

    found = check(models["patchtst-float16"], Wrong(runtime, {PLAIN: rounded}))  # type: ignore[arg-type]
    assert found.faults == []
    assert found.replay_error is not None
    assert 1e-6 < found.replay_error < 2**-10


def test_a_gpu_that_captures_nothing_fails(models: dict[str, Subject], runtime: Runtime) -> None:
    wrong = Wrong(runtime, {})
    wrong.on_gpu = True
    found = check(models["patchtst"], wrong)  # type: ignore[arg-type]
    assert found.faults == [
        "on all GPUs at once: no CUDA graph could be captured; the log says why"
    ]


def test_all_is_closed_whatever_happens(models: dict[str, Subject], runtime: Runtime) -> None:
    for changes in ({}, {REPLAYS: far_off}):
        wrong = Wrong(runtime, changes)  # type: ignore[arg-type]
        check(models["patchtst"], wrong)  # type: ignore[arg-type]
        assert len(wrong.sessions) == 3
        assert all(session._session is None for session in wrong.sessions)  # type: ignore[attr-defined]


def test_it_needs_no_torch() -> None:
    code = "import sys, bench.gpu.__main__; print('torch' in sys.modules)"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert ran.stdout == "False\n"
