"""How many CPUs this process may keep busy."""

from __future__ import annotations

import math
import os
from pathlib import Path

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
