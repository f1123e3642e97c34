"""How much memory this process may hold, and whether one more model fits."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from pathlib import Path

from foretell.bundle import layout
from foretell.service.errors import LoadFailedError

_CGROUPS = Path("/sys/fs/cgroup")
_STATM = Path("/proc/self/statm")
_MIB = 1024 * 1024
# By less than this it is not worth looking.
_GROWN = 1.02
# Control groups of version 1 say "no limit" by a number of this size.
_NO_LIMIT = 2**60


class Memory:
    """Refuses what would end in the process being killed.

    Args:
        limit: Most bytes of resident memory; None refuses nothing.
    """

    def __init__(self, limit: int | None) -> None:
        self._limit = limit

    def check(self, folder: Path) -> None:
        """Make sure that a bundle fits.

        Raises:
            LoadFailedError: it does not.
        """
        if self._limit is None:
            return
        held, needed = resident_bytes(), bundle_bytes(folder)
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


def container_limit(processes: int, cgroups: Path = _CGROUPS) -> int | None:
    """Bytes of memory that a process may use of what the container may; None without a limit.

    Args:
        processes: How many share it.
        cgroups: Where the control groups are mounted.
    """
    for file in (cgroups / "memory.max", cgroups / "memory" / "memory.limit_in_bytes"):
        try:
            limit = int(file.read_text())
        except (OSError, ValueError):
            # No control groups here, or `max`.
            continue
        return limit // processes if limit < _NO_LIMIT else None
    return None


def return_free_memory() -> None:
    """Give what was freed back to the system: the C library would keep much of it for later."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    # Only the GNU C library has it.
    if trim is not None:
        trim(0)


class Leftover:
    """What a burst of work took of memory.

    Args:
        forget: Frees what is kept for the next burst.
    """

    def __init__(self, forget: Callable[[], None]) -> None:
        self._forget = forget
        self._settled = 0

    def give_back(self) -> None:
        """Free what is kept, and return all that is free if the process has grown.

        Takes milliseconds; while the memory is returned, other threads go on.
        """
        self._forget()
        if resident_bytes() > _GROWN * self._settled:
            return_free_memory()
            self._settled = resident_bytes()


def _mib(count: int) -> str:
    return f"{count / _MIB:.0f} MiB"
