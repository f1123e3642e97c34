"""Checks of a bundle on a device, for which the CPU stands in, and their references."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from threading import get_ident

import numpy as np
import pytest

from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import read as read_manifest
from foretell.data.reading import Reading, read
from foretell.export.comparison import Case, Reference
from foretell.export.window_set import WindowSet
from foretell.export.write import export_checkpoint
from foretell.service.arrays import Arrays
from foretell.service.engine.runtime import Runtime
from foretell.service.session import Session
from foretell.training.config import TrainingConfig
from foretell.training.train import train
from foretell.verification import device as module
from foretell.verification import reference
from foretell.verification.device import (
    CPU,
    REPLAY,
    FaultError,
    Finding,
    Subject,
    check,
    time_batches,
)
from tests.support.trained import bundles, checkpoints, data, in_turn
from tests.training.test_covariates import frame

__all__ = ["bundles", "checkpoints", "data", "in_turn"]

Change = Callable[[Arrays], None]
REPLAYS, PLAIN, EXPLAIN = range(3)


class ChangedRuntime:
    """A runtime whose sessions change their outputs.

    Args:
        runtime: Opens the real sessions.
        changes: Changes of outputs by number of the session.
        workers: Number of GPUs that it reports.
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
            # A CUDA graph may only be replayed by the thread that captured it.
            assert threads.get(worker) in (None, get_ident())
            outputs = run(feeds, worker)
            # Only the outputs of the last GPU are wrong.
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


def found(subject: Subject, runtime: Runtime | ChangedRuntime) -> Finding:
    return check(subject, runtime)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["autoformer", "patchtst", "transformer"])
def test_sound_bundle_passes(models: dict[str, Subject], runtime: Runtime, name: str) -> None:
    finding = found(models[name], runtime)
    assert finding.faults == []
    assert finding.replay_error is not None
    assert 0 <= finding.replay_error < 1e-6
    names = [one.name for one in finding.checks]
    assert "forecast.onnx, batch 3, natural windows" in names
    assert "forecast.onnx, offset 30 windows" in names
    assert any(one.startswith("explain.onnx, encoder.0.self") for one in names)
    assert ("choices, periodic windows" in names) == (name == "autoformer")


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
    ("name", "session", "change", "message"),
    [
        ("patchtst", REPLAYS, off_in_large_batches, "replays differ from plain runs by"),
        ("patchtst", PLAIN, off_in_large_batches, "replays differ from plain runs by"),
        ("patchtst", REPLAYS, far_off, "the probes' forecasts on CPUExecutionProvider differ"),
        ("autoformer", EXPLAIN, other_lags, "encoder.0.self, natural windows: error inf"),
        ("patchtst", EXPLAIN, not_finite, "differ from the expected ones by inf"),
    ],
)
def test_faults_are_reported(
    models: dict[str, Subject],
    runtime: Runtime,
    name: str,
    session: int,
    change: Change,
    message: str,
) -> None:
    faults = found(models[name], ChangedRuntime(runtime, {session: change})).faults
    assert any(message in fault for fault in faults), faults


def test_faults_of_every_step_are_named(models: dict[str, Subject], runtime: Runtime) -> None:
    wrong = ChangedRuntime(runtime, {PLAIN: far_off, EXPLAIN: other_weights}, workers=2)
    faults = found(models["patchtst"], wrong).faults
    messages = " ".join(faults)
    assert all(fault.startswith("device 1: ") for fault in faults)
    assert "the probes' forecasts on CPUExecutionProvider differ" in messages
    assert "replays differ from plain runs by" in messages
    assert "encoder.0.self, natural windows: error 1.0e-03" in messages


def test_rules_of_the_export_decide(models: dict[str, Subject], runtime: Runtime) -> None:
    def slightly_off(outputs: Arrays) -> None:
        outputs["forecast"] = outputs["forecast"] * np.float32(1 + 5e-5)

    # The tolerance of probes is larger, for they are replayed on any device.
    wrong = ChangedRuntime(runtime, dict.fromkeys((REPLAYS, PLAIN, EXPLAIN), slightly_off))
    faults = found(models["transformer"], wrong).faults
    assert faults[0].startswith("device 0: forecast.onnx,")
    assert any("natural windows: error 5.0e-05, not 1e-05 at most" in fault for fault in faults)


@pytest.mark.parametrize("turn", [0, 7])
def test_gpus_that_differ_are_named(
    models: dict[str, Subject], runtime: Runtime, turn: int
) -> None:
    turns = count()

    def far_off_once(outputs: Arrays) -> None:
        if next(turns) == turn:
            far_off(outputs)

    finding = found(models["patchtst"], ChangedRuntime(runtime, {REPLAYS: far_off_once}, workers=2))
    assert len(finding.faults) == 1
    assert "device 1 differs from the first run by" in finding.faults[0]
    # Further comparisons are left out.
    assert (finding.replay_error, finding.checks) == (None, [])


def test_half_precision_rounds_the_last_digit(models: dict[str, Subject], runtime: Runtime) -> None:
    def rounded(outputs: Arrays) -> None:
        outputs["forecast"] = outputs["forecast"] * np.float32(1 + 2**-11)

    finding = found(models["patchtst-float16"], ChangedRuntime(runtime, {PLAIN: rounded}))
    assert finding.faults == []
    assert finding.replay_error is not None
    assert 1e-6 < finding.replay_error < 2**-10


def test_gpu_without_captures_fails(models: dict[str, Subject], runtime: Runtime) -> None:
    wrong = ChangedRuntime(runtime, {})
    wrong.on_gpu = True
    assert found(models["patchtst"], wrong).faults == [
        "on all devices at once: no CUDA graph could be captured; the log says why"
    ]


@pytest.mark.parametrize("changes", [{}, {REPLAYS: far_off}])
def test_sessions_are_closed(
    models: dict[str, Subject], runtime: Runtime, changes: dict[int, Change]
) -> None:
    wrong = ChangedRuntime(runtime, changes)
    found(models["patchtst"], wrong)
    assert len(wrong.sessions) == 3
    assert all(session._session is None for session in wrong.sessions)  # type: ignore[attr-defined]


class Captures(ChangedRuntime):
    """A runtime whose sessions report whether they replay CUDA graphs."""

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
    times = time_batches(models["patchtst"], gpu, [1, 64], seconds=0.001)  # type: ignore[arg-type]
    assert {batch: [*by_way] for batch, by_way in times.items()} == {
        1: [REPLAY, module.PLAIN, CPU],
        # A CPU would need long for more than 32 windows.
        64: [REPLAY, module.PLAIN],
    }
    assert all(seconds > 0 for by_way in times.values() for seconds in by_way.values())
    assert [*time_batches(models["patchtst"], runtime, [2], seconds=0.001)[2]] == [CPU]


def test_times_need_captures(models: dict[str, Subject], runtime: Runtime) -> None:
    gpu = Captures(runtime, captures=False)
    with pytest.raises(FaultError, match="not every batch up to 2 can be captured"):
        time_batches(models["patchtst"], gpu, [1, 2], seconds=0.001)  # type: ignore[arg-type]


def test_without_cases_the_probes_are_compared(
    models: dict[str, Subject], runtime: Runtime
) -> None:
    subject = Subject(models["transformer"].folder, models["transformer"].manifest, {})
    finding = found(subject, runtime)
    assert (finding.faults, finding.checks) == ([], [])
    finding = found(subject, ChangedRuntime(runtime, {EXPLAIN: far_off}))
    assert "the probes' forecasts on CPUExecutionProvider differ" in finding.faults[0]


def test_reference_cases_are_natural_and_adversarial(models: dict[str, Subject]) -> None:
    cases = models["transformer"].cases
    natural = cases[reference.NATURAL]
    assert natural.exact.forecast.dtype == np.float64
    assert natural.exact.forecast.shape == (32, 12, 3)
    assert "history_calendar" in natural.windows.inputs
    assert set(cases) > {reference.NATURAL, "constant", "offset 10000"}
    assert cases["constant"].rounded is not None


def test_reference_cases_have_the_covariates_of_the_model(tmp_path: Path) -> None:
    table = frame("a")
    # A name of later rows, which comes first in the alphabet.
    table.loc[len(table) - 60 :, "sky"] = "fog"
    table["cloud"] = table["sky"]
    table.to_csv(tmp_path / "data.csv", index=False)
    kinds = {"future_covariates": "sky", "past_covariates": "cloud", "channels": "y"}
    settings = TrainingConfig(
        arch="dlinear", context=24, horizon=4, epochs=1, unseen_categories="other"
    )
    train(settings, read(tmp_path / "data.csv", Reading(**kinds)), tmp_path / "model")
    cases = reference.of_checkpoint(tmp_path / "model", None)
    inputs = cases[reference.NATURAL].windows.inputs
    assert (inputs["future_covariates"] == 2).all()
    assert inputs["history"].shape[1:] == (24, 3)
    assert not inputs["history"][:, -1, 1:].any()


def test_reference_cases_are_read_as_they_were_saved(tmp_path: Path) -> None:
    path = tmp_path / "r.npz"
    with pytest.raises(BundleError, match=r"r\.npz: No such file"):
        reference.read(path)
    path.write_text("x")
    with pytest.raises(BundleError, match=r"r\.npz: "):
        reference.read(path)
    history, future = np.ones((2, 3, 1), np.float32), np.zeros((2, 4, 1), np.float32)
    windows = WindowSet("any", {"history": history, "future_calendar": future})
    outputs = {"forecast": np.arange(2.0), "encoder.0.self.lags": np.arange(3)}
    reference.save({"any": Case(windows, Reference(outputs), None)}, path)
    [(name, case)] = reference.read(path).items()
    assert (name, case.rounded) == ("any", None)
    np.testing.assert_equal(case.windows.inputs, windows.inputs)
    np.testing.assert_equal(dict(case.exact.outputs), outputs)


def test_reference_cases_of_earlier_versions_are_read(tmp_path: Path) -> None:
    path, history, forecast = tmp_path / "r.npz", np.ones((2, 3, 1), np.float32), np.arange(2.0)
    arrays = {"any/history": history, "any/exact/forecast": forecast}
    np.savez(path, allow_pickle=False, **arrays)
    case = reference.read(path)["any"]
    assert len(case.windows) == 2
    np.testing.assert_equal(case.windows.inputs, {"history": history})
    np.testing.assert_equal(case.exact.forecast, forecast)
