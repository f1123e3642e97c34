"""To which of several servers a request goes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

# From the requests that each server has now, to the index of one.
Choice = Callable[[Sequence[int]], int]
# Makes one of its own for a run, which chance decides by this.
Policy = Callable[[Random], Choice]


def pinned(connections: int) -> Policy:
    """As Kubernetes' Services do: so many connections stay where chance put them.

    Requests come over any of them.
    """

    def make(random: Random) -> Choice:
        pins: list[int] = []

        def choose(loads: Sequence[int]) -> int:
            if not pins:
                pins.extend(random.randrange(len(loads)) for _ in range(connections))
            return random.choice(pins)

        return choose

    return make


def any_one(random: Random) -> Choice:
    """Each request by chance."""
    return lambda loads: random.randrange(len(loads))


def of_two(random: Random) -> Choice:
    """Of two by chance, the one with fewer requests."""

    def choose(loads: Sequence[int]) -> int:
        one, other = random.randrange(len(loads)), random.randrange(len(loads))
        return min(one, other, key=loads.__getitem__)

    return choose


def least(random: Random) -> Choice:
    """The one with the fewest requests; of several by chance."""

    def choose(loads: Sequence[int]) -> int:
        fewest = min(loads)
        return random.choice([index for index, load in enumerate(loads) if load == fewest])

    return choose
