from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.engine.fairness import GraphQueue, Node
from foretell.service.engine.run import Run
from foretell.service.errors import NotReadyError

PLENTY = 10**6


def make(*values: int, deadline: float = 1e9) -> Run:
    feeds = {"x": np.array(values), "z": np.array([[value, -value] for value in values])}
    return Run(Run.notify, "g", feeds, (), deadline)


class Tree:
    """A root and its children by name."""

    def __init__(self, names: str) -> None:
        self.root: Node[Node[None]] = Node(None)  # type: ignore[type-var]
        self.children = {name: Node(self.root) for name in names}
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


def test_the_next_is_the_one_with_the_least_service() -> None:
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


def test_a_child_that_does_not_wait_saves_nothing_up() -> None:
    tree = Tree("ab")
    tree.children["a"].count(1)
    tree.turns(100)
    tree.children["b"].count(1)
    assert tree.turns(6) == "bababa"


def test_a_debt_stays_while_nothing_waits() -> None:
    tree = Tree("ab")
    for child in tree.children.values():
        child.count(1)
    tree.children["a"].charge(5.0)
    tree.children["a"].count(-1)
    tree.children["a"].count(1)
    assert tree.turns(6) == "bbbbba"


def test_windows_and_seconds_are_counted_at_every_level() -> None:
    tree = Tree("ab")
    leaves = [Node(tree.children["a"]) for _ in range(2)]
    leaves[0].count(3)
    leaves[1].count(2)
    leaves[0].charge(1.5)
    assert (tree.children["a"].waiting, tree.root.waiting) == (5, 5)
    assert (tree.children["a"].service, tree.root.service) == (1.5, 1.5)
    leaves[0].count(-3)
    assert list(tree.children["a"].active) == [leaves[1]]
    leaves[1].count(-2)
    assert tree.root.active == {}
    assert tree.root.waiting == 0


@given(
    st.lists(st.floats(0.01, 2.0), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20),
)
def test_children_that_wait_have_even_shares(
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
    queue = GraphQueue(Node(None), max_batch)
    runs = [make(*range(windows)) for windows in sizes]
    for one in runs:
        queue.add(one)
    return queue, runs


def test_what_is_held_waits_for_the_session_in_its_order() -> None:
    queue, runs = queue_of(4, 1)
    asked: list[int] = []
    queue.ask = lambda: asked.append(1)
    runs += [make(1, 2), make(3), make(4)]
    for run in runs[1:]:
        queue.add(run)
    assert (queue.waiting, queue.queue.held, len(asked)) == (1, 4, 3)
    queue.remove(runs[2])
    queue.remove(runs[2])
    assert queue.queue.held == 3
    assert taken(queue, runs) == [(0, 0, 1)]
    queue.resume()
    assert (queue.waiting, queue.queue.held, queue.ask) == (3, 0, None)
    assert taken(queue, runs) == [(1, 0, 2), (3, 0, 1)]


def test_a_run_is_not_held_when_the_session_cannot_be_had() -> None:
    queue, _ = queue_of(4)

    def refuse() -> None:
        raise NotReadyError("not now")

    queue.ask = refuse
    with pytest.raises(NotReadyError, match="not now"):
        queue.add(make(1))
    assert (queue.queue.held, len(queue.held_runs)) == (0, 0)


def taken(queue: GraphQueue, runs: list[Run], most: int = PLENTY) -> list[tuple[int, int, int]]:
    """A batch, as number, start and stop of each slice; nothing may be late."""
    slices, late = queue.take(most, now=0.0)
    assert late == []
    return [(runs.index(one), start, stop) for one, start, stop in slices]


def test_takes_in_order_up_to_a_batch() -> None:
    queue, runs = queue_of(4, 1, 2, 2, 1)
    assert taken(queue, runs) == [(0, 0, 1), (1, 0, 2), (2, 0, 1)]
    assert queue.waiting == 2
    assert taken(queue, runs, most=1) == [(2, 1, 2)]
    assert taken(queue, runs) == [(3, 0, 1)]
    assert queue.waiting == 0


def test_large_and_small_runs_share_a_batch() -> None:
    queue, runs = queue_of(4, 6, 6, 1, 1, 1)
    assert taken(queue, runs) == [(0, 0, 2), (2, 0, 1), (3, 0, 1)]
    assert taken(queue, runs) == [(0, 2, 5), (4, 0, 1)]
    assert taken(queue, runs) == [(0, 5, 6), (1, 0, 3)]
    assert taken(queue, runs) == [(1, 3, 6)]


def test_they_take_turns_where_a_batch_is_one_window() -> None:
    queue, runs = queue_of(1, 3, 1, 1, 1)
    assert [taken(queue, runs)[0][0] for _ in range(6)] == [0, 1, 0, 2, 0, 3]


def test_a_run_that_was_removed_is_not_taken() -> None:
    queue, runs = queue_of(4, 6, 1, 2)
    assert taken(queue, runs) == [(0, 0, 2), (1, 0, 1), (2, 0, 1)]
    assert list(queue.runs) == [runs[0], runs[2]]
    queue.remove(runs[0])
    assert queue.waiting == 1
    assert taken(queue, runs) == [(2, 1, 2)]


def test_a_late_run_is_removed_and_its_place_given_to_others() -> None:
    queue, runs = queue_of(4, 3, 1, 1, 1, 1)
    for number, deadline in ((0, 5.0), (2, 6.0), (3, 7.0)):
        runs[number].deadline = deadline
    slices, late = queue.take(PLENTY, now=6.0)
    assert late == [runs[0], runs[2]]
    assert [one for one, _, _ in slices] == [runs[1], runs[3], runs[4]]
    assert (queue.waiting, len(queue.runs)) == (0, 0)


def test_all_may_be_late() -> None:
    queue, runs = queue_of(4, 3, 9)
    assert queue.take(PLENTY, now=1e9) == ([], runs)
    assert queue.waiting == 0


def test_the_pace_is_what_was_measured_of_late() -> None:
    queue = GraphQueue(Node(None), 4)
    assert queue.pace == 0.0
    queue.measure(windows=4, seconds=2.0)
    assert queue.pace == 0.5
    for _ in range(100):
        queue.measure(windows=4, seconds=1.0)
    assert abs(queue.pace - 0.25) < 1e-3


class Counted:
    """A queue, and in how many batches each work has to be done."""

    def __init__(self, max_batch: int) -> None:
        self.queue = GraphQueue(Node(None), max_batch)
        self.max_batch = max_batch
        self.small = max(1, max_batch // 2)
        self.batches = 0
        self.latest: dict[Run, int] = {}
        self.seen: dict[Run, list[int]] = {}

    def add(self, windows: int) -> None:
        new = make(*range(windows))
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


@given(
    st.integers(1, 9),
    st.lists(st.one_of(st.none(), st.integers(1, 3), st.integers(1, 40)), max_size=60),
)
def test_no_run_waits_for_more_than_twice_its_turn_whatever_comes_after(
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
