from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnxruntime
import pytest

from foretell.bundle import layout
from foretell.bundle.errors import BundleError
from foretell.bundle.manifest import Manifest
from foretell.service.arrays import Arrays
from foretell.service.engine.model import Capacity, Model, attention_values
from foretell.service.engine.runtime import Runtime
from foretell.service.engine.scheduler import Scheduler
from foretell.service.errors import DeviceLostError, ModelFailedError, NotReadyError, StartError
from foretell.service.session import Session
from tests.service.conftest import Quiet
from tests.service.engine.conftest import LAGS, HeldOpening, explain, forecast
from tests.support.bundles import (
    Spec,
    lag_stage,
    rewrite_manifest,
    softmax_stage,
    write_bundle,
)
from tests.support.waiting import until

Open = Callable[[Path], Model]


EXPLAINS = Spec(stages=(lag_stage(),))


def test_model_run_shares_batches_among_all_threads(runtime: Runtime, tmp_path: Path) -> None:
    spec, scheduler = Spec(channels=("a", "b")), Scheduler(threads=2)
    model = Model(write_bundle(tmp_path, spec), runtime, scheduler, Capacity(3, 0, 0), Quiet())
    session = Watched(model._sessions[layout.FORECAST_GRAPH])
    model._sessions[layout.FORECAST_GRAPH] = session
    history = np.random.default_rng(0).normal(size=(20, 8, 2)).astype(np.float32)
    outputs = model.run({"history": history})
    np.testing.assert_allclose(outputs["forecast"], spec.forecast(history), rtol=1e-6)
    assert sorted(size for _, size in session.runs) == [2, 3, 3, 3, 3, 3, 3]
    assert {worker for worker, _ in session.runs} == {0, 1}
    session.lost = 1
    with pytest.raises(ModelFailedError, match=r"expected . windows of outputs, got forecast"):
        model.run({"history": history})
    session.error = ModelFailedError("onnxruntime could not run the model")
    with pytest.raises(ModelFailedError, match="could not run"):
        model.run({"history": history})
    session.error = RuntimeError("odd")
    with pytest.raises(ModelFailedError):
        model.run({"history": history})
    ran = len(session.runs)
    session.error = DeviceLostError("the device is lost")
    for _ in range(3):
        with pytest.raises(DeviceLostError, match="the device is lost"):
            model.run({"history": history})
    # A thread that has lost its device takes no more batches.
    assert len(session.runs) == ran + 2
    model.close(5)
    scheduler.close(5)
    with pytest.raises(NotReadyError):
        model.run({"history": history})


class Watched:
    """A session of which two workers must be at once; it can lose rows, or fail."""

    def __init__(self, session: Session) -> None:
        self.runs: list[tuple[int, int]] = []
        self.lost = 0
        self.error: Exception | None = None
        self._session = session
        self._begun: set[int] = set()
        self._together = threading.Barrier(2)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, feeds: Arrays, worker: int) -> Arrays:
        if worker not in self._begun:
            self._begun.add(worker)
            self._together.wait(30)
        self.runs.append((worker, len(feeds["history"])))
        if self.error is not None:
            raise self.error
        outputs = self._session.run(feeds, worker)
        return {name: rows[self.lost :] for name, rows in outputs.items()}


def test_weights_of_the_attention_graph_are_counted() -> None:
    stages = (lag_stage(), softmax_stage(), softmax_stage(name="b.0", channels=2))
    manifest = Manifest.model_construct(channels=("a", "b"), attention=stages)
    # The number of lags is unknown: at most the number of steps.
    assert attention_values(manifest) == 1 + 3 * 8 + 2 * 9 + 2 * 2 * 9
    assert attention_values(Manifest.model_construct(channels=("a",), attention=())) == 1


def test_close_stops_a_run_that_takes_too_long(
    open_model: Open, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model = open_model(write_bundle(tmp_path, Spec(burn=300)))
    running = forecast(model)
    while model.usage.windows:
        time.sleep(0.001)
    model.close(0)
    with pytest.raises(ModelFailedError):
        running.result(0)


@pytest.mark.parametrize(
    "file", [layout.FORECAST_GRAPH, layout.EXPLAIN_GRAPH, layout.WEIGHTS, layout.PROBES]
)
def test_a_changed_file_is_refused(open_model: Open, tmp_path: Path, file: str) -> None:
    folder = write_bundle(tmp_path, Spec())
    content = bytearray((folder / file).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / file).write_bytes(content)
    with pytest.raises(BundleError, match=f"{file}: sha256 differs"):
        open_model(folder)


def test_a_bundle_under_another_name_is_refused(open_model: Open, tmp_path: Path) -> None:
    folder = write_bundle(tmp_path, Spec())
    folder = folder.rename(folder.parent / "2")
    with pytest.raises(
        BundleError, match="the manifest is of repeat version 1; `foretell publish`"
    ):
        open_model(folder)
    (folder / layout.WEIGHTS).write_bytes(b"damaged")
    with pytest.raises(BundleError, match="sha256 differs"):
        open_model(folder)


def test_a_bundle_for_other_devices_is_refused(
    open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for_gpus = write_bundle(tmp_path, Spec(changes={"devices": ("cuda",)}))
    for_cpus = write_bundle(tmp_path, Spec(version="2", changes={"devices": ("cpu",)}))
    open_model(for_cpus)
    with pytest.raises(BundleError, match=r"1: is for cuda alone: .* without a kernel on the CPU"):
        open_model(for_gpus)
    monkeypatch.setattr(Runtime, "on_gpu", True)
    with pytest.raises(BundleError, match=r"2: is for cpu alone: .* without a kernel on CUDA"):
        open_model(for_cpus)


def test_log_names_the_onnxruntime_of_the_export(
    open_model: Open, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "foretell.service.engine.graphs")
    spec = Spec(changes={"libraries": {"onnxruntime": "1.2.3"}})
    open_model(write_bundle(tmp_path, spec))
    message = "exported with onnxruntime 1.2.3; its probes pass under "
    assert message + onnxruntime.__version__ in caplog.text


@pytest.mark.parametrize(
    "failure",
    [
        BundleError("onnxruntime refuses it: Failed to allocate memory"),
        StartError("no GPU"),
        OSError("Stale file handle"),
        MemoryError(),
    ],
)
def test_broken_attention_graph_fails_only_runs_with_attention(
    open_model: Open,
    runtime: Runtime,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception,
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))
    opened: list[str] = []

    def fail(graph: Path, **options: int | None) -> Session:
        opened.append(graph.name)
        raise failure

    monkeypatch.setattr("foretell.service.engine.model._REOPEN_SECONDS", 3600)
    with monkeypatch.context() as broken:
        broken.setattr(runtime, "open", fail)
        for _ in range(3):
            with pytest.raises(ModelFailedError) as error:
                explain(model).result(30)
            assert str(error.value.__cause__) == (str(failure) or "MemoryError")
            forecast(model).result(30)
    # Requests until the next attempt are refused at once.
    assert opened == [layout.EXPLAIN_GRAPH]
    model._attention.retry_at -= 3600
    assert LAGS in explain(model).result(30)


def test_attention_graph_that_fails_at_once_is_opened_again(
    open_model: Open,
    runtime: Runtime,
    scheduler: Scheduler,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))
    beside = scheduler.beside

    def beside_and_failed(function: Callable[[], None]) -> Future[None]:
        call = beside(function)
        until(lambda: model._attention.failure != "")
        return call

    with monkeypatch.context() as broken:
        broken.setattr(runtime, "open", Mock(side_effect=BundleError("no memory")))
        broken.setattr(scheduler, "beside", beside_and_failed)
        with pytest.raises(ModelFailedError, match="could not be opened again"):
            explain(model).result(30)
    model._attention.retry_at = 0.0
    assert LAGS in explain(model).result(30)


def test_forecasts_run_while_the_attention_graph_opens(
    open_model: Open, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))
    opening = HeldOpening(runtime, monkeypatch)
    explanations = [explain(model) for _ in range(3)]
    assert opening.began.wait(30)
    assert "forecast" in forecast(model).result(30)
    assert model.usage.windows == 3
    assert not any(work.done() for work in explanations)
    opening.go_on.set()
    assert all(LAGS in work.result(30) for work in explanations)
    explain(model).result(30)
    assert opening.opened == [layout.EXPLAIN_GRAPH]


def test_an_attention_graph_that_opens_too_late_is_closed(
    open_model: Open,
    runtime: Runtime,
    tracked: list[TrackedSession],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))
    opening = HeldOpening(runtime, monkeypatch)
    explanation = explain(model)
    assert opening.began.wait(30)
    closing = threading.Thread(target=model.close, args=(0,))
    closing.start()
    with pytest.raises(NotReadyError, match="stopped before this was run"):
        explanation.result(30)
    until(lambda: model._closed)
    opening.go_on.set()
    closing.join(30)
    until(lambda: [session.closed for session in tracked] == [True, True, True])
    assert model._sessions == {}


def test_attention_graphs_open_one_at_a_time_and_not_after_close(
    open_model: Open, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [
        open_model(write_bundle(tmp_path, Spec(name=name, stages=(lag_stage(),)))) for name in "abc"
    ]
    opening = HeldOpening(runtime, monkeypatch)
    first = explain(models[0])
    assert opening.began.wait(30)
    others = [explain(model) for model in models[1:]]
    models[1].close(0)
    assert opening.opened == [layout.EXPLAIN_GRAPH]
    opening.go_on.set()
    assert LAGS in first.result(30)
    assert LAGS in others[1].result(30)
    with pytest.raises(NotReadyError, match="stopped before this was run"):
        others[0].result(30)
    assert opening.opened == 2 * [layout.EXPLAIN_GRAPH]


def test_closing_waits_for_the_attention_graph_that_opens(
    open_model: Open, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.model._STOP_SECONDS", 0)
    model = open_model(write_bundle(tmp_path, EXPLAINS))
    opening = HeldOpening(runtime, monkeypatch)
    explanation = explain(model)
    assert opening.began.wait(30)
    explanation.cancel()
    closing = threading.Thread(target=model.close, args=(30,))
    closing.start()
    until(lambda: model._closed)
    opening.go_on.set()
    closing.join(30)
    assert model._attention.opener is not None
    assert model._attention.opener.done()


def test_attention_needs_no_new_thread(
    open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        run = explain(model)
    assert LAGS in run.result(30)


class FailingSession:
    """A session that fails while `error` is set."""

    def __init__(self, session: Session) -> None:
        self.broken = True
        self.error: Exception = ModelFailedError("onnxruntime could not run the model")
        self.runs = 0
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, *arguments: Any) -> Arrays:
        self.runs += 1
        if self.broken:
            raise self.error from RuntimeError("lost")
        return self._session.run(*arguments)


def test_model_with_a_broken_session_is_unready_until_it_works(
    open_model: Open, tmp_path: Path
) -> None:
    model = open_model(write_bundle(tmp_path, Spec()))
    model._health._first_seconds = 0.01
    session = FailingSession(model._sessions[layout.FORECAST_GRAPH])
    model._sessions[layout.FORECAST_GRAPH] = session
    for _ in range(3):
        with pytest.raises(ModelFailedError, match="could not run"):
            forecast(model).result(30)
    until(lambda: model.failure is not None)
    # Clients without a key see it too, without the path of the repository.
    assert str(model.failure).startswith(f"{model.name}/1/forecast.onnx: probes: lost")
    with pytest.raises(ModelFailedError, match="the model has failed; /readyz says why"):
        forecast(model)
    session.broken = False
    until(lambda: model.failure is None)
    forecast(model).result(30)


def test_lost_device_is_not_a_failure_of_the_model(
    open_model: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.selftest._FAILURES", 1)
    model = open_model(write_bundle(tmp_path, Spec()))
    session = FailingSession(model._sessions[layout.FORECAST_GRAPH])
    session.error = DeviceLostError("GPU 0 is lost")
    model._sessions[layout.FORECAST_GRAPH] = session
    for _ in range(2):
        with pytest.raises(DeviceLostError, match="GPU 0 is lost"):
            forecast(model).result(30)
    # The only worker has lost its device: no runs, and no self-test.
    assert (model.failure, session.runs) == (None, 1)


class TrackedSession:
    """A session that records whether it was closed."""

    def __init__(self, session: Session) -> None:
        self.closed = False
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def close(self) -> None:
        self.closed = True
        self._session.close()


@pytest.fixture
def tracked(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> list[TrackedSession]:
    """Every session that is opened during the test."""
    sessions: list[TrackedSession] = []
    open_session = runtime.open

    def watch(*arguments: Any, **options: Any) -> Session:
        sessions.append(TrackedSession(open_session(*arguments, **options)))
        return sessions[-1]

    monkeypatch.setattr(runtime, "open", watch)
    return sessions


def test_a_model_closes_its_sessions(
    open_model: Open, tracked: list[TrackedSession], tmp_path: Path
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))
    # The attention graph was opened once to test it.
    assert [session.closed for session in tracked] == [False, True]
    explain(model).result(30)
    assert [session.closed for session in tracked] == [False, True, False]
    held = [weakref.ref(session._session) for session in tracked]
    model.close(5)
    with pytest.raises(NotReadyError):
        forecast(model)
    assert [session.closed for session in tracked] == [True, True, True]
    tracked.clear()
    until(lambda: not any(session() for session in held))


def test_attention_graph_that_fails_its_test_is_closed(
    open_model: Open, tracked: list[TrackedSession], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_model(write_bundle(tmp_path, EXPLAINS))

    def refuse(session: Session, worker: int) -> None:
        raise BundleError("the probes differ")

    monkeypatch.setattr(model._test, "replay", refuse)
    with pytest.raises(ModelFailedError, match="could not be opened again"):
        explain(model).result(30)
    assert [session.closed for session in tracked] == [False, True, True]


@pytest.mark.parametrize(
    ("spec", "graph", "sessions", "message"),
    [
        (Spec(changes={"context": 9}), b"", 1, "its inputs are"),
        (
            Spec(changes={"attention": (lag_stage(),)}),
            *(b"", 2, r"explain\.onnx: it has no output encoder\.1"),
        ),
        (Spec(stages=(lag_stage(),)), b"no graph", 1, r"explain\.onnx: onnxruntime refuses it"),
    ],
    ids=["other inputs", "no attention", "a broken graph"],
)
def test_a_bundle_that_is_refused_holds_no_sessions(
    open_model: Open,
    tracked: list[TrackedSession],
    tmp_path: Path,
    spec: Spec,
    graph: bytes,
    sessions: int,
    message: str,
) -> None:
    folder = write_bundle(tmp_path, spec)
    if graph:
        (folder / layout.EXPLAIN_GRAPH).write_bytes(graph)
        rewrite_manifest(folder, spec)
    with pytest.raises(BundleError, match=message):
        open_model(folder)
    assert [session.closed for session in tracked] == [True] * sessions
    held = [weakref.ref(session._session) for session in tracked]
    tracked.clear()
    until(lambda: not any(session() for session in held))


def test_failed_call_on_all_threads_waits_for_the_others(runtime: Runtime, tmp_path: Path) -> None:
    scheduler = Scheduler(threads=2)
    model = Model(
        write_bundle(tmp_path, Spec()), runtime, scheduler, Capacity(8, 64, 1 << 20), Quiet()
    )
    done: list[int] = []

    def call(worker: int) -> None:
        if worker == 0:
            raise ModelFailedError("the first one's")
        time.sleep(0.1)
        done.append(worker)

    with pytest.raises(ModelFailedError, match="the first one's"):
        model._graphs.on_threads(call)
    assert done == [1]
    model.close(5)
    scheduler.close(5)


def test_wait_for_busy_inference_threads_is_bounded(
    open_model: Open, scheduler: Scheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("foretell.service.engine.graphs._THREADS_SECONDS", 0.05)
    busy = threading.Event()
    held = scheduler.on_threads(lambda worker: busy.wait(30))
    with pytest.raises(ModelFailedError, match="an inference thread was not free within 0 s"):
        open_model(write_bundle(tmp_path, Spec()))
    busy.set()
    for call in held:
        call.result(30)


def test_cpu_model_takes_its_fastest_batch(
    scheduler: Scheduler, runtime: Runtime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[set[int]] = []

    def fastest(seconds: dict[int, list[float]], usual: int) -> int:
        timed.append(set(seconds))
        return usual // 2

    monkeypatch.setattr("foretell.service.engine.graphs.fastest_batch", fastest)
    bundle = write_bundle(tmp_path, Spec())
    for given, most in ((None, 4), (3, 3)):
        model = Model(bundle, runtime, scheduler, Capacity(given, 64, 1 << 20), Quiet())
        assert model.max_batch == most
        model.close(1)
    assert timed == [{2, 4, 8, 16}]
