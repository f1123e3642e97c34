from __future__ import annotations

from weakref import ref

import numpy as np
import pytest

from foretell.service.cuda.device import CudaError
from foretell.service.cuda.replays import Replays, bucket_sizes
from tests.service.cuda.fake import MODULE, FakeGraph, FakeLibrary, expected, history


@pytest.fixture
def library() -> FakeLibrary:
    library = FakeLibrary()
    library.open_stream()
    return library


def make(graph: FakeGraph, library: FakeLibrary, *, captures: bool = True) -> Replays:
    feeds = history(4)
    outputs = {"forecast": expected(feeds), "lags": np.zeros((4, 2), np.int64)}
    return Replays(
        MODULE,
        graph,
        library,
        2,
        1,
        feeds=feeds,
        outputs=outputs,
        captures=captures,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("windows", [1, 2, 3, 4])
def test_batch_runs_in_its_bucket(library: FakeLibrary, windows: int) -> None:
    graph = FakeGraph()
    replays = make(graph, library)
    feeds = history(windows)
    for _ in range(2):
        found = replays.run(feeds)
        np.testing.assert_array_equal(found["forecast"], expected(feeds))
        np.testing.assert_array_equal(found["lags"], feeds["history"][:, 0])
        assert found["lags"].dtype == np.int64
    assert graph.replayed == [str({3: 4}.get(windows, windows))] * 2


def test_batch_takes_one_copy_for_each_array_and_one_wait(library: FakeLibrary) -> None:
    replays = make(FakeGraph(), library)
    library.calls.clear()
    replays.run(history(3))
    assert library.calls == [("copy", 128), ("copy", 72), ("copy", 48), ("wait", 1)]


def test_replays_without_captures(library: FakeLibrary) -> None:
    graph = FakeGraph()
    replays = make(graph, library, captures=False)
    feeds = history(3)
    np.testing.assert_array_equal(replays.run(feeds)["forecast"], expected(feeds))
    assert (graph.captured, graph.replayed) == ({}, ["-1"])


def test_output_is_not_overwritten_by_the_next_run(library: FakeLibrary) -> None:
    replays = make(FakeGraph(), library)
    # Its rows need not be contiguous.
    feeds = {"history": history(4)["history"][::2]}
    first = replays.run(feeds)["forecast"]
    kept = expected(feeds)
    replays.run({"history": history(2)["history"] + 100})
    np.testing.assert_array_equal(first, kept)


def test_free_releases_the_session(library: FakeLibrary) -> None:
    """The session holds more of the GPU's memory than the buffers."""
    graph = FakeGraph()
    replays = make(graph, library)
    replays.run(history(2))
    # The fake refers to itself.
    del graph._sess
    session = ref(graph)
    del graph
    assert session() is not None
    replays.free()
    assert session() is None
    assert list(library.held) == [1]


def test_failed_allocation_keeps_no_memory(library: FakeLibrary) -> None:
    for call in ("allocate", "pin"):
        library.fails = {call: 2}
        with pytest.raises(CudaError, match=rf"cudaErrorMemoryAllocation \(2\) in {call}"):
            make(FakeGraph(), library)
        assert list(library.held) == [1]


def test_missing_rows_repeat_the_last_row(library: FakeLibrary) -> None:
    graph = FakeGraph()
    replays = make(graph, library)
    replays.run(history(4))
    replays.run(history(3))
    _, binding = graph.captured["4"]
    assert binding.device == 2
    np.testing.assert_array_equal(binding.inputs["history"][3], history(3)["history"][2])


def test_arrays_are_aligned_to_256_bytes(library: FakeLibrary) -> None:
    library.calls.clear()
    graph = FakeGraph()
    make(graph, library).run(history(1))
    # 128, 96 and 64 bytes, each at a multiple of 256.
    assert library.calls[:2] == [("allocate", 768), ("pin", 768)]
    _, binding = graph.captured["1"]
    arrays = (binding.inputs["history"], binding.outputs["forecast"], binding.outputs["lags"])
    first, *others = (each.__array_interface__["data"][0] for each in arrays)
    assert [other - first for other in others] == [256, 512]


@pytest.mark.parametrize(
    ("largest", "sizes"),
    [
        (1, (1,)),
        (2, (1, 2)),
        (8, (1, 2, 4, 8)),
        (12, (1, 2, 4, 8, 12)),
        (33, (1, 2, 4, 8, 16, 32, 33)),
    ],
)
def test_sizes_of_buckets(largest: int, sizes: tuple[int, ...]) -> None:
    assert bucket_sizes(largest) == sizes
