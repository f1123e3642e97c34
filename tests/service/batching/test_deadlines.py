from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from foretell.service.batching.deadlines import Deadlines

Step = tuple[str, int]
STEPS = st.lists(st.tuples(st.sampled_from(["add", "discard", "pop"]), st.integers(0, 50)))


@settings(deadline=None, max_examples=200)
@given(STEPS)
def test_knows_the_next_deadline_and_what_has_passed(steps: list[Step]) -> None:
    deadlines: Deadlines[int] = Deadlines()
    there: dict[int, int] = {}
    for step, number in steps:
        if step == "add":
            there[deadlines.add(number, number)] = number
        elif step == "discard":
            ticket = min(there, key=lambda one: abs(one - number), default=0)
            deadlines.discard(ticket)
            there.pop(ticket, None)
        else:
            passed = sorted(one for one in there.values() if one <= number)
            assert deadlines.pop(number) == passed
            there = {ticket: one for ticket, one in there.items() if one > number}
        assert deadlines.first == min(there.values(), default=math.inf)


def test_holds_nothing_of_what_was_taken_out() -> None:
    deadlines: Deadlines[object] = Deadlines()
    kept = deadlines.add(30.0, object())
    for number in range(10_000):
        deadlines.discard(deadlines.add(30.0 + number, object()))
    assert len(deadlines._heap) < 100
    deadlines.discard(kept)
    assert deadlines.first == math.inf


def test_what_has_no_deadline_does_not_pass() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.add(math.inf, "never")
    assert deadlines.pop(1e9) == []
