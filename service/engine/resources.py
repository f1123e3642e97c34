"""How many CPUs and files and how much memory this process may use, and what of it it keeps."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Thread

from foretell.bundle import layout
from foretell.service.errors import LoadFailedError, ShortageError

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cpus(cgroups: Path = _CGROUPS) -> int:
    """CPUs of the affinity mask, or of the container's quota where that is less.

    Args:
        cgroups: Where the control groups are mounted.
    """
    cpus = len(os.sched_getaffinity(0))
    quota = _quota(cgroups)
    return cpus if quota is None else max(1, min(cpus, math.ceil(quota)))


def _quota(cgroups: Path) -> float | None:
    """CPUs' worth of time that the container gets; None without a limit."""
    try:
        if (cgroups / "cpu.max").exists():
            quota, period = (cgroups / "cpu.max").read_text().split()
        else:
            quota, period = (
                (cgroups / "cpu" / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period")
            )
        cpus = int(quota) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        # No control groups here, or `max`.
        return None
    return cpus if cpus > 0 else None


def use_all_files() -> None:
    """Let this process, and those it starts, open as many files as the system allows.

    Many systems begin with 1024 and allow far more.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Some sandboxes allow no change.
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


_STATM = Path("/proc/self/statm")
_MIB = 1024 * 1024
# Control groups of version 1 say "no limit" by a number of this size.
_NO_LIMIT = 2**60


class Memory:
    """Refuses what would end in the process being killed.

    Args:
        limit: Most bytes of resident memory; None refuses nothing.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit
        self._first = resident_bytes()

    def check(self, folder: Path) -> None:
        """Make sure that a bundle fits.

        Raises:
            ShortageError: it does not.
        """
        if self._excess(folder, resident_bytes()):
            # Some of it may be kept for requests alone.
            return_free_memory()
        if excess := self._excess(folder, resident_bytes()):
            raise ShortageError(f"{folder}: {excess}")

    def check_alone(self, folder: Path) -> None:
        """Make sure that a bundle fits beside what the process held when this was made.

        Raises:
            LoadFailedError: it does not, whatever else is closed.
        """
        if excess := self._excess(folder, self._first):
            raise LoadFailedError(f"{folder}: {excess}")

    def _excess(self, folder: Path, held: int) -> str:
        """Why a bundle does not fit beside so many bytes; nothing if it does."""
        if self._limit is None:
            return ""
        needed = bundle_bytes(folder)
        if held + needed <= self._limit:
            return ""
        return (
            f"needs about {_mib(needed)} of memory; the process holds {_mib(held)} of the "
            f"{_mib(self._limit)} it may"
        )


def bundle_bytes(folder: Path) -> int:
    """About what a bundle takes in memory while it is tested.

    Both graphs hold the weights; while the second one is opened, so does the copy that it is opened
    from, and onnxruntime once more.
    """
    graphs = (folder / layout.FORECAST_GRAPH, folder / layout.EXPLAIN_GRAPH)
    weights = (folder / layout.WEIGHTS).stat().st_size
    return sum(graph.stat().st_size for graph in graphs) + 4 * weights


def resident_bytes() -> int:
    """Physical memory that this process holds."""
    return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def container_limit(others: int = 0, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes of memory that this process may use of what the container may; None without a limit.

    Args:
        others: Bytes that the container's other processes hold.
        cgroups: Where the control groups are mounted.
    """
    for file in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):
            # No control groups here, or `max`.
            continue
        return limit - others if limit < _NO_LIMIT else None
    return None


def return_free_memory() -> None:
    """Give what was freed back to the system: the C library would keep much of it for later."""
    _call("malloc_trim", 0)


# Of the GNU C library: what it keeps at the end of its heap, and from which size on what is asked
# for is no part of that; with the numbers of mallopt's parameters.
_KEPT = {"trim_threshold": (-1, 64 * _MIB), "mmap_threshold": (-3, 16 * _MIB)}
# How many heaps there are: of others than the first, what is free at the end is never given back.
_HEAPS = {"arena_max": (-8, 1)}
# How far resident memory has to move for free memory to be given back.
_MOVED = 8 * _MIB
# Between two times: while nothing is being answered, and while something is.
_IDLE_SECONDS, _BUSY_SECONDS = 0.5, 10.0


class Spare:
    """Memory that was freed and is kept for a while, for the next requests.

    Bodies and arrays of a few hundred kilobytes come and go. The C library could give each back to
    the system, which would have to fill the pages of the next one with zeros: that takes longer
    than all that is done to them. What the environment says of it (`MALLOC_TRIM_THRESHOLD_`,
    `GLIBC_TUNABLES`, …) comes first.

    Args:
        give_back: Returns free memory to the system.
    """

    def __init__(self, give_back: Callable[[], object] = return_free_memory) -> None:
        _set(_KEPT)
        self._give_back = give_back
        self._resident = resident_bytes()
        self._at = -math.inf
        self._giving = Thread()

    def look(self, now: float, *, busy: bool) -> Thread:
        """Begin to give free memory back if resident memory has moved since that was last done.

        It does not matter what moved it: requests that were answered, refused or cut off, or
        models. To be called a few times a second. Giving back takes some 150 ms a gigabyte that is
        free, during which large allocations of other threads wait.

        Args:
            now: On the clock of `time.monotonic`.
            busy: Whether requests are being answered, which hold memory.

        Returns:
            What gives memory back, or did so last.
        """
        is_due = now - self._at >= (_BUSY_SECONDS if busy else _IDLE_SECONDS)
        is_due = is_due and not self._giving.is_alive()
        if is_due and abs(resident_bytes() - self._resident) >= _MOVED:
            self._at = now
            options = {"busy": busy}
            self._giving = Thread(target=self._give, kwargs=options, name="spare", daemon=True)
            # Where no more threads may be started it is tried again.
            with suppress(RuntimeError):
                self._giving.start()
        return self._giving

    def _give(self, *, busy: bool) -> None:
        self._give_back()
        if not busy:
            self._resident = resident_bytes()


def use_one_heap() -> None:
    """Have all threads share a heap, so that all that is free can be given back.

    To be called before there are other threads.
    """
    _set(_HEAPS)


def _set(options: Mapping[str, tuple[int, int]]) -> None:
    """Set options of the C library's malloc that the environment does not set."""
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    for name, (parameter, value) in options.items():
        given = {f"MALLOC_{name.upper()}", f"MALLOC_{name.upper()}_"}
        if not given & os.environ.keys() and f"malloc.{name}=" not in tunables:
            _call("mallopt", parameter, value)


def _call(name: str, *arguments: int) -> None:
    # Other C libraries have none of it.
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)


def keep_what_is_loaded() -> None:
    """Collect no garbage among what stays, and seldom among much else.

    Parsed JSON is many lists without cycles: looking through them for any every 700 takes longer
    than parsing. Nobody else runs meanwhile, so that it is at most 150,000 at a time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 2, 1000)


def _mib(count: int) -> str:
    return f"{count / _MIB:.0f} MiB"
