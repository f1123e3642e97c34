from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from foretell.service.engine.tuning import best_batch
from foretell.service.errors import ModelFailedError


class Machine:
    """Runs take the seconds they should, on a clock of its own."""

    def __init__(self, seconds: Callable[[int], float]) -> None:
        self._seconds = seconds
        self.now = 0.0
        self.sizes: list[int] = []

    def run(self, size: int) -> None:
        self.sizes.append(size)
        self.now += self._seconds(size)

    def best(self, most: int = 32) -> int:
        return best_batch(self.run, most, clock=lambda: self.now)


@pytest.mark.parametrize(
    ("seconds", "best"),
    [
        # Nothing but what every run costs.
        (lambda size: 1e-4, 32),
        # The weights are read once for all.
        (lambda size: 5e-3 + 1e-3 * size, 32),
        # Windows cost the same in any company: no size is clearly better than the usual one.
        (lambda size: 4e-4 * size, 8),
        (lambda size: 2e-2 * size, 8),
        # A few fit the caches.
        (lambda size: 1e-3 * size * (1 if size <= 4 else 1.2), 4),
        (lambda size: 2e-3 * size * (1 if size <= 1 else 1.5), 1),
        (lambda size: 1e-3 * size * (1 if size <= 16 else 2) + 1e-3, 16),
    ],
)
def test_the_size_with_the_best_rate(seconds: Callable[[int], float], best: int) -> None:
    assert Machine(seconds).best() == best


@pytest.mark.parametrize(("most", "best"), [(1, 1), (2, 2), (6, 4), (100, 64)])
def test_no_more_than_may_be(most: int, best: int) -> None:
    machine = Machine(lambda size: 1e-4)
    assert machine.best(most) == best
    assert max(machine.sizes) == best


def test_no_run_holds_up_others_for_long() -> None:
    # All the better the larger, but for that.
    assert Machine(lambda size: 0.03 + 0.04 * size).best() == 4
    assert Machine(lambda size: 3.0).best() == 1


@pytest.mark.parametrize("window", [1e-3, 5e-3, 0.02, 0.09, 0.3, 5.0])
def test_it_takes_little_time(window: float) -> None:
    machine = Machine(lambda size: window * size)
    machine.best()
    assert machine.now <= max(0.9, 3 * window)


def test_a_moment_of_disturbance_does_not_count() -> None:
    machine = Machine(lambda size: 0.05 if len(machine.sizes) % 4 == 0 else 1e-3 + 1e-4 * size)
    assert machine.best() == 32


def test_others_do_the_same_meanwhile() -> None:
    sizes: set[int] = set()
    together = threading.Barrier(3)

    def run(size: int) -> None:
        if size not in sizes and size <= 2:
            together.wait(30)
            sizes.add(size)

    best_batch(run, 2, others=2)
    assert sizes == {1, 2}
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tuning")]


def test_what_goes_wrong_is_raised_whoever_it_happens_to() -> None:
    def run(size: int) -> None:
        if threading.current_thread().name.startswith("tuning"):
            raise ModelFailedError("cannot run")

    with pytest.raises(ModelFailedError):
        best_batch(run, 4, others=1)
