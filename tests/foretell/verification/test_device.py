"""The CPU stands in for the GPU."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import get_ident

import numpy as np
import pytest

from foretell.bundle.manifest import read as read_manifest
from foretell.export.write import export_checkpoint
from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session
from foretell.verification import device as module
from foretell.verification import reference
from foretell.verification.device import CPU, REPLAY, FaultError, Subject, check, time_batches

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

    def inference_threads(self, threads: int) -> int:
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
def models(
    checkpoints: dict[str, Path],
    bundles: dict[str, Path],
    data: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> dict[str, Subject]:
    """A bundle of each architecture, and one in half precision."""
    folders = {name: (name, folder) for name, folder in bundles.items()}
    half = tmp_path_factory.mktemp("half")
    made = export_checkpoint(checkpoints["patchtst"], half, data=data, precision="float16")
    folders["patchtst-float16"] = "patchtst", made
    cases = {name: reference.of_checkpoint(path, data) for name, path in checkpoints.items()}
    return {
        name: Subject(folder, read_manifest(folder), cases[model])
        for name, (model, folder) in folders.items()
    }


@pytest.mark.parametrize("name", ["autoformer", "patchtst", "transformer"])
def test_a_sound_bundle_passes(models: dict[str, Subject], runtime: Runtime, name: str) -> None:
    found = check(models[name], runtime)
    assert found.faults == []
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
    assert [fault.partition(",")[0] for fault in found.faults[:1]] == ["device 0: forecast.onnx"]
    assert any(
        "natural windows: error 5.0e-05, not 1e-05 at most" in fault for fault in found.faults
    )


@pytest.mark.parametrize("turn", [0, 7])
def test_gpus_that_differ(models: dict[str, Subject], runtime: Runtime, turn: int) -> None:
    turns = count()

    def far_off_once(outputs: Arrays) -> None:
        if next(turns) == turn:
            far_off(outputs)

    wrong = Wrong(runtime, {REPLAYS: far_off_once}, workers=2)
    found = check(models["patchtst"], wrong)  # type: ignore[arg-type]
    assert len(found.faults) == 1
    assert "device 1 differs from the first run by" in found.faults[0]
    # Nothing was compared after that.
    assert (found.replay_error, found.checks) == (None, [])


def test_every_step_tells_its_faults(models: dict[str, Subject], runtime: Runtime) -> None:
    wrong = Wrong(runtime, {PLAIN: far_off, EXPLAIN: other_weights}, workers=2)
    found = check(models["patchtst"], wrong)  # type: ignore[arg-type]
    told = " ".join(found.faults)
    assert all(fault.startswith("device 1: ") for fault in found.faults)
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
        "on all devices at once: no CUDA graph could be captured; the log says why"
    ]


def test_all_is_closed_whatever_happens(models: dict[str, Subject], runtime: Runtime) -> None:
    for changes in ({}, {REPLAYS: far_off}):
        wrong = Wrong(runtime, changes)  # type: ignore[arg-type]
        check(models["patchtst"], wrong)  # type: ignore[arg-type]
        assert len(wrong.sessions) == 3
        assert all(session._session is None for session in wrong.sessions)  # type: ignore[attr-defined]


class Captures(Wrong):
    """A runtime whose sessions say whether they replay CUDA graphs."""

    on_gpu = True

    def __init__(self, runtime: Runtime, captures: bool) -> None:
        super().__init__(runtime, {})
        self._captures = captures

    def open(self, graph: Path, **options: int | None) -> Session:
        session = super().open(graph, **options)
        session.captures = self._captures  # type: ignore[attr-defined]
        return session


def test_batches_are_timed_in_every_way(models: dict[str, Subject], runtime: Runtime) -> None:
    gpu = Captures(runtime, captures=True)
    found = time_batches(models["patchtst"], gpu, [1, 64], seconds=0.001)  # type: ignore[arg-type]
    assert {batch: [*by_way] for batch, by_way in found.items()} == {
        1: [REPLAY, module.PLAIN, CPU],
        # With more windows than 32 it takes a CPU long.
        64: [REPLAY, module.PLAIN],
    }
    assert all(seconds > 0 for by_way in found.values() for seconds in by_way.values())
    assert [*time_batches(models["patchtst"], runtime, [2], seconds=0.001)[2]] == [CPU]


def test_times_of_what_replays_nothing_are_none(
    models: dict[str, Subject], runtime: Runtime
) -> None:
    gpu = Captures(runtime, captures=False)
    with pytest.raises(FaultError, match="not every batch up to 2 can be captured"):
        time_batches(models["patchtst"], gpu, [1, 2], seconds=0.001)  # type: ignore[arg-type]


def test_without_cases_the_probes_are_compared(
    models: dict[str, Subject], runtime: Runtime
) -> None:
    subject = Subject(models["transformer"].folder, models["transformer"].manifest, {})
    found = check(subject, runtime)
    assert (found.faults, found.checks) == ([], [])
    found = check(subject, Wrong(runtime, {EXPLAIN: far_off}))  # type: ignore[arg-type]
    assert "the probes' forecasts on CPUExecutionProvider differ" in found.faults[0]
