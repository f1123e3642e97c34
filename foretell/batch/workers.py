"""Parts on the processes of this machine: one a core, or one a GPU."""

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
# Times in a row that processes may be killed without a part done in between.
_DEATHS = 3


def begin() -> BaseContext:
    """Begin the process that workers are forked from, unless it has begun.

    It imports what they need while this process goes on. They have the environment of now.
    """
    # Arrow would give freed memory back to the system at once, and need as much for the next rows.
    os.environ.setdefault("MIMALLOC_PURGE_DELAY", "10000")
    if sys.platform != "linux":
        # Elsewhere a process that has loaded the system's frameworks cannot fork.
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["foretell.batch.work"])
    # Modules of the folder that the command runs in are none of its own.
    is_safe = "PYTHONSAFEPATH" in os.environ
    os.environ.setdefault("PYTHONSAFEPATH", "1")
    forkserver.ensure_running()
    if not is_safe:
        del os.environ["PYTHONSAFEPATH"]
    return context


def gpus_of(device: DeviceChoice) -> list[str]:
    """The GPUs that processes may take, by the names that CUDA has for them."""
    try:
        metadata.distribution("onnxruntime-gpu")
    except metadata.PackageNotFoundError:
        return []
    if device == "cpu":
        return []
    given = os.environ.get(_VISIBLE)
    if given is not None:
        # Empty or -1: they are hidden.
        return [name for name in given.split(",") if name not in ("", "-1")]
    return [str(number) for number, _ in enumerate(_GPUS.glob("*"))]


def workers_of(device: DeviceChoice, workers: int | None) -> int:
    """How many processes forecast at a time: those given, or else one a GPU or one a core."""
    from foretell.service.engine.limits import usable_cpus

    return workers or len(gpus_of(device)) or usable_cpus()


def run_parts(work: Work, parts: Sequence[Part], workers: int | None) -> Iterator[Done]:
    """Forecast parts, in any order.

    Args:
        work: What to do.
        parts: The parts.
        workers: Processes; if None one a GPU, or else one a core.

    Raises:
        BatchError: a part cannot be forecast, or processes are killed again and again.
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
                    f"processes of workers were killed {deaths} times in a row, by a lack of "
                    "memory maybe; what is written stays, and --workers takes fewer"
                ) from None


def _run(work: Work, parts: list[Part], count: int, gpus: list[str]) -> Iterator[Done]:
    """Forecast parts on processes that all end where one is killed."""
    context = begin()
    # Without a lock: a process may be killed at any moment.
    stopped, turns = context.RawValue("b", 0), context.SimpleQueue()
    for number in range(count):
        turns.put(gpus[number % len(gpus)] if gpus else None)
    pool = ProcessPoolExecutor(count, context, _begin, (work, stopped, turns))
    try:
        try:
            futures = [pool.submit(_part, part) for part in parts]
        except (EOFError, OSError) as error:
            raise BrokenProcessPool("no process begins") from error
        for future in as_completed(futures):
            yield future.result()
    finally:
        stopped.value = 1
        pool.shutdown(cancel_futures=True)


class _Process:
    """What a process of a worker has."""

    work: Work
    stopped: c_byte
    worker: Worker | None = None


def _begin(work: Work, stopped: c_byte, turns: SimpleQueue[str | None]) -> None:
    # The command answers an interrupt; when it is killed, nothing goes on.
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
        # Here, and not when the process begins: what it raises comes to the command.
        _Process.worker = Worker(_Process.work)
    return _Process.worker.run(part, lambda: not _Process.stopped.value)
