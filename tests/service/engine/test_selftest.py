"""The self-test of a model, and what failures of it mean."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from math import inf
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from foretell.bundle import layout, manifest
from foretell.bundle.distribution import Distribution
from foretell.bundle.errors import BundleError
from foretell.service.arrays import Arrays
from foretell.service.engine import selftest
from foretell.service.engine.selftest import Health, Seconds, SelfTest, fastest_batch
from foretell.service.errors import ModelFailedError
from tests.support.bundles import Spec, cluster_stage, lag_stage, write_bundle

SPEC = Spec()
LAGS = "encoder.1.self.lags"


class Repeats:
    """A session with the outputs of the graph of `SPEC`.

    Attributes:
        runs: Worker and number of windows of every run.
        factor: Multiplies the forecasts.
        steps: Number of steps of the forecasts.
    """

    graph = Path("forecast.onnx")
    provider = "a provider"

    def __init__(self, factor: float = 1, steps: int = SPEC.horizon) -> None:
        self.runs: list[tuple[int, int]] = []
        self.factor = factor
        self.steps = steps
        self.shrunk: list[int] = []

    def shrink(self, feeds: Arrays) -> None:
        self.shrunk.append(len(feeds["history"]))

    def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
        self.runs.append((worker, len(feeds["history"])))
        forecast = SPEC.forecast(feeds["history"])[:, : self.steps]
        return {"forecast": forecast * np.float32(self.factor)}


def self_test(folder: Path, max_batch: int = 8, spec: Spec = SPEC) -> SelfTest:
    bundle = write_bundle(folder, spec)
    probes = (bundle / layout.PROBES).read_bytes()
    return SelfTest(bundle, manifest.read(bundle), probes, max_batch)


class Draws(Repeats):
    """A session with distributions.

    Args:
        parameters: How many numbers each has.
    """

    def __init__(self, parameters: int) -> None:
        super().__init__()
        self.parameters = parameters

    def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
        outputs = super().run(feeds, worker)
        shape = (*outputs["forecast"].shape, self.parameters)
        return outputs | {"distribution": np.ones(shape, np.float32)}


def test_distributions_have_the_parameters_of_the_manifest(tmp_path: Path) -> None:
    described = Distribution.of("student-t")
    test = self_test(tmp_path, spec=Spec(changes={"distribution": described}))
    test.replay(Draws(3), 0)
    with pytest.raises(
        BundleError, match=r"distribution of probes is \(3, 4, 1, 2\), not \(3, 4, 1, 3\)"
    ):
        test.replay(Draws(2), 0)


@pytest.mark.parametrize(
    ("max_batch", "windows"), [(8, [3, 1]), (3, [3, 1]), (2, [2, 1, 1]), (1, [1, 1, 1, 1])]
)
def test_replay_runs_all_probes_and_a_single_one(
    tmp_path: Path, max_batch: int, windows: list[int]
) -> None:
    session = Repeats()
    self_test(tmp_path, max_batch).replay(session, 2)
    assert session.runs == [(2, count) for count in windows]


def test_other_forecasts_are_refused(tmp_path: Path) -> None:
    test = self_test(tmp_path)
    test.replay(Repeats(factor=1 + 1e-6))
    with pytest.raises(BundleError, match=r"forecasts on a provider differ from .* by 0\.0\d+, ov"):
        test.replay(Repeats(factor=1.02))
    with pytest.raises(BundleError, match="differ"):
        test.replay(Repeats(factor=np.nan))
    with pytest.raises(BundleError, match=r"forecast of probes is \(3, 3, 1\), not \(3, 4, 1\)"):
        test.replay(Repeats(steps=3))
    with pytest.raises(BundleError, match=r"probes\.npz: forecasts \(4, 1\), not \(5, 1\)"):
        self_test(tmp_path / "longer", spec=Spec(changes={"horizon": 5}))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (np.zeros((3, 2, 8, 2), np.int64), ""),
        (np.zeros((3, 2, 8, 2), np.int32), r"routing\.1\.keys is int32 .*, not int64 "),
        (np.zeros((3, 2, 8, 3), np.int64), r"is int64 \(3, 2, 8, 3\), not int64 \(3, 2, 8, 2\)"),
        (np.zeros((3, 2, 8), np.int64), r"keys is int64 \(3, 2, 8\), not"),
        (np.zeros((1, 2, 8, 2), np.int64), r"keys is int64 \(1, 2, 8, 2\), not"),
    ],
)
def test_attention_that_contradicts_the_manifest_is_refused(
    tmp_path: Path, keys: np.ndarray, message: str
) -> None:
    class Explains(Repeats):
        def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
            windows = len(feeds["history"])
            # Lags may be as many as there are.
            attention = {"routing.1.keys": keys[:windows], LAGS: np.zeros((windows, 5), np.int64)}
            return super().run(feeds, worker) | attention

    test = self_test(tmp_path, spec=Spec(stages=(cluster_stage(), lag_stage())))
    refused = pytest.raises(BundleError, match=rf"forecast\.onnx: .*{message}")
    with refused if message else nullcontext():
        test.replay(Explains())


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", b"[1, 2]"])
def test_unreadable_probes_are_refused(tmp_path: Path, content: bytes) -> None:
    bundle = write_bundle(tmp_path, SPEC)
    with pytest.raises(BundleError, match=r"probes\.npz"):
        SelfTest(bundle, manifest.read(bundle), content, 8)


def test_runs_of_several_sizes_are_timed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_TIMING_SECONDS", 3600)
    monkeypatch.setattr(selftest, "_MOST_TIMING_SECONDS", 3600)
    session, seconds = Repeats(), Seconds()
    self_test(tmp_path).time_runs(session, seconds, 1)
    assert session.runs == 12 * [(1, 2), (1, 4), (1, 8), (1, 16)]
    assert {size: len(each) for size, each in seconds.items()} == dict.fromkeys((2, 4, 8, 16), 12)
    assert session.shrunk == [1]


# A round uses 34 seconds of CPU and takes 234; its last run uses 17, and may use twice as many.
@pytest.mark.parametrize(
    ("limit", "most", "rounds"),
    [(34 + 17 + 18, 1000, 2), (34 + 33, 1000, 1), (1000, 233, 1), (1000, 467, 2)],
)
def test_timing_counts_cpu_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int, most: int, rounds: int
) -> None:
    class DelayedSession(Repeats):
        """A run takes a second of CPU, and one for each window; larger runs also wait for the CPU.

        Attributes:
            used: CPU seconds.
            now: Seconds.
        """

        used = 5.0
        now = 700.0

        def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
            windows = len(feeds["history"])
            self.used += 1 + windows
            self.now += 1 + windows + (200 if windows == 16 else 0)
            return super().run(feeds, worker)

    session, seconds = DelayedSession(), Seconds()
    clocks = SimpleNamespace(thread_time=lambda: session.used, monotonic=lambda: session.now)
    monkeypatch.setattr(selftest, "time", clocks)
    monkeypatch.setattr(selftest, "_TIMING_SECONDS", limit)
    monkeypatch.setattr(selftest, "_MOST_TIMING_SECONDS", most)
    self_test(tmp_path).time_runs(session, seconds, 0)
    assert seconds == {size: rounds * [1 + 1 / size] for size in (2, 4, 8, 16)}
    assert fastest_batch(seconds, 2) == 16


def test_timing_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "_TIMING_SECONDS", 0)
    session, seconds = Repeats(), Seconds()
    self_test(tmp_path).time_runs(session, seconds, 0)
    assert session.runs == [(0, 2)]
    assert session.shrunk == [1]


def test_sizes_that_fail_are_not_chosen(tmp_path: Path) -> None:
    class Small(Repeats):
        def run(self, feeds: Arrays, worker: int = 0) -> Arrays:
            if len(feeds["history"]) > 4:
                raise ModelFailedError("out of memory")
            return super().run(feeds, worker)

    seconds = Seconds()
    test = self_test(tmp_path)
    test.time_runs(Small(), seconds, 0)
    assert fastest_batch(seconds, 8) in (2, 4)
    # If memory is short for one worker, it is also short for the next one.
    test.time_runs(Repeats(), seconds, 1)
    assert fastest_batch(seconds, 8) in (2, 4)


@pytest.mark.parametrize(
    ("seconds", "size"),
    [
        ({}, 8),
        ({2: [1.0], 4: [1.0], 8: [1.04], 16: [1.1]}, 8),
        ({2: [1.0], 4: [1.02], 8: [1.06], 16: [1.1]}, 2),
        ({2: [2.0], 4: [1.5], 8: [1.2], 16: [1.0]}, 16),
        # One that was slow by chance.
        ({2: [2.0], 8: [1.0, 9.0, 1.0], 16: [1.0]}, 8),
        # Other programs delayed most of the larger runs.
        ({4: [1.2, 1.2, 1.2, 1.2], 8: [1.0, 1.0, 5.0, 6.0]}, 8),
        # The memory of one worker is too small.
        ({2: [1.0], 4: [1.0], 8: [inf], 16: [0.5]}, 4),
        # The time was over before larger batches were tried.
        ({2: [1.0], 4: [1.01]}, 4),
        ({2: [1.0], 4: [1.2]}, 2),
    ],
)
def test_default_batch_is_kept_unless_another_is_clearly_faster(
    seconds: Seconds, size: int
) -> None:
    assert fastest_batch(seconds, 8) == size


class ScriptedTest:
    """A self-test with scripted results.

    Attributes:
        outcomes: Results of the next runs; `None` passes. The last one is repeated.
        ran: Released once for every run.
    """

    def __init__(self, *outcomes: str | None) -> None:
        self.outcomes = list(outcomes)
        self.ran = threading.Semaphore(0)
        self.thread: threading.Thread | None = None

    def __call__(self) -> None:
        self.thread = threading.current_thread()
        outcome = self.outcomes.pop(0) if len(self.outcomes) > 1 else self.outcomes[0]
        self.ran.release()
        if outcome is not None:
            raise ModelFailedError(outcome)

    def finished(self) -> None:
        """Wait for the thread of the tests to end."""
        assert self.ran.acquire(timeout=30)
        assert self.thread is not None
        self.thread.join(30)
        assert not self.thread.is_alive()


def test_failing_histories_do_not_make_a_model_unready() -> None:
    test = ScriptedTest(None)
    health = Health("one@1", test, lambda: None, first_seconds=0)
    for _ in range(3):
        health.failed()
    test.finished()
    assert health.failure is None


def test_failures_between_successes_start_no_test() -> None:
    test = ScriptedTest("not run")
    health = Health("one@1", test, lambda: None)
    for _ in range(10):
        health.failed()
        health.failed()
        health.succeeded()
    assert test.thread is None


def test_model_that_fails_its_test_is_unready_until_it_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    test = ScriptedTest("wrong forecasts", "still wrong", None)
    failures: list[str | None] = []
    health = Health("one@1", test, lambda: failures.append(health.failure), first_seconds=0)
    for _ in range(5):
        health.failed()
    test.finished()
    assert health.failure is None
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["one@1 has failed: wrong forecasts", "one@1 works again"]
    assert failures == ["wrong forecasts", "still wrong", None]


def test_tests_are_a_minute_apart_at_most() -> None:
    waits: list[float] = []

    class Closed(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waits.append(timeout)
            return len(waits) > 12

    test = ScriptedTest("out of memory")
    health = Health("one@1", test, lambda: None)
    health._closed = Closed()
    for _ in range(3):
        health.failed()
    test.finished()
    assert waits == [0, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60]


def test_test_starts_at_the_next_failure_if_no_thread_starts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    test = ScriptedTest("broken", None)
    health = Health("one@1", test, lambda: None, first_seconds=0)
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        for _ in range(3):
            health.failed()
    assert "one@1 cannot be tested: can't start new thread" in caplog.text
    assert health.failure is None
    health.failed()
    test.finished()
    assert "one@1 works again" in caplog.text
    assert health.failure is None
