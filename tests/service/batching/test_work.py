from __future__ import annotations

from concurrent.futures import wait

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.arrays import Arrays
from foretell.service.batching.work import Slice, Work, assemble, divide
from foretell.service.errors import ModelFailedError, NotReadyError


def work(*values: int) -> Work:
    feeds = {"x": np.array(values), "z": np.array([[value, -value] for value in values])}
    return Work("g", feeds, deadline=0.0, submitted=0.0)


def test_knows_its_size() -> None:
    feeds: Arrays = {"x": np.zeros((3, 8, 2), np.float32), "z": np.zeros((3, 1), np.int64)}
    one = Work("g", feeds, deadline=0.0, submitted=0.0)
    assert (one.windows, one.waiting, one.bytes) == (3, 3, 3 * (8 * 2 * 4 + 8))


def test_a_slice_by_itself_is_not_copied() -> None:
    one = work(1, 2, 3)
    feeds = assemble([Slice(one, 1, 3)])
    assert feeds["x"].tolist() == [2, 3]
    assert all(np.shares_memory(rows, one.feeds[name]) for name, rows in feeds.items())


@settings(deadline=None, max_examples=50)
@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 4), st.integers(0, 4)), min_size=1))
def test_everyone_gets_back_what_is_his(cuts: list[tuple[int, int, int]]) -> None:
    slices = []
    for number, (windows, first, second) in enumerate(cuts):
        start, stop = sorted((min(first, windows - 1), min(second, windows)))
        stop = max(stop, start + 1)
        slices.append(Slice(work(*range(10 * number, 10 * number + windows)), start, stop))
    divided = list(divide(slices, assemble(slices)))
    assert [part for part, _ in divided] == slices
    for (one, start, stop), rows in divided:
        for name, values in rows.items():
            np.testing.assert_array_equal(values, one.feeds[name][start:stop])


def test_says_whether_it_is_the_whole() -> None:
    one = work(1, 2, 3)
    assert Slice(one, 0, 3).whole
    assert not Slice(one, 0, 2).whole
    assert not Slice(one, 1, 3).whole


@pytest.mark.parametrize("rows", [np.zeros(1), np.zeros((3, 2)), np.array(0.0)])
def test_rows_that_are_nobodys_are_refused(rows: np.ndarray) -> None:
    slices = [Slice(work(1), 0, 1), Slice(work(2), 0, 1)]
    with pytest.raises(ModelFailedError, match="a batch of 2 windows came out as bad"):
        list(divide(slices, {"good": np.zeros(2), "bad": rows}))


def test_each_who_waits_gets_an_error_of_his_own() -> None:
    error = NotReadyError("not now", param="model")
    works = [work(1), work(2)]
    for one in works:
        one.outputs = {"y": np.zeros(1)}
        one.fail(error)
        assert one.outputs == {}, "the first part of split work is of no use"
    failures = [one.exception(0) for one in works]
    assert all(isinstance(failure, NotReadyError) for failure in failures)
    assert len({id(failure) for failure in (*failures, error)}) == 3


def test_who_cancelled_is_told_nothing_else() -> None:
    succeeding, failing = work(1), work(2)
    for one in (succeeding, failing):
        assert one.cancel()
    succeeding.succeed()
    failing.fail(ValueError())
    done = wait([succeeding, failing], timeout=30).done
    assert done == {succeeding, failing}
    assert all(one.cancelled() for one in done)
