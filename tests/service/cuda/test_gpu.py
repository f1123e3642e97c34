from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import numpy as np
import pytest

from bundle.errors import BundleError
from service.cuda.gpu import Gpu
from tests.service.cuda.fake import (
    MODULE,
    FakeBinding,
    FakeGraph,
    FakeOptions,
    expected,
    history,
)


def make(
    graph: FakeGraph, *, reopen: Callable[[], FakeGraph] | None = FakeGraph, device: int = 0
) -> Gpu:
    shapes: dict[str, tuple[int | None, ...]] = {"history": (None, 4, 2)}
    return Gpu(MODULE, graph, device, inputs=shapes, max_batch=4, reopen=reopen)


def test_warming_captures_every_bucket_the_largest_first() -> None:
    graph = FakeGraph()
    make(graph).warm()
    assert list(graph.captured) == ["4", "2", "1"]
    # Memory grows before a capture, never during one.
    assert graph.plain == [4, 2, 1]


@pytest.mark.parametrize("windows", [1, 2, 3, 4])
def test_batches_of_any_size_replay_their_bucket(windows: int) -> None:
    graph = FakeGraph()
    gpu = make(graph)
    gpu.warm()
    feeds = history(windows)
    for _ in range(2):
        np.testing.assert_array_equal(gpu.run(feeds)["forecast"], expected(feeds))
    assert graph.replayed[3:] == [str({3: 4}.get(windows, windows))] * 2
    assert graph.plain == [4, 2, 1]


def test_buffers_are_on_its_device() -> None:
    graph = FakeGraph()
    make(graph, device=2).run(history(1))
    _, binding = graph.captured["1"]
    assert binding.inputs["history"].device == binding.outputs["forecast"].device == ("cuda", 2)


def test_an_answer_is_not_overwritten_by_the_next() -> None:
    gpu = make(FakeGraph())
    first = gpu.run(history(2))["forecast"]
    kept = first.copy()
    gpu.run({"history": history(2)["history"] + 100})
    np.testing.assert_array_equal(first, kept)


def test_what_cannot_be_captured_runs_without_in_another_session(
    caplog: pytest.LogCaptureFixture,
) -> None:
    graph = FakeGraph()
    graph.breaks, graph.breaks_captures = RuntimeError("capture: no"), True
    failed = weakref.ref(graph)
    opened: list[FakeGraph] = []

    def reopen() -> FakeGraph:
        # Its stream would still be capturing. (What it raised is its own.)
        gc.collect()
        assert failed() is None
        opened.append(FakeGraph())
        return opened[-1]

    gpu = make(graph, reopen=reopen)
    del graph
    gpu.warm()
    assert not gpu.captures
    assert "batches of 4 could be captured; runs go without: capture: no" in caplog.text
    feeds = history(3)
    np.testing.assert_array_equal(gpu.run(feeds)["forecast"], expected(feeds))
    (second,) = opened
    assert second.replayed == ["-1"] * 4
    # Stopping it stops what took its place.
    gpu.stop()
    with pytest.raises(RuntimeError, match="terminated"):
        gpu.run(feeds)


def test_a_size_that_cannot_be_captured_takes_those_with_it_that_were() -> None:
    class Small(FakeGraph):
        """Captures batches of 4 alone."""

        def run_with_iobinding(self, binding: FakeBinding, options: FakeOptions) -> None:
            self.breaks_captures = True
            self.breaks = RuntimeError("no") if self.captured else None
            super().run_with_iobinding(binding, options)

    second = FakeGraph()
    gpu = make(Small(), reopen=lambda: second)
    gpu.warm()
    for windows in (4, 2, 1):
        gpu.run(history(windows))
    assert (second.captured, second.replayed) == ({}, ["-1"] * 5)


def test_a_session_that_cannot_be_opened_again_is_told() -> None:
    def refuse() -> FakeGraph:
        raise BundleError("onnxruntime refuses it: out of memory")

    graph = FakeGraph()
    graph.breaks = RuntimeError("capture: no")
    with pytest.raises(BundleError, match="out of memory"):
        make(graph, reopen=refuse).warm()


def test_a_run_that_fails_does_not_end_the_captures() -> None:
    graph = FakeGraph()
    gpu = make(graph)
    gpu.warm()
    graph.breaks = RuntimeError("CUDA failure 700")
    with pytest.raises(RuntimeError, match="700"):
        gpu.run(history(1))
    graph.breaks = None
    assert gpu.captures
    gpu.run(history(1))
    assert graph.replayed[-1] == "1"


def test_without_captures_buffers_are_still_fixed() -> None:
    graph = FakeGraph()
    gpu = make(graph, reopen=None)
    gpu.warm()
    gpu.run(history(2))
    assert (graph.captured, set(graph.replayed)) == ({}, {"-1"})


def test_a_plain_run_has_any_size() -> None:
    feeds = history(9)
    np.testing.assert_array_equal(make(FakeGraph()).run_plainly(feeds)["forecast"], expected(feeds))


def test_stopped_runs_fail() -> None:
    gpu = make(FakeGraph())
    gpu.warm()
    gpu.stop()
    with pytest.raises(RuntimeError, match="terminated"):
        gpu.run(history(1))
