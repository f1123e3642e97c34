"""How many windows a model forecasts together at the best rate on a CPU."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

# What most models run well with.
_USUAL = 8
# What another size must gain: less than that may be chance.
_GAIN = 1.05
# Around a run: handing out its work, and a turn of the interpreter.
_OVERHEAD_SECONDS = 0.0002
# A longer run would hold up those who come next, and other models.
_LONGEST_SECONDS = 0.25
_BUDGET_SECONDS = 0.7
_ROUNDS, _TURN_SECONDS = 3, 0.02


def best_batch(
    run: Callable[[int], object],
    most: int,
    *,
    others: int = 0,
    clock: Callable[[], float] = time.perf_counter,
) -> int:
    """Measure runs of several sizes.

    The runs of small models share what any run costs, and those of wide ones the reading of their
    weights; the activations of deep ones leave the caches. No size is right for all.

    Args:
        run: Runs so many windows; called from several threads.
        most: Most windows of a run.
        others: How many threads do the same meanwhile, as when the server is busy: they share
            caches and memory.
        clock: Tells seconds.

    Returns:
        The usual size, or the best one of those that fit the time there is, if it is clearly
        better.
    """
    seconds = _seconds_a_run(run, most, others, clock)
    rates = {size: size / (each + _OVERHEAD_SECONDS) for size, each in seconds.items()}
    usual = max(size for size in rates if size <= _USUAL)
    best = max(rates, key=lambda size: rates[size])
    return best if rates[best] > _GAIN * rates[usual] else usual


def _seconds_a_run(
    run: Callable[[int], object], most: int, others: int, clock: Callable[[], float]
) -> dict[int, float]:
    """Mean seconds of a run, by its size.

    The sizes take turns of about the same time: whatever else the machine does hits them alike.
    """
    end = clock() + _BUDGET_SECONDS
    took: dict[int, float] = {}
    runs: Counter[int] = Counter()
    sizes = [2**power for power in range(most.bit_length())]
    for _ in range(_ROUNDS):
        for size in sizes:
            with _company(run, size, others):
                started = now = clock()
                while now < started + _TURN_SECONDS:
                    run(size)
                    now = clock()
                    runs[size] += 1
            took[size] = took.get(size, 0.0) + now - started
            if size > 1 and took[size] / runs[size] > _LONGEST_SECONDS:
                del took[size]
                sizes = sizes[: sizes.index(size)]
                break
            # A run of twice the size takes at most twice as long.
            if now + max(_TURN_SECONDS, 2 * took[size] / runs[size]) > end:
                return {size: took[size] / runs[size] for size in took}
    return {size: took[size] / runs[size] for size in took}


@contextmanager
def _company(run: Callable[[int], object], size: int, others: int) -> Iterator[None]:
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            run(size)

    threads = [threading.Thread(target=repeat, daemon=True) for _ in range(others)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
