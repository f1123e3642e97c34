"""Shared by all cases: their arguments, their results, and measurements in turns."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import mean, median
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).parent / "results"
# Checkouts and environments of other commits and servers, and the state of long runs.
KEPT = ROOT / ".bench"
_LIBRARIES = ("onnxruntime", "onnxruntime-gpu", "torch", "numpy")
# Seconds that a contender runs before the next one's turn, and the fewest turns of each.
_TURN, _FEWEST_TURNS = 0.06, 3

Cell = str | int | float
Row = Mapping[str, Cell]
Tables = dict[str, Sequence[Row]]
Call = Callable[[], object]
Name = TypeVar("Name")
T = TypeVar("T")


@dataclass(frozen=True)
class Run:
    """The arguments of a case.

    Attributes:
        folder: An empty folder for whatever it writes.
        quick: Whether to do everything for a moment only.
        baselines: Commits to measure beside this one.
        seconds: How long to measure; the case's own if None.
        data: Files or folders, of cases that need some.
        only: Words; parts whose names have none of them are left out.
    """

    folder: Path
    quick: bool = False
    baselines: tuple[str, ...] = ()
    seconds: float | None = None
    data: tuple[Path, ...] = ()
    only: tuple[str, ...] = ()

    def wants(self, part: str) -> bool:
        """Whether a part must be measured."""
        return not self.only or any(word in part for word in self.only)

    def pick(self, full: T, quick: T) -> T:
        """One of two, the second for a quick run."""
        return quick if self.quick else full

    def duration(self, full: float, quick: float) -> float:
        """Seconds to measure for."""
        return self.pick(full, quick) if self.seconds is None else self.seconds


@dataclass(frozen=True)
class Result:
    """The result of a case.

    Attributes:
        tables: By name; cells are numbers, or text.
        failures: Checks that failed.
        machine: The machine that it ran on.
        commit: Commit of the code that ran.
    """

    tables: Tables
    failures: Sequence[str] = ()
    machine: str = field(default_factory=lambda: machine())
    commit: str = field(default_factory=lambda: _commit())

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        content = {"machine": self.machine, "commit": self.commit, "tables": self.tables}
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def machine() -> str:
    """Processor, Python and libraries."""
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.split(":", 1)[1].strip()
            break
    parts = [f"{processor}, {os.cpu_count()} CPUs; Python {platform.python_version()}"]
    for name in _LIBRARIES:
        try:
            parts.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return f"Machine: {', '.join(parts)}."


def status_mib(field: str, process: int | str = "self") -> float:
    """MiB of a field of a process in /proc: resident memory (`VmRSS`) or its peak (`VmHWM`)."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    [kibibytes] = (line.split()[1] for line in lines if line.startswith(f"{field}:"))
    return int(kibibytes) / 1024


def _commit() -> str:
    ran = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True
    )
    return ran.stdout.strip()


def interleaved_medians(
    calls: Mapping[Name, Call],
    seconds: float,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[Name, float]:
    """Median seconds of one call of each contender, taken in turns.

    Whatever else the machine does hits all of them. The first call of a turn is not counted: it
    finds the caches full of the one before.

    Args:
        calls: By name.
        seconds: For all of them together; each gets a few turns in any case.
        clock: Times the calls.
    """
    times: dict[Name, list[float]] = {name: [] for name in calls}
    end = time.perf_counter() + seconds
    turns = 0
    while turns < _FEWEST_TURNS or time.perf_counter() < end:
        for name, call in calls.items():
            call()
            spent = 0.0
            while spent < _TURN:
                began = clock()
                call()
                times[name].append(clock() - began)
                spent += times[name][-1]
        turns += 1
    return {name: median(found) for name, found in times.items()}


def in_turns(
    parts: Sequence[Callable[[int], T]], seconds: float, fewest: int = _FEWEST_TURNS
) -> list[list[T]]:
    """Do several things in turns of about two seconds.

    Args:
        parts: Each takes a number of seconds to run for, and returns its result.
        seconds: For each of them in all.
        fewest: Turns of each.

    Returns:
        The results of each, turn by turn.
    """
    count = max(fewest, int(seconds) // 2)
    span = max(1, int(seconds) // count)
    turns = [[part(span) for part in parts] for _ in range(count)]
    return [list(each) for each in zip(*turns, strict=True)]


def ratio(ours: Sequence[float], others: Sequence[float]) -> float:
    """The median ratio of turns that followed each other."""
    return median(one / other for one, other in zip(ours, others, strict=True))


def kept(path: Path, key: str, measurement: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The record of a key in an append-only file; measured if it is missing."""
    records = records_of(path)
    if key not in records:
        records[key] = measurement()
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps([key, records[key]]) + "\n")
        print(f"{key}: {records[key]}", flush=True)
    return records[key]


def records_of(path: Path) -> dict[str, dict[str, Any]]:
    """All records of such a file, by key."""
    return dict(map(json.loads, path.read_text().splitlines())) if path.exists() else {}


def spread(values: Iterable[float]) -> str:
    """The mean and half the range of values."""
    found = list(values)
    half = (max(found) - min(found)) / 2
    return f"{mean(found):.3f}" + (f" ± {half:.3f}" if len(found) > 1 else "")
