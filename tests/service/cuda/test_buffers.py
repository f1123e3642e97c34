from __future__ import annotations

import numpy as np
import pytest

from foretell.service.cuda.device import CudaError
from foretell.service.cuda.memory import Buffers
from tests.service.cuda.fake import FakeLibrary

ARRAYS = {"a": np.zeros((4, 3, 5), np.float32), "b": np.zeros(4, np.int64)}


@pytest.fixture
def library() -> FakeLibrary:
    library = FakeLibrary()
    library.open_stream()
    library.calls.clear()
    return library


def test_rows_go_to_the_device_and_back(library: FakeLibrary) -> None:
    buffers = Buffers(library, ARRAYS)  # type: ignore[arg-type]
    rows = {
        "a": np.arange(45, dtype=np.float32).reshape(3, 3, 5),
        "b": np.array([2, 3, 5]),
    }
    buffers.fill(rows, 4)
    buffers.send(4, 1)
    for host in buffers.host.values():
        host[:] = 0
    buffers.fetch(3, 1)
    found = buffers.taken(3)
    for name, wanted in rows.items():
        np.testing.assert_array_equal(found[name], wanted)
        assert not buffers.host[name][3:].any()
    # One copy an array and way, of as many bytes as there are rows.
    assert library.calls[2:] == [("copy", 240), ("copy", 32), ("copy", 180), ("copy", 24)]


def test_missing_rows_are_like_the_last(library: FakeLibrary) -> None:
    buffers = Buffers(library, ARRAYS)  # type: ignore[arg-type]
    buffers.fill({"b": np.array([7, 8])}, 4)
    assert buffers.host["b"].tolist() == [7, 8, 8, 8]


def test_what_was_taken_is_not_written_to_again(library: FakeLibrary) -> None:
    buffers = Buffers(library, ARRAYS)  # type: ignore[arg-type]
    buffers.fill({"b": np.array([1])}, 1)
    taken = buffers.taken(1)
    buffers.fill({"b": np.array([2])}, 1)
    assert taken["b"].tolist() == [1]


def test_rows_that_do_not_lie_together(library: FakeLibrary) -> None:
    buffers = Buffers(library, ARRAYS)  # type: ignore[arg-type]
    buffers.fill({"b": np.arange(8)[::2]}, 4)
    assert buffers.host["b"].tolist() == [0, 2, 4, 6]


def test_arrays_begin_where_kernels_like_it(library: FakeLibrary) -> None:
    buffers = Buffers(library, ARRAYS)  # type: ignore[arg-type]
    assert (buffers.device("b") - buffers.device("a")) == 256
    assert library.calls == [("allocate", 512), ("pin", 512)]


def test_all_is_given_back(library: FakeLibrary) -> None:
    buffers = Buffers(library, ARRAYS)  # type: ignore[arg-type]
    buffers.free()
    assert list(library.held) == [1]


def test_without_pinned_memory_nothing_is_kept(library: FakeLibrary) -> None:
    library.fails = {"pin": 2}
    with pytest.raises(CudaError, match=r"cudaErrorMemoryAllocation \(2\) in pin"):
        Buffers(library, ARRAYS)  # type: ignore[arg-type]
    assert list(library.held) == [1]
