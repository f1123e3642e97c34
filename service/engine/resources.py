"""How many CPUs and how much memory this process may use."""

from __future__ import annotations

import ctypes
import gc
import math
import os
from pathlib import Path

from foretell.bundle import layout
from foretell.service.errors import LoadFailedError

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
            LoadFailedError: it does not.
        """
        self._check(folder, resident_bytes())

    def check_alone(self, folder: Path) -> None:
        """Make sure that a bundle fits beside what the process held when this was made.

        Raises:
            LoadFailedError: it does not, whatever else is closed.
        """
        self._check(folder, self._first)

    def _check(self, folder: Path, held: int) -> None:
        if self._limit is None:
            return
        needed = bundle_bytes(folder)
        if held + needed > self._limit:
            raise LoadFailedError(
                f"{folder}: needs about {_mib(needed)} of memory; the process holds {_mib(held)} "
                f"of the {_mib(self._limit)} it may"
            )


def bundle_bytes(folder: Path) -> int:
    """About what a bundle takes in memory while it is tested: the weights once for each graph."""
    graphs = (folder / layout.FORECAST_GRAPH, folder / layout.EXPLAIN_GRAPH)
    weights = (folder / layout.WEIGHTS).stat().st_size
    return sum(graph.stat().st_size + weights for graph in graphs)


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
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Only the GNU C library has it.
    if trim is not None:
        trim(0)


def keep_what_is_loaded() -> None:
    """Collect no garbage among what stays.

    Parsed JSON is many lists without cycles: looking through them for any every 700 takes longer
    than parsing.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


def _mib(count: int) -> str:
    return f"{count / _MIB:.0f} MiB"
