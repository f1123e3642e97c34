from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretell.service.engine.fairness import GraphQueue, Node
from foretell.service.engine.run import Run

PLENTY = 10**6


def make(*values: int) -> Run:
    return Run(Run.notify, "g", {"x": np.array(values)}, (), 1e9)


class Tree:
    """A root and its children by name."""

    def __init__(self, names: str) -> None:
        self.root: Node[Node[None]] = Node(None)  # type: ignore[type-var]
        self.children = {name: Node(self.root) for name in names}
        self.names = {child: name for name, child in self.children.items()}

    def turns(self, count: int, **costs: float) -> str:
        """The names of the next children; each is charged its cost, 1 if none is given."""
        order = ""
        for _ in range(count):
            child = self.root.next()
            order += self.names[child]
            child.charge(costs.get(order[-1], 1.0))
        return order


def wait_again(child: Node[Node[None]]) -> None:
    child.count(-1)
    child.count(1)


@pytest.mark.parametrize(
    ("charges", "turns"),
    [
        ({"a": [5.0, -4.5], "b": [1.0]}, "ababab"),
        ({"a": [5.0]}, "bbbbba"),
    ],
    ids=["what was charged too much is given back", "a debt stays while nothing waits"],
)
def test_child_with_the_least_service_is_next(charges: dict[str, list[float]], turns: str) -> None:
    tree = Tree("ab")
    for child in tree.children.values():
        child.count(1)
    for name, seconds in charges.items():
        for each in seconds:
            tree.children[name].charge(each)
    wait_again(tree.children["a"])
    assert tree.turns(6) == turns


def test_idle_child_saves_no_service() -> None:
    tree = Tree("ab")
    tree.children["a"].count(1)
    tree.turns(100)
    tree.children["b"].count(1)
    assert tree.turns(6) == "bababa"


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
def test_waiting_children_have_even_shares(
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
    # Earlier excess is balanced first.
    tree.turns(1000, **cost)
    charged = dict.fromkeys(tree.children, 0.0)
    for name in tree.turns(200, **cost):
        charged[name] += cost[name]
        assert max(charged.values()) - min(charged.values()) <= 2 * max(costs)


def queue_of(max_batch: int, *sizes: int) -> tuple[GraphQueue, list[Run]]:
    queue = GraphQueue(Node(None), max_batch)
    runs = [make(*range(windows)) for windows in sizes]
    for one in runs:
        queue.add(one)
    return queue, runs


def taken(queue: GraphQueue, runs: list[Run]) -> list[tuple[int, int, int]]:
    """A batch: number of the run, start and stop of each slice; fails if a run is late."""
    slices, late = queue.take(PLENTY, now=0.0)
    assert late == []
    return [(runs.index(one), start, stop) for one, start, stop in slices]


def test_removed_run_is_not_taken() -> None:
    queue, runs = queue_of(4, 6, 1, 2)
    assert taken(queue, runs) == [(0, 0, 2), (1, 0, 1), (2, 0, 1)]
    assert list(queue.runs) == [runs[0], runs[2]]
    queue.remove(runs[0])
    assert queue.waiting == 1
    assert taken(queue, runs) == [(2, 1, 2)]


def test_expired_runs_are_removed_and_later_ones_move_up() -> None:
    queue, runs = queue_of(4, 3, 1, 1, 1, 1)
    for number, deadline in ((0, 5.0), (2, 6.0), (3, 7.0)):
        runs[number].deadline = deadline
    slices, late = queue.take(PLENTY, now=6.0)
    assert late == [runs[0], runs[2]]
    assert [one for one, _, _ in slices] == [runs[1], runs[3], runs[4]]
    assert (queue.waiting, len(queue.runs)) == (0, 0)


def test_pace_follows_the_last_measurements() -> None:
    queue = GraphQueue(Node(None), 4)
    assert queue.pace == 0.0
    queue.measure(windows=4, seconds=2.0)
    assert queue.pace == 0.5
    for _ in range(100):
        queue.measure(windows=4, seconds=1.0)
    assert abs(queue.pace - 0.25) < 1e-3


class CountingQueue:
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
def test_run_waits_for_at_most_two_turns(max_batch: int, plan: list[int | None]) -> None:
    """Small requests wait for small requests only, others for all requests before them."""
    counted = CountingQueue(max_batch)
    for windows in plan:
        if windows is not None:
            counted.add(windows)
        elif counted.queue.waiting:
            counted.take()
    while counted.queue.waiting:
        counted.take()
    for one, rows in counted.seen.items():
        assert rows == list(range(one.windows))
