from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.batching.lane import Lane
from foretell.service.batching.work import Slice, Work

PLENTY = 10**6


def work(windows: int) -> Work:
    return Work("g", {"x": np.zeros(windows)}, deadline=0.0, submitted=0.0)


def lane_of(max_batch: int, *sizes: int) -> tuple[Lane, list[Work]]:
    lane = Lane(max_batch)
    works = [work(windows) for windows in sizes]
    for one in works:
        lane.add(one)
    return lane, works


def taken(lane: Lane, works: list[Work], room: int = PLENTY) -> list[tuple[int, int, int]]:
    """A batch, as number, start and stop of each slice."""
    return [(works.index(one), start, stop) for one, start, stop in lane.take(room)]


def test_takes_in_order_up_to_a_batch() -> None:
    lane, works = lane_of(4, 1, 2, 2, 1)
    assert taken(lane, works) == [(0, 0, 1), (1, 0, 2), (2, 0, 1)]
    assert lane.waiting == 2
    assert taken(lane, works, room=1) == [(2, 1, 2)]
    assert taken(lane, works) == [(3, 0, 1)]
    assert taken(lane, works) == []


def test_large_and_small_work_share_a_batch() -> None:
    lane, works = lane_of(4, 6, 6, 1, 1, 1)
    assert taken(lane, works) == [(0, 0, 2), (2, 0, 1), (3, 0, 1)]
    assert taken(lane, works) == [(0, 2, 5), (4, 0, 1)]
    assert taken(lane, works) == [(0, 5, 6), (1, 0, 3)]
    assert taken(lane, works) == [(1, 3, 6)]


def test_they_take_turns_where_a_batch_is_one_window() -> None:
    lane, works = lane_of(1, 3, 1, 1, 1)
    order = [taken(lane, works)[0][0] for _ in range(6)]
    assert order == [0, 1, 0, 2, 0, 3]


def test_who_leaves_is_not_taken() -> None:
    lane, works = lane_of(4, 6, 1, 2)
    assert taken(lane, works) == [(0, 0, 2), (1, 0, 1), (2, 0, 1)]
    assert lane.works() == [works[0], works[2]]
    assert lane.discard(works[0]) == 4
    assert lane.discard(works[0]) == 0
    assert lane.discard(works[1]) == 0
    assert lane.waiting == 1
    assert taken(lane, works) == [(2, 1, 2)]


def test_expects_what_it_measured() -> None:
    lane = Lane(4)
    assert lane.expected(8) == 0.0
    lane.measured(windows=4, seconds=2.0)
    assert lane.expected(8) == 4.0
    for _ in range(100):
        lane.measured(windows=4, seconds=1.0)
    assert abs(lane.expected(8) - 2.0) < 1e-3


class Counted:
    """A lane, and in how many batches each work has to be done."""

    def __init__(self, max_batch: int) -> None:
        self.lane = Lane(max_batch)
        self.max_batch = max_batch
        self.small = max(1, max_batch // 2)
        self.works: list[Work] = []
        self.batches = 0
        self.latest: dict[Work, int] = {}
        self.seen: dict[Work, list[int]] = {}

    def add(self, windows: int) -> None:
        new = work(windows)
        ahead = [one for one in self.works if one.waiting]
        if windows <= self.small:
            ahead = [one for one in ahead if one.windows <= self.small]
        windows += sum(one.waiting for one in ahead)
        self.latest[new] = self.batches + -(-(2 * windows + 1) // self.max_batch)
        self.works.append(new)
        self.seen[new] = []
        self.lane.add(new)

    def take(self) -> None:
        waiting = self.lane.waiting
        slices = self.lane.take(PLENTY)
        self.batches += 1
        assert sum(stop - start for _, start, stop in slices) == min(waiting, self.max_batch)
        assert len({one for one, _, _ in slices}) == len(slices)
        for one, start, stop in slices:
            self.seen[one] += range(start, stop)
            assert one.waiting or self.batches <= self.latest[one]

    def check(self, slices: list[Slice] | None = None) -> None:
        assert self.lane.waiting == 0
        for one, rows in self.seen.items():
            assert rows == list(range(one.windows))


@settings(deadline=None, max_examples=200)
@given(
    st.integers(1, 9),
    st.lists(st.one_of(st.none(), st.integers(1, 3), st.integers(1, 40)), max_size=60),
)
def test_nobody_waits_for_more_than_twice_his_turn_whatever_comes_after(
    max_batch: int, plan: list[int | None]
) -> None:
    """Small work waits for small work alone, other work for all that was there before."""
    counted = Counted(max_batch)
    for windows in plan:
        if windows is None:
            counted.take()
        else:
            counted.add(windows)
    while counted.lane.waiting:
        counted.take()
    counted.check()
