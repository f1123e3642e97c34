from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.batching.turns import Turns


def test_equal_ones_go_round() -> None:
    turns: Turns[str] = Turns()
    for name in "abc":
        turns.join(name)
    assert [turns.next() for _ in range(6)] == list("abcabc")
    assert len(turns) == 3


def test_who_had_least_is_next() -> None:
    turns: Turns[str] = Turns()
    for name in "ab":
        turns.join(name)
    order = []
    for _ in range(8):
        order.append(turns.next())
        turns.charge(order[-1], {"a": 3.0, "b": 1.0}[order[-1]])
    assert order == list("abbbabbb")


def test_who_was_charged_too_much_is_given_back() -> None:
    turns: Turns[str] = Turns()
    for name in "ab":
        turns.join(name)
    turns.charge("a", 5.0)
    turns.charge("b", 1.0)
    turns.charge("a", -4.5)
    assert turns.next() == "a"


def test_nothing_is_saved_up() -> None:
    turns: Turns[str] = Turns()
    turns.join("hot")
    for _ in range(100):
        turns.charge(turns.next(), 1.0)
    turns.join("rare")
    order = []
    for _ in range(6):
        order.append(turns.next())
        turns.charge(order[-1], 1.0)
    assert order == ["rare", "hot", "rare", "hot", "rare", "hot"]


def test_to_leave_and_come_back_makes_no_debt_disappear() -> None:
    turns: Turns[str] = Turns()
    for name in "ab":
        turns.join(name)
    turns.charge("a", 5.0)
    turns.leave("a")
    turns.join("a")
    order = []
    for _ in range(6):
        order.append(turns.next())
        turns.charge(order[-1], 1.0)
    assert order == list("bbbbba")


def test_who_is_forgotten_owes_nothing() -> None:
    turns: Turns[str] = Turns()
    turns.join("a")
    turns.forget("a")
    assert not turns
    turns.charge("a", 5.0)
    turns.join("b")
    turns.join("a")
    assert turns.next() == "b"
    turns.charge("b", 1.0)
    assert turns.next() == "a"


@settings(deadline=None, max_examples=100)
@given(
    st.lists(st.floats(0.01, 2.0), min_size=2, max_size=4),
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20),
)
def test_those_who_wait_have_even_shares(
    costs: list[float], comings: list[tuple[int, bool]]
) -> None:
    turns: Turns[int] = Turns()
    for number, comes in comings:
        one = number % len(costs)
        turns.join(one) if comes else turns.leave(one)
        if turns:
            now = turns.next()
            turns.charge(now, costs[now])
    for one in range(len(costs)):
        turns.join(one)
    # What was had more than others before is made up for first.
    for _ in range(1000):
        now = turns.next()
        turns.charge(now, costs[now])
    had = [0.0] * len(costs)
    for _ in range(200):
        now = turns.next()
        turns.charge(now, costs[now])
        had[now] += costs[now]
        assert max(had) - min(had) <= 2 * max(costs)
