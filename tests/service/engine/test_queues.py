from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.arrays import Arrays
from foretell.service.engine.queues import GraphQueue, Share, assemble
from foretell.service.engine.run import Run

PLENTY = 10**6


def work(*values: int, deadline: float = 1e9) -> Run:
    feeds = {"x": np.array(values), "z": np.array([[value, -value] for value in values])}
    return Run(Run.notify, "g", feeds, (), deadline)


def test_knows_its_size() -> None:
    feeds: Arrays = {"x": np.zeros((3, 8, 2), np.float32), "z": np.zeros((3, 1), np.int64)}
    one = Run(Run.notify, "g", feeds, (), 0.0)
    assert (one.windows, one.bytes) == (3, 3 * (8 * 2 * 4 + 8))


def test_a_slice_by_itself_is_not_copied() -> None:
    one = work(1, 2, 3)
    feeds = assemble([(one, 1, 3)])
    assert feeds["x"].tolist() == [2, 3]
    assert all(np.shares_memory(rows, one.feeds[name]) for name, rows in feeds.items())


def test_slices_are_put_together_in_order() -> None:
    feeds = assemble([(work(1, 2, 3), 1, 3), (work(4), 0, 1)])
    assert feeds["x"].tolist() == [2, 3, 4]
    assert feeds["z"].tolist() == [[2, -2], [3, -3], [4, -4]]


class Tree:
    """A root and its children by name."""

    def __init__(self, names: str) -> None:
        self.root: Share[Share[None]] = Share(None)  # type: ignore[type-var]
        self.children = {name: Share(self.root) for name in names}
        self.names = {child: name for name, child in self.children.items()}

    def turns(self, count: int, **costs: float) -> str:
        """Whose turn it was; each takes its cost in seconds, 1 if none is given."""
        order = ""
        for _ in range(count):
            child = self.root.next()
            order += self.names[child]
            child.charge(costs.get(order[-1], 1.0))
        return order


def test_equal_ones_go_round() -> None:
    tree = Tree("abc")
    for child in tree.children.values():
        child.count(1)
    assert tree.turns(6, a=0, b=0, c=0) == "abcabc"


def test_the_next_is_who_has_used_least() -> None:
    tree = Tree("ab")
    for child in tree.children.values():
        child.count(1)
    assert tree.turns(8, a=3) == "abbbabbb"


def test_what_was_charged_too_much_is_given_back() -> None:
    tree = Tree("ab")
    for child in tree.children.values():
        child.count(1)
    tree.children["a"].charge(5.0)
    tree.children["b"].charge(1.0)
    tree.children["a"].charge(-4.5)
    assert tree.turns(1) == "a"


def test_nobody_saves_up_by_not_waiting() -> None:
    tree = Tree("ab")
    tree.children["a"].count(1)
    tree.turns(100)
    tree.children["b"].count(1)
    assert tree.turns(6) == "bababa"


def test_a_debt_stays_while_one_is_away() -> None:
    tree = Tree("ab")
    for child in tree.children.values():
        child.count(1)
    tree.children["a"].charge(5.0)
    tree.children["a"].count(-1)
    tree.children["a"].count(1)
    assert tree.turns(6) == "bbbbba"


def test_windows_and_seconds_are_counted_at_every_level() -> None:
    tree = Tree("ab")
    leaves = [Share(tree.children["a"]) for _ in range(2)]
    leaves[0].count(3)
    leaves[1].count(2)
    leaves[0].charge(1.5)
    assert (tree.children["a"].waiting, tree.root.waiting) == (5, 5)
    assert (tree.children["a"].used, tree.root.used) == (1.5, 1.5)
    leaves[0].count(-3)
    assert list(tree.children["a"].active) == [leaves[1]]
    leaves[1].count(-2)
    assert tree.root.active == {}
    assert tree.root.waiting == 0


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(0.01, 2.0), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20),
)
def test_those_who_wait_have_even_shares(
    costs: list[float], comings: list[tuple[int, bool]]
) -> None:
    tree = Tree("abcd"[: len(costs)])
    children = list(tree.children.values())
    cost = dict(zip(tree.children, costs, strict=True))
    for number, comes in comings:
        child = children[number % len(costs)]
        if comes != bool(child.waiting):
            child.count(1 if comes else -1)
        if tree.root.waiting:
            tree.turns(1, **cost)
    for child in children:
        if not child.waiting:
            child.count(1)
    # What was had more than others before is made up for first.
    tree.turns(1000, **cost)
    had = dict.fromkeys(tree.children, 0.0)
    for name in tree.turns(200, **cost):
        had[name] += cost[name]
        assert max(had.values()) - min(had.values()) <= 2 * max(costs)


def queue_of(max_batch: int, *sizes: int) -> tuple[GraphQueue, list[Run]]:
    queue = GraphQueue(Share(None), max_batch)
    works = [work(*range(windows)) for windows in sizes]
    for one in works:
        queue.add(one)
    return queue, works


def taken(queue: GraphQueue, works: list[Run], most: int = PLENTY) -> list[tuple[int, int, int]]:
    """A batch, as number, start and stop of each slice; nothing may be late."""
    slices, late = queue.take(most, now=0.0)
    assert late == []
    return [(works.index(one), start, stop) for one, start, stop in slices]


def test_takes_in_order_up_to_a_batch() -> None:
    queue, works = queue_of(4, 1, 2, 2, 1)
    assert taken(queue, works) == [(0, 0, 1), (1, 0, 2), (2, 0, 1)]
    assert queue.waiting == 2
    assert taken(queue, works, most=1) == [(2, 1, 2)]
    assert taken(queue, works) == [(3, 0, 1)]
    assert queue.waiting == 0


def test_large_and_small_work_share_a_batch() -> None:
    queue, works = queue_of(4, 6, 6, 1, 1, 1)
    assert taken(queue, works) == [(0, 0, 2), (2, 0, 1), (3, 0, 1)]
    assert taken(queue, works) == [(0, 2, 5), (4, 0, 1)]
    assert taken(queue, works) == [(0, 5, 6), (1, 0, 3)]
    assert taken(queue, works) == [(1, 3, 6)]


def test_they_take_turns_where_a_batch_is_one_window() -> None:
    queue, works = queue_of(1, 3, 1, 1, 1)
    assert [taken(queue, works)[0][0] for _ in range(6)] == [0, 1, 0, 2, 0, 3]


def test_work_that_was_removed_is_not_taken() -> None:
    queue, works = queue_of(4, 6, 1, 2)
    assert taken(queue, works) == [(0, 0, 2), (1, 0, 1), (2, 0, 1)]
    assert list(queue.works) == [works[0], works[2]]
    queue.remove(works[0])
    assert queue.waiting == 1
    assert taken(queue, works) == [(2, 1, 2)]


def test_late_work_is_removed_and_its_place_given_to_others() -> None:
    queue, works = queue_of(4, 3, 1, 1, 1, 1)
    for number, deadline in ((0, 5.0), (2, 6.0), (3, 7.0)):
        works[number].deadline = deadline
    slices, late = queue.take(PLENTY, now=6.0)
    assert late == [works[0], works[2]]
    assert [one for one, _, _ in slices] == [works[1], works[3], works[4]]
    assert (queue.waiting, len(queue.works)) == (0, 0)


def test_all_may_be_late() -> None:
    queue, works = queue_of(4, 3, 9)
    assert queue.take(PLENTY, now=1e9) == ([], works)
    assert queue.waiting == 0


def test_the_pace_is_what_was_measured_of_late() -> None:
    queue = GraphQueue(Share(None), 4)
    assert queue.pace == 0.0
    queue.measured(windows=4, seconds=2.0)
    assert queue.pace == 0.5
    for _ in range(100):
        queue.measured(windows=4, seconds=1.0)
    assert abs(queue.pace - 0.25) < 1e-3


class Counted:
    """A queue, and in how many batches each work has to be done."""

    def __init__(self, max_batch: int) -> None:
        self.queue = GraphQueue(Share(None), max_batch)
        self.max_batch = max_batch
        self.small = max(1, max_batch // 2)
        self.batches = 0
        self.latest: dict[Run, int] = {}
        self.seen: dict[Run, list[int]] = {}

    def add(self, windows: int) -> None:
        new = work(*range(windows))
        ahead = [one for one in self.seen if one.taken < one.windows]
        if windows <= self.small:
            ahead = [one for one in ahead if one.windows <= self.small]
        windows += sum(one.windows - one.taken for one in ahead)
        self.latest[new] = self.batches + -(-(2 * windows + 1) // self.max_batch)
        self.seen[new] = []
        self.queue.add(new)

    def take(self) -> None:
        waiting = self.queue.waiting
        slices, _ = self.queue.take(PLENTY, now=0.0)
        self.batches += 1
        assert sum(stop - start for _, start, stop in slices) == min(waiting, self.max_batch)
        assert self.queue.waiting == waiting - min(waiting, self.max_batch)
        assert len({one for one, _, _ in slices}) == len(slices)
        for one, start, stop in slices:
            self.seen[one] += range(start, stop)
            assert one.taken < one.windows or self.batches <= self.latest[one]


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
        if windows is not None:
            counted.add(windows)
        elif counted.queue.waiting:
            counted.take()
    while counted.queue.waiting:
        counted.take()
    for one, rows in counted.seen.items():
        assert rows == list(range(one.windows))
