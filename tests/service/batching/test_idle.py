from __future__ import annotations

import threading
from functools import partial

import pytest

from foretell.service.batching.idle import Idle
from tests.service.waiting import until


@pytest.mark.parametrize(
    ("wakes", "woken"),
    [
        ((1, 1, 1), [{2}, {1}, {0}]),
        ((0, 1), [set(), {2}]),
        ((2,), [{1, 2}]),
        ((9, 1), [{0, 1, 2}, set()]),
    ],
)
def test_the_last_to_fall_asleep_wake_first(wakes: tuple[int, ...], woken: list[set[int]]) -> None:
    lock = threading.Lock()
    idle = Idle(lock)
    awake: list[int] = []

    def work(worker: int) -> None:
        with lock:
            idle.sleep()
            awake.append(worker)

    threads = [threading.Thread(target=work, args=(worker,), daemon=True) for worker in range(3)]
    for worker, thread in enumerate(threads):
        thread.start()
        until(partial(_is_asleep, idle, worker))
    for most, expected in zip(wakes, woken, strict=True):
        with lock:
            before = len(awake)
            idle.wake(most)
            # Those that were woken wait for the lock.
            assert idle.count == 3 - before
        for worker in expected:
            threads[worker].join(30)
            assert not threads[worker].is_alive()
        assert set(awake[before:]) == expected
    with lock:
        idle.wake(3)
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert idle.count == 0


def _is_asleep(idle: Idle, worker: int) -> bool:
    """Whether this one is, and all before it."""
    return idle.count == worker + 1
