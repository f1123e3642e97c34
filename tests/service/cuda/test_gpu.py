from __future__ import annotations

import gc
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foretell.bundle.errors import BundleError
from foretell.service.cuda.device import Device
from foretell.service.cuda.gpu import CudaSession, Gpu
from foretell.service.errors import DeviceLostError, ModelFailedError
from tests.service.cuda.fake import (
    CUDA,
    MODULE,
    FakeBinding,
    FakeGraph,
    FakeLibrary,
    FakeOptions,
    device,
    expected,
    history,
)

REASON = "CUDA failure 901: operation failed due to a previous error during capture"
REFUSED = BundleError("not all nodes are on CUDA")


class Opener:
    """Opens the given graphs one after the other.

    Attributes:
        opened: Whether each one may be captured.
    """

    def __init__(self, *graphs: FakeGraph | Exception) -> None:
        self._graphs = list(graphs)
        self.opened: list[bool] = []

    def __call__(self, number: int, stream: int, captures: bool) -> FakeGraph:
        self.opened.append(captures)
        graph = self._graphs.pop(0)
        if isinstance(graph, Exception):
            raise graph
        return graph


def make(
    *graphs: FakeGraph | Exception,
    on: Device | None = None,
    max_batch: int | None = 4,
) -> Gpu:
    return Gpu(MODULE, on or device(), Opener(*graphs), max_batch=max_batch)


def test_warm_captures_every_size_from_the_largest() -> None:
    graph = FakeGraph()
    gpu = make(graph)
    gpu.warm()
    assert list(graph.captured) == ["4", "2", "1"]
    # Memory is taken before a capture, never during one.
    assert graph.plain == [4]
    assert graph.reserved == [(16 * 1024 * 1024, (1, 5, 0x10DE, 0))]
    assert gpu.captures


def test_graph_of_any_number_of_channels_is_warmed_with_one() -> None:
    graph = FakeGraph()
    graph.get_inputs = lambda: [SimpleNamespace(name="history", shape=["batch", 4, "channels"])]
    gpu = make(graph)
    gpu.warm()
    feeds = {name: rows[:, :, :1] for name, rows in history(3).items()}
    np.testing.assert_array_equal(gpu.run(feeds)["forecast"], expected(feeds))
    assert graph.replayed[3:] == ["4"]


def test_session_without_max_batch_runs_any_size_uncaptured() -> None:
    graph = FakeGraph()
    gpu = make(graph, max_batch=None)
    gpu.warm()
    feeds = history(9)
    np.testing.assert_array_equal(gpu.run(feeds)["forecast"], expected(feeds))
    assert (graph.plain, graph.replayed, gpu.captures) == ([9], [], False)


class Watched(FakeGraph):
    """Records in every run who holds the lock of captures."""

    def __init__(self, gpu: Device) -> None:
        super().__init__()
        self._lock = gpu.capture_lock
        self.seen: list[tuple[bool, int]] = []

    def run(self, *given: Any) -> list[Any]:
        self._look()
        return super().run(*given)

    def run_with_iobinding(self, *given: Any) -> None:
        self._look()
        super().run_with_iobinding(*given)

    def _look(self) -> None:
        self.seen.append((self._lock._changed._lock.locked(), self._lock._calls))


# Whether a capture runs, and how many calls hold the lock against one.
CALL, CAPTURE, REPLAY = (False, 1), (True, 0), (False, 0)


@pytest.mark.parametrize(
    ("before", "seen"), [((), [CALL, *[CAPTURE] * 3, REPLAY]), ((REFUSED,), [CALL] * 2)]
)
def test_captures_are_exclusive_and_replays_are_not(
    before: tuple[Exception, ...], seen: list[object]
) -> None:
    gpu = device()
    graph = Watched(gpu)
    session = make(*before, graph, on=gpu)
    session.warm()
    session.run(history(1))
    assert graph.seen == seen


def test_opening_a_session_excludes_captures() -> None:
    gpu = device()
    calls: list[int] = []

    def open_session(number: int, stream: int, captures: bool) -> FakeGraph:
        calls.append(gpu.capture_lock._calls)
        graph = FakeGraph()
        graph.breaks = RuntimeError(REASON) if captures else None
        return graph

    Gpu(MODULE, gpu, open_session, max_batch=4).warm()
    assert calls == [1, 1]


def test_session_that_cannot_capture_is_replaced_by_one_without_graphs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = FakeGraph()
    graph.breaks, graph.breaks_captures = RuntimeError(REASON), True
    failed = weakref.ref(graph)
    second = FakeGraph()

    class Later(Opener):
        def __call__(self, number: int, stream: int, captures: bool) -> FakeGraph:
            if self.opened:
                # Its stream would still be capturing. (The fake raises its own error.)
                gc.collect()
                assert failed() is None
            return super().__call__(number, stream, captures)

    opener = Later(graph, second)
    del graph
    library = FakeLibrary()
    gpu = Gpu(MODULE, device(library=library), opener, max_batch=4)
    gpu.warm()
    assert not gpu.captures
    assert opener.opened == [True, False]
    assert f"batches of 4 could be captured; runs go without: {REASON}" in caplog.text
    feeds = history(3)
    np.testing.assert_array_equal(gpu.run(feeds)["forecast"], expected(feeds))
    assert second.replayed == ["-1"]
    # The stream and the buffers of the first session are freed.
    assert [what for what in library.held.values() if what == "stream"] == ["stream"]
    gpu.close()
    assert not library.held


def test_size_that_cannot_be_captured_disables_all_captures() -> None:
    class Small(FakeGraph):
        """Captures only batches of 4."""

        def run_with_iobinding(self, binding: FakeBinding, options: FakeOptions) -> None:
            self.breaks_captures = True
            self.breaks = RuntimeError(REASON) if self.captured else None
            super().run_with_iobinding(binding, options)

    second = FakeGraph()
    gpu = make(Small(), second)
    gpu.warm()
    for windows in (4, 2, 1):
        gpu.run(history(windows))
    assert (second.captured, second.replayed) == ({}, ["-1"] * 3)


def test_graph_that_onnxruntime_does_not_capture_is_opened_without_graphs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = FakeGraph()
    gpu = make(REFUSED, graph)
    gpu.warm()
    gpu.run(history(1))
    # It uses fixed buffers all the same.
    assert (gpu.captures, graph.captured, graph.replayed, graph.reserved) == (False, {}, ["-1"], [])
    assert "runs go without CUDA graphs: not all nodes are on CUDA" in caplog.text


def test_failed_reopening_of_a_session_is_an_error() -> None:
    graph, library = FakeGraph(), FakeLibrary()
    graph.breaks = RuntimeError(REASON)
    gpu = make(graph, BundleError("out of memory"), on=device(library=library))
    with pytest.raises(ModelFailedError) as error:
        gpu.warm()
    assert str(error.value.__cause__) == "out of memory"
    with pytest.raises(ModelFailedError):
        gpu.run(history(1))
    gpu.close()
    assert not library.held


def test_failed_run_keeps_the_captures() -> None:
    graph = FakeGraph()
    gpu = make(graph)
    gpu.warm()
    graph.breaks = RuntimeError("CUDA failure 2: out of memory")
    with pytest.raises(ModelFailedError) as error:
        gpu.run(history(1))
    assert error.value.__cause__ is graph.breaks
    graph.breaks = None
    gpu.run(history(1))
    assert graph.replayed[-1] == "1"


@pytest.mark.parametrize("call", ["copy", "wait"])
def test_failed_copy_fails_the_run(call: str) -> None:
    library = FakeLibrary()
    gpu = make(FakeGraph(), on=device(library=library))
    gpu.warm()
    library.fails = {call: 2}
    with pytest.raises(ModelFailedError):
        gpu.run(history(1))
    library.fails = {call: 700}
    with pytest.raises(DeviceLostError, match=r"GPU 0 is lost: .*\(700\) in"):
        gpu.run(history(1))


def test_lost_device_gets_no_calls() -> None:
    library = FakeLibrary()
    lost = device(library=library)
    graph = FakeGraph()
    gpu, other = make(graph, on=lost), make(FakeGraph(), on=lost)
    gpu.warm()
    graph.breaks = RuntimeError("CUDA failure 700: an illegal memory access was encountered")
    with pytest.raises(DeviceLostError):
        gpu.run(history(1))
    graph.breaks = None
    library.calls.clear()
    for one in (gpu, other):
        with pytest.raises(DeviceLostError, match="illegal memory access"):
            one.run(history(1))
        # Freeing memory there would end the process.
        one.close()
    assert library.calls == []


def test_device_lost_during_capture() -> None:
    graph = FakeGraph()
    graph.breaks = RuntimeError("CUDA failure 719: unspecified launch failure")
    # No other session is opened there.
    gpu = make(graph, FakeGraph())
    with pytest.raises(DeviceLostError, match="719"):
        gpu.warm()
    assert gpu.session is graph


def test_closed_gpu_neither_runs_nor_closes_again() -> None:
    library = FakeLibrary()
    gpu = make(FakeGraph(), on=device(library=library))
    gpu.warm()
    gpu.close()
    gpu.close()
    for use in (gpu.warm, lambda: gpu.run(history(1))):
        with pytest.raises(ModelFailedError) as error:
            use()
        assert str(error.value.__cause__) == "the session is closed"
    assert not library.held


def test_opening_and_closing_keep_the_gpu_of_the_thread() -> None:
    library = FakeLibrary()
    gpu = make(FakeGraph(), on=device(2, library))
    gpu.close()
    used = [call for call in library.calls if call[0].startswith("use")]
    assert used == [("use", 2), ("use before", 2)] * 2


def test_device_lost_before_close(caplog: pytest.LogCaptureFixture) -> None:
    library = FakeLibrary()
    graph = FakeGraph()
    gpu, session = make(graph, on=device(library=library)), weakref.ref(graph)
    gpu.warm()
    library.fails = {"use": 719}
    gpu.close()
    assert "GPU 0 is lost" in caplog.text
    del gpu, graph
    gc.collect()
    # Closing the session would end the process.
    assert session() is not None


def test_error_does_not_keep_the_session_alive() -> None:
    graph = FakeGraph()
    gpu, session = make(graph, max_batch=None), weakref.ref(graph)
    gpu.stop()
    with pytest.raises(ModelFailedError) as error:
        gpu.run(history(1))
    gpu.close()
    del gpu, graph
    gc.collect()
    assert session() is None
    assert str(error.value.__cause__) == "terminated"


def test_close_leaves_a_running_session() -> None:
    library = FakeLibrary()
    gpu = make(FakeGraph(), on=device(library=library))
    gpu.warm()
    held = dict(library.held)
    with gpu._running:
        gpu.close()
    assert library.held == held


def session_of(*graphs: FakeGraph, library: FakeLibrary | None = None) -> CudaSession:
    gpus = [
        Gpu(
            MODULE,
            device(number, library),
            lambda number, stream, captures: graphs[number],
            max_batch=4,
        )
        for number in range(len(graphs))
    ]
    return CudaSession(gpus, Path("g"))


def test_session_describes_its_graph() -> None:
    session = session_of(FakeGraph())
    assert session.inputs == {"history": (None, 4, 2)}
    assert session.outputs == ("forecast", "lags")
    assert (session.graph, session.provider, session.captures) == (Path("g"), CUDA, True)


def test_session_reports_captures_if_all_gpus_capture() -> None:
    session = session_of(FakeGraph(), FakeGraph())
    session._gpus[1].captures = False
    assert not session.captures


def test_session_stops_and_closes_all_gpus() -> None:
    library = FakeLibrary()
    session = session_of(FakeGraph(), FakeGraph(), library=library)
    session.stop()
    for worker in (0, 1):
        session._gpus[worker].captures = False
        with pytest.raises(ModelFailedError):
            session.run(history(1), worker)
    session.close()
    assert not library.held
