"""Parts on processes of this machine, one per core or GPU."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from ctypes import c_byte
from importlib import metadata
from multiprocessing import connection, forkserver
from multiprocessing.context import BaseContext
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from foretell.batch.plan import Part
    from foretell.batch.work import Done, Work, Worker
    from foretell.service.settings import DeviceChoice

_GPUS = Path("/proc/driver/nvidia/gpus")
_VISIBLE = "CUDA_VISIBLE_DEVICES"
# Number of times in a row that processes may be killed without a finished part in between.
_DEATHS = 3


def begin() -> BaseContext:
    """Start the process that workers are forked from, unless it is running.

    It imports the workers' modules in the background. Workers get the current environment.
    """
    # By default Arrow returns freed memory at once, and needs as much again for the next rows.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
    if sys.platform != "linux":
        # Elsewhere a process that has loaded the system's frameworks cannot fork.
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["foretell.batch.work"])
    # Keep the server process from importing modules of the working directory.
    is_safe = "PYTHONSAFEPATH" in os.environ
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    forkserver.ensure_running()
    if not is_safe:
        del os.environ["PYTHONSAFEPATH"]
    return context


def gpus_of(device: DeviceChoice) -> list[str]:
    """CUDA names of the GPUs that processes may use."""
    try:
        metadata.distribution("onnxruntime-gpu")
    except metadata.PackageNotFoundError:
        return []
    if device == "cpu":
        return []
    given = os.environ.get(_VISIBLE)
    if given is not None:
        # An empty value or -1 hides GPUs.
        return [name for name in given.split(",") if name not in ("", "-1")]
    return [str(number) for number, _ in enumerate(_GPUS.glob("*"))]


def workers_of(device: DeviceChoice, workers: int | None) -> int:
    """The number of processes: as given, or one per GPU, or one per core without GPUs."""
    from foretell.service.engine.limits import usable_cpus

    return workers or len(gpus_of(device)) or usable_cpus()


def run_parts(work: Work, parts: Sequence[Part], workers: int | None) -> Iterator[Done]:
    """Forecast parts in any order.

    Args:
        work: Table, model, options and target.
        parts: Parts to forecast.
        workers: Number of processes; by default one per GPU, or per core without GPUs.

    Raises:
        BatchError: a part cannot be forecast, or processes are killed several times in a row.
    """
    from foretell.batch.errors import BatchError

    gpus = gpus_of(work.device)
    count = min(workers_of(work.device, workers), len(parts))
    left = {part.number: part for part in parts}
    deaths = 0
    while left:
        try:
            for done in _run(work, list(left.values()), count, gpus):
                del left[done.part]
                deaths = 0
                yield done
        except BrokenProcessPool:
            deaths += 1
            if deaths == _DEATHS:
                raise BatchError(
                    f"worker processes were killed {deaths} times in a row, maybe for lack of "
                    "memory; finished parts are kept: run again with fewer --workers"
                ) from None


def _run(work: Work, parts: list[Part], count: int, gpus: list[str]) -> Iterator[Done]:
    """Forecast parts on a pool of processes, which breaks if one is killed."""
    context = begin()
    # Without a lock, which a killed process would not release.
    stopped, turns = context.RawValue("b", 0), context.SimpleQueue()
    for number in range(count):
        turns.put(gpus[number % len(gpus)] if gpus else None)
    pool = ProcessPoolExecutor(count, context, _begin, (work, stopped, turns))
    try:
        try:
            futures = [pool.submit(_part, part) for part in parts]
        except (EOFError, OSError) as error:
            raise BrokenProcessPool("no worker process starts") from error
        for future in as_completed(futures):
            yield future.result()
    finally:
        stopped.value = 1
        pool.shutdown(cancel_futures=True)


class _Process:
    """State of a worker process."""

    work: Work
    stopped: c_byte
    worker: Worker | None = None


def _begin(work: Work, stopped: c_byte, turns: SimpleQueue[str | None]) -> None:
    # The command handles interrupts; if it is killed, its workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if (gpu := turns.get()) is not None:
        os.environ[_VISIBLE] = gpu
    _Process.work, _Process.stopped = work, stopped


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        connection.wait([parent.sentinel])
        os._exit(1)


def _part(part: Part) -> Done:
    from foretell.batch.work import Worker

    if _Process.worker is None:
        # Created on use: the command receives errors of parts, not of the initializer.
        _Process.worker = Worker(_Process.work)
    return _Process.worker.run(part, lambda: not _Process.stopped.value)
