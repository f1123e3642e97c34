from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from foretell.bundle import layout
from foretell.service.engine import limits
from foretell.service.engine.limits import (
    MallocTrimmer,
    Memory,
    bundle_bytes,
    container_limit,
    resident_bytes,
    return_free_memory,
    usable_cpus,
    use_one_heap,
)
from foretell.service.errors import LoadFailedError

MIB = 1024 * 1024


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bundle of two graphs of 1 MiB each, and weights of 2 MiB."""
    for name, size in (
        (layout.FORECAST_GRAPH, 1),
        (layout.EXPLAIN_GRAPH, 1),
        (layout.WEIGHTS, 2),
        (layout.PROBES, 5),
    ):
        (tmp_path / name).write_bytes(bytes(size * MIB))
    return tmp_path


def test_bundle_bytes_count_the_weights_of_each_copy(folder: Path) -> None:
    assert bundle_bytes(folder) == 10 * MIB


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Resident bytes of the process: the first item of the list, which tests change."""
    held = [100 * MIB]
    monkeypatch.setattr(limits, "resident_bytes", lambda: held[0])
    monkeypatch.setattr(limits, "return_free_memory", lambda: None)
    return held


def test_bundles_over_the_memory_limit_are_refused(folder: Path, held: list[int]) -> None:
    Memory(None).check(folder)
    exact, small = Memory(110 * MIB), Memory(109 * MIB)
    exact.check(folder)
    with pytest.raises(
        LoadFailedError, match=r"about 10 MiB of memory; the process holds 100 MiB of the 109 MiB"
    ):
        small.check(folder)
    held[0] += MIB
    # It fits beside the memory that the process used at the start.
    exact.check_alone(folder)
    with pytest.raises(LoadFailedError, match="holds 101 MiB of the 110 MiB"):
        exact.check(folder)
    with pytest.raises(LoadFailedError, match="holds 100 MiB of the 109 MiB"):
        small.check_alone(folder)


def test_free_memory_is_trimmed_before_a_bundle_is_refused(
    folder: Path, held: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "return_free_memory", lambda: held.insert(0, 99 * MIB))
    for _ in range(2):
        Memory(109 * MIB).check(folder)
    assert held == [99 * MIB, 100 * MIB]


def test_resident_bytes_follow_allocations() -> None:
    # Otherwise the allocation could reuse free memory.
    return_free_memory()
    before = resident_bytes()
    held = np.ones(64 * MIB, np.uint8)
    grown = resident_bytes() - before
    assert 60 * MIB < grown < 80 * MIB
    del held
    return_free_memory()
    assert resident_bytes() - before < 30 * MIB


# Run in a process of its own, because malloc's settings are for a whole process.
TRIM = """
import ctypes, json, resource
import numpy as np
from foretell.service.engine.limits import MallocTrimmer, resident_bytes

# PR_SET_THP_DISABLE: a huge page would be one fault.
ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        held = [np.ones(300_000, np.uint8) for _ in range(100)]
        del held
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def look(now, busy):
    giving = trimmer.trim(now, busy=busy)
    if giving.ident:
        giving.join(30)

before = faults()
trimmer = MallocTrimmer()
faults()
found = [before, faults()]
found.append(resident_bytes())
for now, busy in ((100.0, True), (100.1, False), (109.9, True)):
    look(now, busy)
    found.append(resident_bytes())
    faults()
look(110.1, True)
found.append(resident_bytes())
# Of what is held, nothing is free.
held = np.ones(100_000_000, np.uint8)
look(120.2, True)
del held
faults()
look(120.3, False)
kept = resident_bytes()
look(120.8, False)
found += [kept, resident_bytes()]
print(json.dumps(found))
"""


def test_freed_memory_is_trimmed_after_a_pause() -> None:
    process = subprocess.run(
        [sys.executable, "-c", TRIM], capture_output=True, text=True, check=True, timeout=60
    )
    before, after, held, first, kept, busy, late, again, idle = json.loads(process.stdout)
    # 50 allocations of 30 MB fault their pages each time.
    assert before > 100_000
    assert after < 10_000
    # At first, and then half a second after the last time, or ten while requests are answered.
    assert first < held - 20 * MIB
    assert min(kept, busy) > first + 20 * MIB
    assert late < busy - 20 * MIB
    assert again > idle + 20 * MIB
    assert idle < late + 8 * MIB


def test_memory_is_trimmed_off_the_loop_once_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    held = 100 * MIB
    monkeypatch.setattr(limits, "resident_bytes", lambda: held)
    monkeypatch.setattr(limits, "_call", lambda *_: None)
    begun, go_on, threads = threading.Event(), threading.Event(), list[threading.Thread]()

    def give_back() -> None:
        threads.append(threading.current_thread())
        begun.set()
        assert go_on.wait(30)

    trimmer = MallocTrimmer(give_back)
    held += 10 * MIB
    giving = trimmer.trim(0.0, busy=False)
    assert begun.wait(30)
    assert trimmer.trim(100.0, busy=False) is giving
    go_on.set()
    giving.join(30)
    assert threads == [giving]
    assert trimmer.trim(200.0, busy=False) is giving
    held += 10 * MIB
    again = trimmer.trim(300.0, busy=True)
    again.join(30)
    assert threads == [giving, again]


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("MALLOC_TRIM_THRESHOLD_", "1000000", [-8, -3]),
        ("MALLOC_MMAP_THRESHOLD_", "1000000", [-8, -1]),
        ("MALLOC_ARENA_MAX", "2", [-1, -3]),
        ("GLIBC_TUNABLES", "glibc.malloc.mmap_threshold=1000000", [-8, -1]),
        ("GLIBC_TUNABLES", "glibc.malloc.check=1", [-8, -1, -3]),
    ],
)
def test_malloc_settings_of_the_environment_are_kept(
    name: str, value: str, left: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr("foretell.service.engine.limits._call", lambda *given: calls.append(given))
    monkeypatch.setenv(name, value)
    use_one_heap()
    MallocTrimmer()
    assert [given[:2] for given in calls] == [("mallopt", parameter) for parameter in left]


@pytest.mark.parametrize(
    ("file", "content", "limit"),
    [
        ("memory.max", "1000\n", 800),
        ("memory.max", "max\n", None),
        ("memory/memory.limit_in_bytes", "3000", 2800),
        ("memory/memory.limit_in_bytes", "9223372036854771712", None),
        ("cpu.max", "max 100000", None),
    ],
)
def test_memory_limit_of_the_container_is_shared(
    tmp_path: Path, file: str, content: str, limit: int | None
) -> None:
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(content)
    assert container_limit(200, tmp_path) == limit


@pytest.mark.parametrize(
    ("files", "cpus"),
    [
        ({}, 8),
        ({"cpu.max": "max 100000\n"}, 8),
        ({"cpu.max": "200000 100000\n"}, 2),
        ({"cpu.max": "250000 100000\n"}, 3),
        ({"cpu.max": "10000 100000\n"}, 1),
        ({"cpu.max": "6400000 100000\n"}, 8),
        ({"cpu.max": "nonsense"}, 8),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, 8),
        ({"cpu/cpu.cfs_quota_us": "150000\n", "cpu/cpu.cfs_period_us": "100000\n"}, 2),
    ],
)
def test_cpu_limit_of_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], cpus: int
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    for file, content in files.items():
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).write_text(content)
    assert usable_cpus(tmp_path) == cpus
