"""How many windows a model forecasts together at the best rate on a CPU."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
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
    means: dict[int, float] = {}
    runs: Counter[int] = Counter()
    sizes = [2**power for power in range(most.bit_length())]
    for size in sizes * _ROUNDS:
        if size > max(sizes):
            continue
        with _company(run, size, others):
            began, before = clock(), runs[size]
            while (took := clock() - began) < _TURN_SECONDS:
                run(size)
                runs[size] += 1
        means[size] = (means.get(size, 0.0) * before + took) / runs[size]
        if size > 1 and means[size] > _LONGEST_SECONDS:
            sizes = [smaller for smaller in sizes if smaller < size]
        # A run of twice the size takes at most twice as long.
        if clock() + max(_TURN_SECONDS, 2 * means[size]) > end:
            break
    return {size: mean for size, mean in means.items() if size in sizes}


@contextmanager
def _company(run: Callable[[int], object], size: int, others: int) -> Iterator[None]:
    done = threading.Event()

    def repeat() -> None:
        while not done.is_set():
            run(size)

    with ThreadPoolExecutor(max(1, others), thread_name_prefix="tuning") as pool:
        repeating = [pool.submit(repeat) for _ in range(others)]
        try:
            yield
        finally:
            done.set()
    for one in repeating:
        one.result()
