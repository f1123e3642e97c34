"""Limits of this process: CPUs, open files and memory; and the memory that malloc keeps."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from threading import Thread

from foretell.bundle import layout
from foretell.service.errors import LoadFailedError, ShortageError

_CGROUPS = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")
_MIB = 1024 * 1024
# Control groups of version 1 write "no limit" as a number of this size.
_NO_LIMIT = 2**60
# Parameters of mallopt in the GNU C library, and their values: how much free memory stays at the
# end of the heap, and the size from which on an allocation is not part of the heap.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = (-1, 64 * _MIB), (-3, 16 * _MIB)
# The number of heaps. Free memory at the end of any heap but the first is never given back.
_ARENA_MAX = (-8, 1)
# The change of resident memory after which free memory is given back, and the shortest pause
# between two such calls: while the server is idle, and while it answers requests.
_MOVED_BYTES = 8 * _MIB
_IDLE_SECONDS, _BUSY_SECONDS = 0.5, 10.0


def usable_cpus(cgroups: Path = _CGROUPS) -> int:
    """CPUs of the affinity mask, or of the container's quota if it is smaller."""
    cpus = len(os.sched_getaffinity(0))
    # Without control groups there are no files, and without a quota `max` instead of a number.
    with suppress(OSError, ValueError, ZeroDivisionError):
        if (cgroups / "cpu.max").exists():
            quota, period = (cgroups / "cpu.max").read_text().split()
        else:
            quota, period = (
                (cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        share = int(quota) / int(period)
        return cpus if share <= 0 else max(1, min(cpus, math.ceil(share)))
    return cpus


def use_all_files() -> None:
    """Let this process and its children open more files than the 1024 that many systems allow."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some sandboxes allow no change.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Memory:
    """Refuses bundles that would take this process over `limit` bytes, if it is set."""

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._first = resident_bytes()

    def check(self, folder: Path) -> None:
        """Check that a bundle fits now, or raise ShortageError."""
        if self._excess(folder, resident_bytes()):
            return_free_memory()
        if excess := self._excess(folder, resident_bytes()):
            raise ShortageError(f"{folder}: {excess}")

    def check_alone(self, folder: Path) -> None:
        """Check that a bundle fits once all models are closed, or raise LoadFailedError."""
        if excess := self._excess(folder, self._first):
            raise LoadFailedError(f"{folder}: {excess}")

    def _excess(self, folder: Path, held: int) -> str:
        """Why a bundle does not fit beside `held` bytes, or empty."""
        if self._limit is None or held + (needed := bundle_bytes(folder)) <= self._limit:
            return ""
        return (
            f"needs about {needed / _MIB:.0f} MiB of memory; the process holds "
            f"{held / _MIB:.0f} MiB of the {self._limit / _MIB:.0f} MiB it may"
        )


def bundle_bytes(folder: Path) -> int:
    """Estimated memory of a bundle while it is tested."""
    # Both graphs hold the weights. While the second one is opened, the private copy and onnxruntime
    # hold them as well.
    graphs = (folder / layout.FORECAST_GRAPH, folder / layout.EXPLAIN_GRAPH)
    weights = (folder / layout.WEIGHTS).stat().st_size
    return sum(graph.stat().st_size for graph in graphs) + 4 * weights


def resident_bytes() -> int:
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def container_limit(others: int = 0, cgroups: Path = _CGROUPS) -> int | None:
    """The container's limit of memory, less `others` for its other processes; None for no limit."""
    for file in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        with suppress(OSError, ValueError):
            limit = int(file.read_text())
            return limit - others if limit < _NO_LIMIT else None
    return None


def return_free_memory() -> None:
    """Give freed memory back to the system; malloc would keep much of it."""
    _call("malloc_trim", 0)


class MallocTrimmer:
    """Lets malloc keep freed memory for the next requests, and gives it back after a while.

    By default malloc gives each body and array of a few hundred kilobytes back. The system fills
    the pages of the next one with zeros, which takes longer than to process them. Settings of the
    environment (`MALLOC_TRIM_THRESHOLD_`, `GLIBC_TUNABLES`, …) are left alone.
    """

    def __init__(self, give_back: Callable[[], object] = return_free_memory) -> None:
        _set_malloc(trim_threshold=_TRIM_THRESHOLD, mmap_threshold=_MMAP_THRESHOLD)
        self._give_back = give_back
        self._resident = resident_bytes()
        self._last = -math.inf
        self._thread = Thread()

    def trim(self, now: float, *, busy: bool) -> Thread:
        """Begin to give free memory back, on a thread, if resident memory has changed.

        Call it a few times a second; `busy` while requests, which hold memory, are being answered.
        It takes about 150 ms for each free gigabyte, while large allocations of other threads wait.
        """
        is_due = now - self._last >= (_BUSY_SECONDS if busy else _IDLE_SECONDS)
        if not is_due or self._thread.is_alive():
            return self._thread
        if abs(resident_bytes() - self._resident) >= _MOVED_BYTES:
            self._last = now
            self._thread = Thread(target=self._trim, args=(busy,), name="malloc-trim", daemon=True)
            # If no thread can be started, the next call tries again.
            with suppress(RuntimeError):
                self._thread.start()
        return self._thread

    def _trim(self, busy: bool) -> None:
        self._give_back()
        if not busy:
            self._resident = resident_bytes()


def use_one_heap() -> None:
    """Let threads started after this call share one heap, which can be given back whole."""
    _set_malloc(arena_max=_ARENA_MAX)


def _set_malloc(**options: tuple[int, int]) -> None:
    """Set options of malloc that the environment does not set."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for name, (parameter, value) in options.items():
        variables = {f"MALLOC_{name.upper()}", f"MALLOC_{name.upper()}_"}
        if not variables & os.environ.keys() and f"malloc.{name}=" not in tunables:
            _call("mallopt", parameter, value)


def _call(name: str, *arguments: int) -> None:
    """Call a function of the C library, if it has one of that name."""
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)


def freeze_garbage_collection() -> None:
    """Exempt everything that exists now from garbage collection, and collect more rarely.

    Parsed JSON is many lists without cycles. Looking for cycles after every 700 of them takes
    longer than parsing, and no other thread runs meanwhile.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 2, 1000)
