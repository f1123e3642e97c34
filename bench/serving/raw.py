"""The ceiling: onnxruntime in a loop, without any server."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from statistics import median

from foretell.service.arrays import Arrays
from foretell.service.engine.limits import usable_cpus


def throughput(run: Callable[[Arrays], object], feeds: Arrays, seconds: float) -> float:
    """Windows a second with a thread a CPU, each running the same windows over and over."""
    counts: list[int] = []
    end = time.perf_counter() + seconds

    def loop() -> None:
        done = 0
        while time.perf_counter() < end:
            run(feeds)
            done += 1
        counts.append(done)

    threads = [threading.Thread(target=loop) for _ in range(usable_cpus())]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    windows = len(next(iter(feeds.values())))
    return sum(counts) * windows / (time.perf_counter() - started)


def latency(run: Callable[[Arrays], object], feeds: Arrays, seconds: float) -> float:
    """Median seconds of one run, alone."""
    found: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        run(feeds)
        found.append(time.perf_counter() - started)
    return median(found)
